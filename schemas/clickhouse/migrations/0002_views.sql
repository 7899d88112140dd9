-- Views for analysts. They hold no rows, so they are in a file of their own, which is applied again if one was dropped.
CREATE OR REPLACE VIEW `{{.Database}}`.`{{.Table}}_current`
(
    product_instance LowCardinality(String) COMMENT 'set of detectors, as the registry names it',
    detector_code LowCardinality(String) COMMENT 'code of the detector',
    measure_type_code LowCardinality(String) COMMENT 'measure type, such as speed; its unit is in {{.Table}}_measure_types',
    timestamp_from DateTime64(9, 'UTC') COMMENT 'start of the interval',
    timestamp_to DateTime64(9, 'UTC') COMMENT 'end of the interval',
    value Float64 COMMENT 'measured value, in the unit of the measure type',
    quality Nullable(Float64) COMMENT 'reliability, as the integrator states it; NULL if it was not sent',
    batch_id UUID COMMENT 'Batch-Id of the response to the batch',
    batch_index UInt32 COMMENT 'index of the measurement in its batch',
    received_at DateTime64(9, 'UTC') COMMENT 'time of acceptance'
)
AS SELECT * FROM `{{.Database}}`.`{{.Table}}` FINAL
COMMENT 'Every measurement once: the version that was accepted last';

-- A state covers complete hours: tests judge these. States without measurements have none that mislead. If the number of vehicles
-- contradicts the speed or the occupancy, either may mislead.
CREATE OR REPLACE VIEW `{{.Database}}`.`{{.Table}}_sick_hours`
(
    product_instance LowCardinality(String) COMMENT 'set of detectors, as the registry names it',
    measure_type_code LowCardinality(String) COMMENT 'measure type, such as speed; its unit is in {{.Table}}_measure_types',
    detector_code String COMMENT 'code of the detector',
    bucket DateTime('UTC') COMMENT 'start of the hour (UTC) that contains timestamp_from'
)
AS SELECT product_instance,
    arrayJoin(arrayDistinct([measure_type_code, multiIf(
        state = 'no_vehicles', replaceOne(measure_type_code, 'flow', 'speed'),
        state = 'impossible', replaceOne(measure_type_code, 'occupancy', 'flow'),
        measure_type_code)])) AS measure_type_code,
    detector_code,
    arrayJoin(arrayMap(n -> toDateTime(3600 * n, 'UTC'), range(intDiv(toUnixTimestamp(first_at), 3600), intDiv(toUnixTimestamp(last_at), 3600)))) AS bucket
FROM `{{.Database}}`.`{{.Table}}_health` FINAL
WHERE state NOT IN ('checked', 'silent', 'feed', 'few')
COMMENT 'Hours of detectors whose measurements mislead, once for each test that found it';

CREATE OR REPLACE VIEW `{{.Database}}`.`{{.Table}}_5m`
(
    product_instance LowCardinality(String) COMMENT 'set of detectors, as the registry names it',
    bucket DateTime64(0, 'UTC') COMMENT 'start of the 5 minutes that contains timestamp_from',
    measure_type_code LowCardinality(String) COMMENT 'measure type, such as speed; its unit is in {{.Table}}_measure_types',
    detector_code String COMMENT 'code of the detector',
    count UInt64 COMMENT 'number of measurements',
    sum Float64 COMMENT 'sum of the values',
    average Float64 COMMENT 'sum / count; to average over several rows, use sum(sum) / sum(count)',
    minimum Float64 COMMENT 'lowest value',
    maximum Float64 COMMENT 'highest value',
    good Bool COMMENT 'whether the detector was not found sick in this hour (UTC); avg(good) is the share of good rows'
)
AS SELECT product_instance, bucket, measure_type_code, detector_code,
    count() AS count, sum(value) AS sum, sum(value) / count() AS average, min(value) AS minimum, max(value) AS maximum,
    {{.Good "product_instance, measure_type_code, detector_code" "bucket"}} AS good
FROM `{{.Database}}`.`{{.Table}}_by_time` FINAL
GROUP BY product_instance, bucket, measure_type_code, detector_code
COMMENT 'One row for each 5 minutes, detector and measure type';

CREATE OR REPLACE VIEW `{{.Database}}`.`{{.Table}}_latest`
(
    product_instance LowCardinality(String) COMMENT 'set of detectors, as the registry names it',
    detector_code String COMMENT 'code of the detector',
    measure_type_code LowCardinality(String) COMMENT 'measure type, such as speed; its unit is in {{.Table}}_measure_types',
    timestamp_from DateTime64(9, 'UTC') COMMENT 'start of the interval',
    timestamp_to DateTime64(9, 'UTC') COMMENT 'end of the interval',
    value Float64 COMMENT 'measured value, in the unit of the measure type',
    quality Nullable(Float64) COMMENT 'reliability, as the integrator states it; NULL if it was not sent',
    batch_id UUID COMMENT 'Batch-Id of the response to the batch',
    batch_index UInt32 COMMENT 'index of the measurement in its batch',
    received_at DateTime64(9, 'UTC') COMMENT 'time of acceptance'
)
AS SELECT product_instance, detector_code, measure_type_code,
    measurement.1 AS timestamp_from, measurement.2 AS timestamp_to, measurement.5 AS value, measurement.6 AS quality,
    measurement.7 AS batch_id, measurement.4 AS batch_index, measurement.3 AS received_at
FROM `{{.Database}}`.`{{.Table}}_last`
ORDER BY product_instance, measure_type_code, detector_code, timestamp_from DESC, timestamp_to DESC, received_at DESC, batch_index DESC
LIMIT 1 BY product_instance, measure_type_code, detector_code
COMMENT 'The latest measurement of each detector and measure type';

CREATE OR REPLACE VIEW `{{.Database}}`.`{{.Table}}_15m`
(
    product_instance LowCardinality(String) COMMENT 'set of detectors, as the registry names it',
    bucket DateTime64(0, 'UTC') COMMENT 'start of the quarter of an hour that contains timestamp_from',
    measure_type_code LowCardinality(String) COMMENT 'measure type, such as speed; its unit is in {{.Table}}_measure_types',
    detector_code String COMMENT 'code of the detector',
    count UInt64 COMMENT 'number of measurements',
    sum Float64 COMMENT 'sum of the values',
    average Float64 COMMENT 'sum / count; to average over several rows, use sum(sum) / sum(count)',
    good Bool COMMENT 'whether the detector was not found sick in this hour (UTC); avg(good) is the share of good rows'
)
AS SELECT product_instance, bucket, measure_type_code, detector_code, count, sum, average,
    {{.Good "product_instance, measure_type_code, detector_code" "bucket"}} AS good
FROM
(
    SELECT product_instance, hour AS bucket, measure_type_code, detector_code,
        count_1 AS count, thousandths_1 / 1000 + other_1 AS sum, sum / count AS average
    FROM `{{.Database}}`.`{{.Table}}_hours` FINAL WHERE count_1 > 0
    UNION ALL
    SELECT product_instance, hour + toIntervalMinute(15) AS bucket, measure_type_code, detector_code,
        count_2 AS count, thousandths_2 / 1000 + other_2 AS sum, sum / count AS average
    FROM `{{.Database}}`.`{{.Table}}_hours` FINAL WHERE count_2 > 0
    UNION ALL
    SELECT product_instance, hour + toIntervalMinute(30) AS bucket, measure_type_code, detector_code,
        count_3 AS count, thousandths_3 / 1000 + other_3 AS sum, sum / count AS average
    FROM `{{.Database}}`.`{{.Table}}_hours` FINAL WHERE count_3 > 0
    UNION ALL
    SELECT product_instance, hour + toIntervalMinute(45) AS bucket, measure_type_code, detector_code,
        count_4 AS count, thousandths_4 / 1000 + other_4 AS sum, sum / count AS average
    FROM `{{.Database}}`.`{{.Table}}_hours` FINAL WHERE count_4 > 0
)
COMMENT 'One row for each quarter of an hour, detector and measure type';

CREATE OR REPLACE VIEW `{{.Database}}`.`{{.Table}}_1h`
(
    product_instance LowCardinality(String) COMMENT 'set of detectors, as the registry names it',
    bucket DateTime64(0, 'UTC') COMMENT 'start of the hour (UTC) that contains timestamp_from',
    measure_type_code LowCardinality(String) COMMENT 'measure type, such as speed; its unit is in {{.Table}}_measure_types',
    detector_code String COMMENT 'code of the detector',
    count UInt64 COMMENT 'number of measurements',
    sum Float64 COMMENT 'sum of the values',
    average Float64 COMMENT 'sum / count; to average over several rows, use sum(sum) / sum(count)',
    minimum Float64 COMMENT 'lowest value',
    maximum Float64 COMMENT 'highest value',
    good Bool COMMENT 'whether the detector was not found sick in this hour (UTC); avg(good) is the share of good rows'
)
AS SELECT product_instance, hour AS bucket, measure_type_code, detector_code,
    count_1 + count_2 + count_3 + count_4 AS count,
    (thousandths_1 + thousandths_2 + thousandths_3 + thousandths_4) / 1000 + other_1 + other_2 + other_3 + other_4 AS sum,
    sum / count AS average, minimum, maximum,
    {{.Good "product_instance, measure_type_code, detector_code" "hour"}} AS good
FROM `{{.Database}}`.`{{.Table}}_hours` FINAL
COMMENT 'One row for each hour, detector and measure type';

CREATE OR REPLACE VIEW `{{.Database}}`.`{{.Table}}_detectors`
(
    product_instance LowCardinality(String) COMMENT 'set of detectors, as the registry names it',
    detector_code String COMMENT 'code of the detector',
    street String COMMENT 'street, empty if the registry does not have it',
    longitude Nullable(Float64) COMMENT 'degrees, WGS 84',
    latitude Nullable(Float64) COMMENT 'degrees, WGS 84',
    attributes Map(LowCardinality(String), String) COMMENT 'all columns of the feed of the registry',
    listed_at DateTime64(3, 'UTC') COMMENT 'last time at which trafficd read the detector from a list'
)
AS SELECT product_instance, detector_code, attributes['street'] AS street,
    toFloat64OrNull(coalesce(nullIf(attributes['longitude'], ''), nullIf(attributes['lon'], ''), attributes['lng'])) AS longitude,
    toFloat64OrNull(coalesce(nullIf(attributes['latitude'], ''), attributes['lat'])) AS latitude,
    attributes, listed_at
FROM `{{.Database}}`.`{{.Table}}_registry` FINAL
COMMENT 'Detectors of the registry, also those of earlier lists';

CREATE OR REPLACE VIEW `{{.Database}}`.`{{.Table}}_measure_types`
(
    measure_type_code String COMMENT 'measure type',
    unit String COMMENT 'unit of the values, such as km/h',
    per_hour Bool COMMENT 'whether the unit ends in /h: such values are averaged, not added up'
)
AS SELECT measure_type_code, unit, endsWith(unit, '/h') AS per_hour
FROM `{{.Database}}`.`{{.Table}}_units` FINAL
COMMENT 'Measure types that the settings name';

CREATE OR REPLACE VIEW `{{.Database}}`.`{{.Table}}_detector_health`
(
    product_instance LowCardinality(String) COMMENT 'set of detectors, as the registry names it',
    detector_code String COMMENT 'code of the detector; empty for a state of many detectors',
    measure_type_code LowCardinality(String) COMMENT 'measure type, such as speed; its unit is in {{.Table}}_measure_types',
    state LowCardinality(String) COMMENT 'test that fails, such as silent or constant',
    first_at DateTime('UTC') COMMENT 'start of the first measurements that fail the test',
    last_at DateTime('UTC') COMMENT 'time of the last check at which the test failed',
    current Bool COMMENT 'whether the test failed at its latest check',
    rule String COMMENT 'rule and its numbers'
)
AS SELECT product_instance, detector_code, measure_type_code, state, first_at, last_at, toBool(last_at >= checked) AS current, rule
FROM `{{.Database}}`.`{{.Table}}_health` FINAL
LEFT JOIN
(
    SELECT product_instance AS instance, measure_type_code AS test, max(last_at) AS checked
    FROM `{{.Database}}`.`{{.Table}}_health` WHERE state = 'checked' GROUP BY instance, test
) AS checks ON instance = product_instance AND test = state
WHERE state != 'checked'
SETTINGS join_use_nulls = 0 -- whatever the reader's profile says
COMMENT 'States of detectors whose measurements mislead, also those that have ended';

CREATE OR REPLACE VIEW `{{.Database}}`.`{{.Table}}_imputed`
(
    product_instance LowCardinality(String) COMMENT 'set of detectors, as the registry names it',
    detector_code String COMMENT 'code of the detector',
    measure_type_code LowCardinality(String) COMMENT 'measure type, such as speed; its unit is in {{.Table}}_measure_types',
    timestamp_from DateTime('UTC') COMMENT 'start of the interval',
    timestamp_to DateTime('UTC') COMMENT 'end of the interval',
    value Float64 COMMENT 'estimated value, in the unit of the measure type',
    method LowCardinality(String) COMMENT 'neighbours: profile of the detector and values of its street; profile: the profile and the values of all detectors'
)
AS SELECT product_instance, detector_code, measure_type_code, timestamp_from, timestamp_to, value, method
FROM `{{.Database}}`.forecaster_imputed FINAL
COMMENT 'Values that the forecaster used in place of those of sick detectors, of the last 28 days';

CREATE OR REPLACE VIEW `{{.Database}}`.`{{.Table}}_freshness`
(
    product_instance LowCardinality(String) COMMENT 'set of detectors, as the registry names it',
    measure_type_code LowCardinality(String) COMMENT 'measure type, such as speed; its unit is in {{.Table}}_measure_types',
    newest DateTime('UTC') COMMENT 'end of the newest interval of any detector',
    last_received DateTime('UTC') COMMENT 'time of acceptance of the last measurement in the newest interval of a detector, also if it was sent again',
    lag Int64 COMMENT 'seconds from newest until now',
    usual_lag Nullable(Float64) COMMENT 'length of an interval plus the usual time from its end to acceptance, in seconds; NULL on the first two days',
    late Bool COMMENT 'whether the lag is over twice the usual one',
    repeated Bool COMMENT 'whether it is late although measurements arrive: the client sends the same ones again'
)
AS SELECT product_instance, measure_type_code, toDateTime(max(measurement.2), 'UTC') AS newest, toDateTime(max(measurement.3), 'UTC') AS last_received,
    dateDiff('second', newest, now()) AS lag, max(u.seconds) AS usual_lag, toBool(ifNull(lag > 2 * usual_lag, false)) AS late,
    toBool(late AND ifNull(dateDiff('second', last_received, now()) <= 2 * usual_lag, false)) AS repeated
FROM `{{.Database}}`.`{{.Table}}_last` AS l
LEFT JOIN
(
    SELECT product_instance, measure_type_code, toNullable(quantileExact(0.5)(newest)) AS seconds
    FROM
    (
        SELECT product_instance, measure_type_code, detector_code, argMax(lag, (day, updated_at)) AS newest FROM `{{.Database}}`.`{{.Table}}_health_usual`
        WHERE lag > 0 GROUP BY product_instance, measure_type_code, detector_code
    )
    GROUP BY product_instance, measure_type_code
) AS u USING (product_instance, measure_type_code)
GROUP BY product_instance, measure_type_code
COMMENT 'One row for each product instance and measure type: how old its newest measurement is, and how old it usually is';

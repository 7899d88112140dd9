-- Views that answer questions about traffic. A speed is a measure type that begins with speed; its flow is the type that begins
-- with flow and ends alike: speed.lane1 and flow.lane1.
CREATE OR REPLACE VIEW `{{.Database}}`.`{{.Table}}_speeds_1h`
(
    product_instance LowCardinality(String) COMMENT 'set of detectors, as the registry names it',
    bucket DateTime64(0, 'UTC') COMMENT 'start of the hour (UTC) that contains timestamp_from',
    measure_type_code String COMMENT 'measure type of the speed',
    detector_code String COMMENT 'code of the detector',
    intervals UInt64 COMMENT 'number of intervals that have a speed and a flow above 0',
    vehicles Float64 COMMENT 'number of vehicles in these intervals',
    average Float64 COMMENT 'mean of the speeds, each interval alike',
    time_mean_speed Float64 COMMENT 'mean of the speeds weighted by vehicles: the mean speed of the vehicles that passed',
    space_mean_speed Float64 COMMENT 'harmonic mean weighted by vehicles, for travel times; an interval at 0 makes it 0',
    good Bool COMMENT 'whether neither the speed nor the flow of the detector was found sick in this hour (UTC)'
)
AS SELECT product_instance, dateTrunc('hour', start) AS bucket, 'speed' || kind AS measure_type_code, detector_code,
    count() AS intervals, sum(counted) AS vehicles, avg(speed) AS average,
    sum(speed * counted) / sum(counted) AS time_mean_speed, sum(counted) / sum(counted / speed) AS space_mean_speed,
    {{.Good "product_instance, 'speed' || kind, detector_code" "bucket"}}
        AND {{.Good "product_instance, 'flow' || kind, detector_code" "bucket"}} AS good
FROM
(
    SELECT product_instance, bucket AS start, timestamp_from, timestamp_to, detector_code,
        replaceRegexpOne(measure_type_code, '^(speed|flow)', '') AS kind,
        anyIf(value, startsWith(measure_type_code, 'speed')) AS speed,
        anyIf(if(measure_type_code IN (SELECT measure_type_code FROM `{{.Database}}`.`{{.Table}}_measure_types` WHERE per_hour),
            value * dateDiff('millisecond', timestamp_from, timestamp_to) / 3600000, value), startsWith(measure_type_code, 'flow')) AS counted,
        countIf(startsWith(measure_type_code, 'speed')) AS speeds
    FROM `{{.Database}}`.`{{.Table}}_by_time` FINAL
    WHERE startsWith(measure_type_code, 'speed') OR startsWith(measure_type_code, 'flow')
    GROUP BY product_instance, start, timestamp_from, timestamp_to, detector_code, kind
    HAVING speeds > 0 AND counted > 0
)
GROUP BY product_instance, bucket, kind, detector_code
COMMENT 'Mean speeds weighted by the number of vehicles, one row for each hour and detector';

-- Its parameters select the rows; the 28 days before from are what it compares with.
CREATE OR REPLACE VIEW `{{.Database}}`.`{{.Table}}_compared` AS
WITH
    toDateTime({from:String}, {zone:String}) AS first,
    toDateTime({to:String}, {zone:String}) AS last,
    hours AS
    (
        SELECT detector_code, toStartOfHour(toTimeZone(bucket, {zone:String})) AS hour, sum(sum) / sum(count) AS speed
        FROM `{{.Database}}`.`{{.Table}}_15m`
        WHERE product_instance = {product_instance:String} AND measure_type_code = {measure_type_code:String}
            AND bucket >= first - INTERVAL 28 DAY AND bucket < last
        GROUP BY detector_code, hour
    ),
    usual AS
    (
        SELECT detector_code, toDayOfWeek(hour) AS weekday, toHour(hour) AS hour_of_day, avg(speed) AS usual_speed, count() AS weeks
        FROM hours WHERE hour < first GROUP BY detector_code, weekday, hour_of_day
    ),
    free AS
    (
        SELECT detector_code, quantileExact(0.85)(speed) AS free_flow_speed, count() AS hours FROM hours WHERE hour < first GROUP BY detector_code
    )
SELECT h.detector_code AS detector_code, h.hour AS hour, h.speed AS speed,
    if(f.hours = 0, NULL, f.free_flow_speed) AS free_flow_speed, h.speed < 0.6 * free_flow_speed AS congested,
    if(u.weeks = 0, NULL, u.usual_speed) AS usual_speed, h.speed - usual_speed AS difference, u.weeks AS weeks,
    {{.Good "{product_instance:String}, {measure_type_code:String}, h.detector_code" "h.hour"}} AS good
FROM hours AS h
LEFT JOIN free AS f ON f.detector_code = h.detector_code
LEFT JOIN usual AS u ON u.detector_code = h.detector_code AND u.weekday = toDayOfWeek(h.hour) AND u.hour_of_day = toHour(h.hour)
WHERE h.hour >= first
COMMENT 'Speed of each hour compared with free flow and with the same hour of the weekday in the 28 days before';

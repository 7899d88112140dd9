-- Views for analysts. They hold no rows, so they are in a file of their own, which is applied again if one was dropped.
CREATE OR REPLACE VIEW `{{.Database}}`.`{{.Table}}_current` AS
SELECT * FROM `{{.Database}}`.`{{.Table}}` FINAL;

CREATE OR REPLACE VIEW `{{.Database}}`.`{{.Table}}_5m` AS
SELECT product_instance, bucket, measure_type_code, detector_code,
    count() AS count, sum(value) AS sum, sum(value) / count() AS average, min(value) AS minimum, max(value) AS maximum
FROM `{{.Database}}`.`{{.Table}}_by_time` FINAL
GROUP BY product_instance, bucket, measure_type_code, detector_code;

CREATE OR REPLACE VIEW `{{.Database}}`.`{{.Table}}_latest` AS
SELECT product_instance, detector_code, measure_type_code,
    measurement.1 AS timestamp_from, measurement.2 AS timestamp_to, measurement.5 AS value, measurement.6 AS quality,
    measurement.7 AS batch_id, measurement.4 AS batch_index, measurement.3 AS received_at
FROM `{{.Database}}`.`{{.Table}}_last`
ORDER BY product_instance, measure_type_code, detector_code, timestamp_from DESC, timestamp_to DESC, received_at DESC, batch_index DESC
LIMIT 1 BY product_instance, measure_type_code, detector_code;

CREATE OR REPLACE VIEW `{{.Database}}`.`{{.Table}}_15m` AS
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
FROM `{{.Database}}`.`{{.Table}}_hours` FINAL WHERE count_4 > 0;

CREATE OR REPLACE VIEW `{{.Database}}`.`{{.Table}}_1h` AS
SELECT product_instance, hour AS bucket, measure_type_code, detector_code,
    count_1 + count_2 + count_3 + count_4 AS count,
    (thousandths_1 + thousandths_2 + thousandths_3 + thousandths_4) / 1000 + other_1 + other_2 + other_3 + other_4 AS sum,
    sum / count AS average, minimum, maximum
FROM `{{.Database}}`.`{{.Table}}_hours` FINAL;

CREATE OR REPLACE VIEW `{{.Database}}`.`{{.Table}}_detectors` AS
SELECT product_instance, detector_code, attributes['street'] AS street,
    toFloat64OrNull(coalesce(nullIf(attributes['longitude'], ''), nullIf(attributes['lon'], ''), attributes['lng'])) AS longitude,
    toFloat64OrNull(coalesce(nullIf(attributes['latitude'], ''), attributes['lat'])) AS latitude,
    attributes, listed_at
FROM `{{.Database}}`.`{{.Table}}_registry` FINAL;

CREATE OR REPLACE VIEW `{{.Database}}`.`{{.Table}}_measure_types` AS
SELECT measure_type_code, unit, endsWith(unit, '/h') AS per_hour
FROM `{{.Database}}`.`{{.Table}}_units` FINAL;

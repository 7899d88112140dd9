-- What analysts read.
CREATE VIEW IF NOT EXISTS `{{.Database}}`.`{{.Table}}_current` AS
SELECT * FROM `{{.Database}}`.`{{.Table}}` FINAL;

CREATE VIEW IF NOT EXISTS `{{.Database}}`.`{{.Table}}_latest` AS
SELECT product_instance, detector_code, measure_type_code,
    latest.1 AS timestamp_from, latest.2 AS timestamp_to, latest.5 AS value, latest.6 AS quality,
    latest.7 AS batch_id, latest.4 AS batch_index, latest.3 AS received_at
FROM
(
    SELECT product_instance, measure_type_code, detector_code, max(measurement) AS latest
    FROM `{{.Database}}`.`{{.Table}}_last`
    GROUP BY product_instance, measure_type_code, detector_code
);

CREATE VIEW IF NOT EXISTS `{{.Database}}`.`{{.Table}}_5m` AS
SELECT product_instance, bucket, measure_type_code, detector_code,
    count() AS count, sum(value) AS sum, sum(value) / count() AS average, min(value) AS minimum, max(value) AS maximum
FROM `{{.Database}}`.`{{.Table}}_by_time` FINAL
GROUP BY product_instance, bucket, measure_type_code, detector_code;

CREATE VIEW IF NOT EXISTS `{{.Database}}`.`{{.Table}}_15m` AS
SELECT product_instance, hour + toIntervalMinute(15 * (quarter - 1)) AS bucket, measure_type_code, detector_code,
    count, sum, sum / count AS average
FROM `{{.Database}}`.`{{.Table}}_hours` FINAL
ARRAY JOIN counts AS count, sums AS sum, arrayEnumerate(counts) AS quarter
WHERE count > 0;

CREATE VIEW IF NOT EXISTS `{{.Database}}`.`{{.Table}}_1h` AS
SELECT product_instance, hour AS bucket, measure_type_code, detector_code,
    arraySum(counts) AS count, arraySum(sums) AS sum, sum / count AS average, minimum, maximum
FROM `{{.Database}}`.`{{.Table}}_hours` FINAL;

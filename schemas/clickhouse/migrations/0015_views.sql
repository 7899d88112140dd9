-- Views for analysts; the other views are in migration 21.
CREATE VIEW IF NOT EXISTS `{{.Database}}`.`{{.Table}}_current` AS
SELECT * FROM `{{.Database}}`.`{{.Table}}` FINAL;

CREATE VIEW IF NOT EXISTS `{{.Database}}`.`{{.Table}}_5m` AS
SELECT product_instance, bucket, measure_type_code, detector_code,
    count() AS count, sum(value) AS sum, sum(value) / count() AS average, min(value) AS minimum, max(value) AS maximum
FROM `{{.Database}}`.`{{.Table}}_by_time` FINAL
GROUP BY product_instance, bucket, measure_type_code, detector_code;

-- The detectors of the registry, for analysts: those of the last list of each product instance, and of earlier lists. In a cluster,
-- every host has all rows.
CREATE TABLE IF NOT EXISTS `{{.Database}}`.`{{.Table}}_registry`
(
    product_instance LowCardinality(String),
    detector_code    String,
    attributes       Map(LowCardinality(String), String),
    listed_at        DateTime64(3, 'UTC')
)
ENGINE = {{.Engine "ReplacingMergeTree" (print .Database "/" .Table "_registry") "{shard}-{replica}" "listed_at"}}
ORDER BY (product_instance, detector_code);

CREATE VIEW IF NOT EXISTS `{{.Database}}`.`{{.Table}}_detectors` AS
SELECT product_instance, detector_code, attributes['street'] AS street,
    toFloat64OrNull(coalesce(nullIf(attributes['longitude'], ''), nullIf(attributes['lon'], ''), attributes['lng'])) AS longitude,
    toFloat64OrNull(coalesce(nullIf(attributes['latitude'], ''), attributes['lat'])) AS latitude,
    attributes, listed_at
FROM `{{.Database}}`.`{{.Table}}_registry` FINAL;

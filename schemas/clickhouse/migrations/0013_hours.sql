-- For each detector, measure type and hour: number and sum of the values in each quarter of the hour, minimum and maximum.
CREATE TABLE IF NOT EXISTS `{{.Database}}`.`{{.Derived "hours"}}`
(
    product_instance  LowCardinality(String),
    hour              DateTime64(0, 'UTC') CODEC(Delta, ZSTD(1)),
    measure_type_code LowCardinality(String),
    detector_code     String CODEC(ZSTD(3, 22)),
    counts            Array(UInt32) CODEC(ZSTD(1)),
    sums              Array(Float64) CODEC(ZSTD(1)),
    minimum           Float64 CODEC(ZSTD(1)),
    maximum           Float64 CODEC(ZSTD(1)),
    computed_at       DateTime64(6, 'UTC') CODEC(Delta, ZSTD(1))
)
ENGINE = {{.Engine "ReplacingMergeTree" (print "{shard}/" .Database "/" (.Derived "hours")) "{replica}" "computed_at"}}
PARTITION BY toYYYYMM(hour)
ORDER BY (product_instance, hour, measure_type_code, detector_code)
SETTINGS
    fsync_after_insert = 1,
    fsync_part_directory = 1;
{{- if .Cluster}}
CREATE OR REPLACE TABLE `{{.Database}}`.`{{.Table}}_hours`
AS `{{.Database}}`.`{{.Derived "hours"}}`
ENGINE = Distributed('{{.Cluster}}', '{{.Database}}', '{{.Derived "hours"}}', {{.ShardingKey}});
{{- end}}

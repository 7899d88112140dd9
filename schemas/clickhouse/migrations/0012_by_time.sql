-- A copy of the archive ordered by time, with the last received row of each measurement. Most measured values have at most
-- three decimals and are stored as integers; value is exact in any case.
CREATE TABLE IF NOT EXISTS `{{.Database}}`.`{{.Derived "by_time"}}`
(
    product_instance  LowCardinality(String),
    bucket            DateTime64(0, 'UTC') CODEC(Delta, ZSTD(1)),
    measure_type_code LowCardinality(String),
    detector_code     String CODEC(ZSTD(3, 22)),
    timestamp_from    DateTime64(9, 'UTC') CODEC(Delta, ZSTD(1)),
    timestamp_to      DateTime64(9, 'UTC') CODEC(Delta, ZSTD(1)),
    thousandths       Int64 CODEC(GCD, Delta, T64('bit'), ZSTD(1)),
    other_value       Float64 CODEC(ZSTD(1)),
    received_at       DateTime64(9, 'UTC') CODEC(Delta, ZSTD(1)),
    value             Float64 ALIAS if(other_value = 0, thousandths / 1000, other_value)
)
ENGINE = {{.Engine "ReplacingMergeTree" (print "{shard}/" .Database "/" (.Derived "by_time")) "{replica}" "received_at"}}
PARTITION BY toYYYYMM(timestamp_from)
ORDER BY (product_instance, bucket, measure_type_code, detector_code, timestamp_from, timestamp_to)
SETTINGS
    min_compress_block_size = 4194304,
    max_compress_block_size = 4194304,
    fsync_after_insert = 1,
    fsync_part_directory = 1;
{{- if .Cluster}}
CREATE OR REPLACE TABLE `{{.Database}}`.`{{.Table}}_by_time`
AS `{{.Database}}`.`{{.Derived "by_time"}}`
ENGINE = Distributed('{{.Cluster}}', '{{.Database}}', '{{.Derived "by_time"}}', {{.ShardingKey}});
{{- end}}

-- The archive (contract 4.2). Times are in nanoseconds, as in the journal, so that nothing is rounded.
CREATE TABLE IF NOT EXISTS `{{.Database}}`.`{{.Local}}`
(
    product_instance  LowCardinality(String),
    detector_code     LowCardinality(String),
    measure_type_code LowCardinality(String),
    timestamp_from    DateTime64(9, 'UTC') CODEC(Delta, ZSTD(1)),
    timestamp_to      DateTime64(9, 'UTC') CODEC(Delta, ZSTD(1)),
    value             Float64 CODEC(ZSTD(1)),
    quality           Nullable(Float64) CODEC(ZSTD(1)),
    batch_id          UUID CODEC(ZSTD(1)),
    batch_index       UInt32 CODEC(ZSTD(1)),
    received_at       DateTime64(9, 'UTC') CODEC(Delta, ZSTD(1)),

    INDEX received_at_range received_at TYPE minmax GRANULARITY 1
)
ENGINE = {{.Engine "ReplacingMergeTree" (print "{shard}/" .Database "/" .Local) "{replica}" "received_at"}}
PARTITION BY toYYYYMM(timestamp_from)
ORDER BY (product_instance, detector_code, measure_type_code, timestamp_from, timestamp_to)
SETTINGS
{{- if .Cluster}}
    replicated_deduplication_window = 10000,
    replicated_deduplication_window_seconds = 604800,
{{- else}}
    non_replicated_deduplication_window = 10000,
{{- end}}
    fsync_after_insert = 1,
    fsync_part_directory = 1;

-- The archive (contract 4.2). Times are in nanoseconds, as in the journal, so that nothing is rounded. doc.go explains the codecs
-- and settings. Acknowledgements rely on old_parts_lifetime, so it is pinned to the servers' default.
CREATE TABLE IF NOT EXISTS `{{.Database}}`.`{{.Local}}`
(
    product_instance  LowCardinality(String) COMMENT 'set of detectors, as the registry names it',
    detector_code     LowCardinality(String) COMMENT 'code of the detector',
    measure_type_code LowCardinality(String) COMMENT 'measure type, such as speed',
    timestamp_from    DateTime64(9, 'UTC') COMMENT 'start of the interval' CODEC(Delta, ZSTD(1)),
    timestamp_to      DateTime64(9, 'UTC') COMMENT 'end of the interval' CODEC(Delta, ZSTD(1)),
    value             Float64 COMMENT 'measured value, in the unit of the measure type' CODEC(ZSTD(6)),
    quality           Nullable(Float64) COMMENT 'reliability, as the integrator states it; NULL if it was not sent' CODEC(ZSTD(6)),
    batch_id          UUID COMMENT 'Batch-Id of the response to the batch' CODEC(ZSTD(1)) SETTINGS (min_compress_block_size = 1048576, max_compress_block_size = 1048576),
    batch_index       UInt32 COMMENT 'index of the measurement in its batch' CODEC(Delta, ZSTD(1)),
    received_at       DateTime64(9, 'UTC') COMMENT 'time of acceptance' CODEC(Delta, ZSTD(1)) SETTINGS (min_compress_block_size = 1048576, max_compress_block_size = 1048576),

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
    fsync_part_directory = 1,
    old_parts_lifetime = 480;
{{- if .Cluster}}
-- For queries and inserts. Distributed tables hold no rows, so they can be replaced.
CREATE OR REPLACE TABLE `{{.Database}}`.`{{.Table}}`
AS `{{.Database}}`.`{{.Local}}`
ENGINE = Distributed('{{.Cluster}}', '{{.Database}}', '{{.Local}}', {{.ShardingKey}});
{{- end}}

-- One row for each block that was delivered to the archive. derived becomes 1 when the tables that are derived from the
-- archive have its rows.
CREATE TABLE IF NOT EXISTS `{{.Database}}`.`{{.Derived "blocks"}}`
(
    first_received_at DateTime64(9, 'UTC'),
    last_received_at  DateTime64(9, 'UTC'),
    months            Array(UInt32),
    derived           UInt8,
    changed_at        DateTime64(6, 'UTC') DEFAULT now64(6, 'UTC')
)
ENGINE = {{.Engine "ReplacingMergeTree" (print "{shard}/" .Database "/" (.Derived "blocks")) "{replica}" "changed_at"}}
ORDER BY (first_received_at, last_received_at, months)
TTL toDateTime(changed_at) + INTERVAL 30 DAY DELETE WHERE derived = 1
SETTINGS
    fsync_after_insert = 1,
    fsync_part_directory = 1,
    old_parts_lifetime = 480;

-- A copy of the archive ordered by time, with the last received row of each measurement. Most measured values have at most
-- three decimals and are stored as integers; value is exact in any case.
CREATE TABLE IF NOT EXISTS `{{.Database}}`.`{{.Derived "by_time"}}`
(
    product_instance  LowCardinality(String),
    bucket            DateTime64(0, 'UTC') CODEC(Delta, ZSTD(1)),
    measure_type_code LowCardinality(String),
    detector_code     String CODEC(ZSTD(3, 22)) SETTINGS (min_compress_block_size = 4194304, max_compress_block_size = 4194304),
    timestamp_from    DateTime64(9, 'UTC') CODEC(Delta, ZSTD(1)),
    timestamp_to      DateTime64(9, 'UTC') CODEC(Delta, ZSTD(1)),
    thousandths       Int64 CODEC(GCD, T64('bit'), ZSTD(1)),
    other_value       Float64 CODEC(ZSTD(1)),
    received_at       DateTime64(9, 'UTC') CODEC(Delta, ZSTD(1)),
    value             Float64 ALIAS if(other_value = 0, thousandths / 1000, other_value)
)
ENGINE = {{.Engine "ReplacingMergeTree" (print "{shard}/" .Database "/" (.Derived "by_time")) "{replica}" "received_at"}}
PARTITION BY toYYYYMM(timestamp_from)
ORDER BY (product_instance, bucket, measure_type_code, detector_code, timestamp_from, timestamp_to)
SETTINGS
    min_compress_block_size = 65536,
    max_compress_block_size = 1048576,
    fsync_after_insert = 1,
    fsync_part_directory = 1,
    old_parts_lifetime = 480;
{{- if .Cluster}}
CREATE OR REPLACE TABLE `{{.Database}}`.`{{.Table}}_by_time`
AS `{{.Database}}`.`{{.Derived "by_time"}}`
ENGINE = Distributed('{{.Cluster}}', '{{.Database}}', '{{.Derived "by_time"}}', {{.ShardingKey}});
{{- end}}

-- For each detector, measure type and hour: number and sum of the values in each quarter of the hour, minimum and maximum. Each
-- quarter has its own columns, so that a range of time is a range of the key. The sum is thousandths / 1000 + other.
CREATE TABLE IF NOT EXISTS `{{.Database}}`.`{{.Derived "hours"}}`
(
    product_instance  LowCardinality(String),
    hour              DateTime64(0, 'UTC') CODEC(Delta, ZSTD(1)),
    measure_type_code LowCardinality(String),
    detector_code     String CODEC(ZSTD(3, 22)) SETTINGS (min_compress_block_size = 1048576, max_compress_block_size = 1048576),
    count_1           UInt32 CODEC(ZSTD(1)),
    count_2           UInt32 CODEC(ZSTD(1)),
    count_3           UInt32 CODEC(ZSTD(1)),
    count_4           UInt32 CODEC(ZSTD(1)),
    thousandths_1     Int64 CODEC(GCD, T64('bit'), ZSTD(1)),
    thousandths_2     Int64 CODEC(GCD, T64('bit'), ZSTD(1)),
    thousandths_3     Int64 CODEC(GCD, T64('bit'), ZSTD(1)),
    thousandths_4     Int64 CODEC(GCD, T64('bit'), ZSTD(1)),
    other_1           Float64 CODEC(ZSTD(1)),
    other_2           Float64 CODEC(ZSTD(1)),
    other_3           Float64 CODEC(ZSTD(1)),
    other_4           Float64 CODEC(ZSTD(1)),
    minimum           Float64 CODEC(ZSTD(1)),
    maximum           Float64 CODEC(ZSTD(1)),
    computed_at       DateTime64(6, 'UTC') CODEC(Delta, ZSTD(1))
)
ENGINE = {{.Engine "ReplacingMergeTree" (print "{shard}/" .Database "/" (.Derived "hours")) "{replica}" "computed_at"}}
PARTITION BY toYYYYMM(hour)
ORDER BY (product_instance, hour, measure_type_code, detector_code)
SETTINGS
    fsync_after_insert = 1,
    fsync_part_directory = 1,
    old_parts_lifetime = 480;
{{- if .Cluster}}
CREATE OR REPLACE TABLE `{{.Database}}`.`{{.Table}}_hours`
AS `{{.Database}}`.`{{.Derived "hours"}}`
ENGINE = Distributed('{{.Cluster}}', '{{.Database}}', '{{.Derived "hours"}}', {{.ShardingKey}});
{{- end}}

-- For each detector and measure type: the row with the latest interval; if there are several, the row that was received last.
CREATE TABLE IF NOT EXISTS `{{.Database}}`.`{{.Derived "last"}}`
(
    product_instance  LowCardinality(String),
    measure_type_code LowCardinality(String),
    detector_code     String,
    measurement       SimpleAggregateFunction(max, Tuple(
        timestamp_from DateTime64(9, 'UTC'), timestamp_to DateTime64(9, 'UTC'),
        received_at DateTime64(9, 'UTC'), batch_index UInt32,
        value Float64, quality Nullable(Float64), batch_id UUID))
)
ENGINE = {{.Engine "AggregatingMergeTree" (print "{shard}/" .Database "/" (.Derived "last")) "{replica}" ""}}
ORDER BY (product_instance, measure_type_code, detector_code)
SETTINGS
    fsync_after_insert = 1,
    fsync_part_directory = 1,
    old_parts_lifetime = 480;
{{- if .Cluster}}
CREATE OR REPLACE TABLE `{{.Database}}`.`{{.Table}}_last`
AS `{{.Database}}`.`{{.Derived "last"}}`
ENGINE = Distributed('{{.Cluster}}', '{{.Database}}', '{{.Derived "last"}}', {{.ShardingKey}});
{{- end}}

-- Rows that the archive already has, after derived tables were dropped, are derived month by month and day by day.
INSERT INTO `{{.Database}}`.`{{.Derived "blocks"}}` (first_received_at, last_received_at, months, derived)
SELECT min(received_at), max(received_at), [toYYYYMM(timestamp_from)], 0
FROM `{{.Database}}`.`{{.Local}}`
GROUP BY toYYYYMM(timestamp_from), toYYYYMMDD(received_at);

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

-- The units of the measure types, as the daemon's settings name them. In a cluster, every host has all rows.
CREATE TABLE IF NOT EXISTS `{{.Database}}`.`{{.Table}}_units`
(
    measure_type_code String,
    unit              String,
    set_at            DateTime64(3, 'UTC') DEFAULT now64(3)
)
ENGINE = {{.Engine "ReplacingMergeTree" (print .Database "/" .Table "_units") "{shard}-{replica}" "set_at"}}
ORDER BY measure_type_code;

-- What became of the batches of three days or more (contract 1.9). A sink adds a row for each part of a batch that it has delivered;
-- without a sink, the batch is durable. In a cluster, every host has all rows.
CREATE TABLE IF NOT EXISTS `{{.Database}}`.`{{.Table}}_receipts`
(
    batch_id      UUID,
    received_at   DateTime64(9, 'UTC'),
    sink          LowCardinality(String),
    first_row     UInt32,
    client        String,
    accepted      UInt32,
    delivered     UInt32,
    dead_lettered UInt32,
    at            DateTime64(3, 'UTC')
)
ENGINE = {{.Engine "ReplacingMergeTree" (print .Database "/" .Table "_receipts") "{shard}-{replica}" "at"}}
PARTITION BY toYYYYMMDD(at)
ORDER BY (batch_id, received_at, sink, first_row)
TTL toDateTime(at) + INTERVAL 3 DAY
SETTINGS ttl_only_drop_parts = 1;

-- What is usual for each detector and measure type on a day, and the states of health that the forecaster's tests have found: one row for
-- each detector, measure type, state and time at which it began. A state "checked" has the time of the last check of the test that
-- measure_type_code names. In a cluster, every host has all rows.
CREATE TABLE IF NOT EXISTS `{{.Database}}`.`{{.Table}}_health_usual`
(
    product_instance  LowCardinality(String),
    measure_type_code LowCardinality(String),
    day               Date,
    detector_code     String,
    days              UInt16,
    per_hour          Float64,
    levels            Array(Float32) CODEC(ZSTD(1)),
    constant          Array(Float32) CODEC(ZSTD(1)),
    lowest            Float64,
    highest           Float64,
    noise             Float64,
    lag               Float64,
    updated_at        DateTime64(3, 'UTC') DEFAULT now64(3)
)
ENGINE = {{.Engine "ReplacingMergeTree" (print .Database "/" .Table "_health_usual") "{shard}-{replica}" "updated_at"}}
PARTITION BY (product_instance, day)
ORDER BY (product_instance, day, measure_type_code, detector_code);

CREATE TABLE IF NOT EXISTS `{{.Database}}`.`{{.Table}}_health`
(
    product_instance  LowCardinality(String),
    state             LowCardinality(String),
    detector_code     String,
    measure_type_code LowCardinality(String),
    first_at          DateTime('UTC'),
    last_at           DateTime('UTC'),
    rule              String CODEC(ZSTD(1))
)
ENGINE = {{.Engine "ReplacingMergeTree" (print .Database "/" .Table "_health") "{shard}-{replica}" "last_at"}}
PARTITION BY toYYYYMM(first_at)
ORDER BY (product_instance, state, detector_code, measure_type_code, first_at);

-- The state of the forecaster. The rows of a day were computed from measurements before that day; in forecaster_values,
-- forecaster_days and forecaster_moments, they include the day. In a cluster, every host has all rows.
CREATE TABLE IF NOT EXISTS `{{.Database}}`.forecaster_values
(
    product_instance  LowCardinality(String),
    measure_type_code LowCardinality(String),
    day               Date,
    detector_code     LowCardinality(String),
    vs                Array(Float64) CODEC(ZSTD(1)),
    ws                Array(Float64) CODEC(ZSTD(1)),
    ts                Array(Float64) CODEC(ZSTD(1)),
    bs                Array(Float64) CODEC(ZSTD(1)),
    updated_at        DateTime64(3, 'UTC') DEFAULT now64(3)
)
ENGINE = {{.Engine "ReplacingMergeTree" (print .Database "/forecaster_values") "{shard}-{replica}" "updated_at"}}
PARTITION BY (product_instance, measure_type_code, day)
ORDER BY detector_code;

CREATE TABLE IF NOT EXISTS `{{.Database}}`.forecaster_days
(
    product_instance  LowCardinality(String),
    measure_type_code LowCardinality(String),
    day               Date,
    detector_code     LowCardinality(String),
    weights           Array(Float64) CODEC(ZSTD(1)),
    sums              Array(Float64) CODEC(ZSTD(1)),
    residual          Float64,
    updated_at        DateTime64(3, 'UTC') DEFAULT now64(3)
)
ENGINE = {{.Engine "ReplacingMergeTree" (print .Database "/forecaster_days") "{shard}-{replica}" "updated_at"}}
PARTITION BY toYYYYMM(day)
ORDER BY (product_instance, measure_type_code, day, detector_code);

CREATE TABLE IF NOT EXISTS `{{.Database}}`.forecaster_moments
(
    product_instance  LowCardinality(String),
    measure_type_code LowCardinality(String),
    day               Date,
    detector_code     LowCardinality(String),
    horizon           UInt16,
    moments           Array(Float64) CODEC(ZSTD(1)),
    low               Float64,
    high              Float64,
    counts            Array(Float64), -- of the errors of the day in each block of it
    misses            Array(Float64), -- of these, outside of the bounds
    updated_at        DateTime64(3, 'UTC') DEFAULT now64(3)
)
ENGINE = {{.Engine "ReplacingMergeTree" (print .Database "/forecaster_moments") "{shard}-{replica}" "updated_at"}}
PARTITION BY (product_instance, measure_type_code, day)
ORDER BY (detector_code, horizon);

CREATE TABLE IF NOT EXISTS `{{.Database}}`.forecaster_profiles
(
    product_instance  LowCardinality(String),
    measure_type_code LowCardinality(String),
    day               Date,
    detector_code     LowCardinality(String),
    profile           Array(Float64) CODEC(ZSTD(1)),
    mean              Float64,
    yesterday         Float64,
    recent            Float64,
    weight            Float64,
    updated_at        DateTime64(3, 'UTC') DEFAULT now64(3)
)
ENGINE = {{.Engine "ReplacingMergeTree" (print .Database "/forecaster_profiles") "{shard}-{replica}" "updated_at"}}
PARTITION BY (product_instance, measure_type_code, day)
ORDER BY detector_code;

CREATE TABLE IF NOT EXISTS `{{.Database}}`.forecaster_weights
(
    product_instance  LowCardinality(String),
    measure_type_code LowCardinality(String),
    day               Date,
    detector_code     LowCardinality(String),
    horizon           UInt16,
    weights           Array(Float64) CODEC(ZSTD(1)),
    low               Float64,
    high              Float64,
    spread            Array(Float64), -- logarithms of the factors of all bounds in the blocks of the day; only without a detector
    updated_at        DateTime64(3, 'UTC') DEFAULT now64(3)
)
ENGINE = {{.Engine "ReplacingMergeTree" (print .Database "/forecaster_weights") "{shard}-{replica}" "updated_at"}}
PARTITION BY (product_instance, measure_type_code, day)
ORDER BY (detector_code, horizon);

-- A row is inserted once the rows of its day are complete in the other tables. interval_seconds is model.interval.
CREATE TABLE IF NOT EXISTS `{{.Database}}`.forecaster_learned
(
    product_instance  LowCardinality(String),
    measure_type_code LowCardinality(String),
    day               Date,
    learned_until     DateTime('UTC'),
    interval_seconds  UInt32,
    updated_at        DateTime64(3, 'UTC') DEFAULT now64(3)
)
ENGINE = {{.Engine "ReplacingMergeTree" (print .Database "/forecaster_learned") "{shard}-{replica}" "updated_at"}}
ORDER BY (product_instance, measure_type_code, day);

-- Values that the forecaster used in place of those of sick detectors. They are no measurements.
CREATE TABLE IF NOT EXISTS `{{.Database}}`.forecaster_imputed
(
    product_instance  LowCardinality(String),
    measure_type_code LowCardinality(String),
    timestamp_from    DateTime('UTC'),
    timestamp_to      DateTime('UTC'),
    detector_code     String,
    value             Float64,
    method            LowCardinality(String),
    updated_at        DateTime64(3, 'UTC') DEFAULT now64(3)
)
ENGINE = {{.Engine "ReplacingMergeTree" (print .Database "/forecaster_imputed") "{shard}-{replica}" "updated_at"}}
PARTITION BY toYYYYMMDD(timestamp_from)
ORDER BY (product_instance, measure_type_code, detector_code, timestamp_from)
TTL toDateTime(updated_at) + INTERVAL 28 DAY
SETTINGS ttl_only_drop_parts = 1;

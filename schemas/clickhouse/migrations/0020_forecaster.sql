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
    updated_at        DateTime64(3, 'UTC') DEFAULT now64(3)
)
ENGINE = {{.Engine "ReplacingMergeTree" (print .Database "/forecaster_weights") "{shard}-{replica}" "updated_at"}}
PARTITION BY (product_instance, measure_type_code, day)
ORDER BY (detector_code, horizon);

-- A row is inserted once the rows of its day are complete in the other tables.
CREATE TABLE IF NOT EXISTS `{{.Database}}`.forecaster_learned
(
    product_instance  LowCardinality(String),
    measure_type_code LowCardinality(String),
    day               Date,
    learned_until     DateTime('UTC'),
    updated_at        DateTime64(3, 'UTC') DEFAULT now64(3)
)
ENGINE = {{.Engine "ReplacingMergeTree" (print .Database "/forecaster_learned") "{shard}-{replica}" "updated_at"}}
ORDER BY (product_instance, measure_type_code, day);

-- Codecs that need less space (see doc.go). Only new parts use them.
ALTER TABLE `{{.Database}}`.`{{.Local}}` MODIFY COLUMN value Float64 CODEC(ZSTD(6)), MODIFY COLUMN quality Nullable(Float64) CODEC(ZSTD(6));
ALTER TABLE `{{.Database}}`.`{{.Local}}` MODIFY COLUMN batch_id MODIFY SETTING min_compress_block_size = 1048576, max_compress_block_size = 1048576;
ALTER TABLE `{{.Database}}`.`{{.Local}}` MODIFY COLUMN received_at MODIFY SETTING min_compress_block_size = 1048576, max_compress_block_size = 1048576;

ALTER TABLE `{{.Database}}`.`{{.Derived "by_time"}}` MODIFY COLUMN thousandths Int64 CODEC(GCD, T64('bit'), ZSTD(1));
ALTER TABLE `{{.Database}}`.`{{.Derived "by_time"}}` MODIFY COLUMN detector_code MODIFY SETTING min_compress_block_size = 4194304, max_compress_block_size = 4194304;
ALTER TABLE `{{.Database}}`.`{{.Derived "by_time"}}` MODIFY SETTING min_compress_block_size = 65536, max_compress_block_size = 1048576;

-- Number and sum of the values in each quarter of the hour, as a column for each quarter in place of the arrays counts and sums, so
-- that a range of time is a range of the key. The sum is thousandths / 1000 + other. Rows of earlier versions have the arrays.
ALTER TABLE `{{.Database}}`.`{{.Derived "hours"}}`
    ADD COLUMN IF NOT EXISTS count_1 UInt32 DEFAULT counts[1] CODEC(ZSTD(1)),
    ADD COLUMN IF NOT EXISTS count_2 UInt32 DEFAULT counts[2] CODEC(ZSTD(1)),
    ADD COLUMN IF NOT EXISTS count_3 UInt32 DEFAULT counts[3] CODEC(ZSTD(1)),
    ADD COLUMN IF NOT EXISTS count_4 UInt32 DEFAULT counts[4] CODEC(ZSTD(1)),
    ADD COLUMN IF NOT EXISTS thousandths_1 Int64 CODEC(GCD, T64('bit'), ZSTD(1)),
    ADD COLUMN IF NOT EXISTS thousandths_2 Int64 CODEC(GCD, T64('bit'), ZSTD(1)),
    ADD COLUMN IF NOT EXISTS thousandths_3 Int64 CODEC(GCD, T64('bit'), ZSTD(1)),
    ADD COLUMN IF NOT EXISTS thousandths_4 Int64 CODEC(GCD, T64('bit'), ZSTD(1)),
    ADD COLUMN IF NOT EXISTS other_1 Float64 DEFAULT sums[1] CODEC(ZSTD(1)),
    ADD COLUMN IF NOT EXISTS other_2 Float64 DEFAULT sums[2] CODEC(ZSTD(1)),
    ADD COLUMN IF NOT EXISTS other_3 Float64 DEFAULT sums[3] CODEC(ZSTD(1)),
    ADD COLUMN IF NOT EXISTS other_4 Float64 DEFAULT sums[4] CODEC(ZSTD(1));
ALTER TABLE `{{.Database}}`.`{{.Derived "hours"}}` MODIFY COLUMN detector_code MODIFY SETTING min_compress_block_size = 1048576, max_compress_block_size = 1048576;
{{- if .Cluster}}
CREATE OR REPLACE TABLE `{{.Database}}`.`{{.Table}}_hours`
AS `{{.Database}}`.`{{.Derived "hours"}}`
ENGINE = Distributed('{{.Cluster}}', '{{.Database}}', '{{.Derived "hours"}}', {{.ShardingKey}});
{{- end}}

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

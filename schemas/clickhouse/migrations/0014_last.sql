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
    fsync_part_directory = 1;
{{- if .Cluster}}
CREATE OR REPLACE TABLE `{{.Database}}`.`{{.Table}}_last`
AS `{{.Database}}`.`{{.Derived "last"}}`
ENGINE = Distributed('{{.Cluster}}', '{{.Database}}', '{{.Derived "last"}}', {{.ShardingKey}});
{{- end}}

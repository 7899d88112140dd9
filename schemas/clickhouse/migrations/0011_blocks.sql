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
    fsync_part_directory = 1;

-- Rows that the archive already has are derived month by month and day by day.
INSERT INTO `{{.Database}}`.`{{.Derived "blocks"}}` (first_received_at, last_received_at, months, derived)
SELECT min(received_at), max(received_at), [toYYYYMM(timestamp_from)], 0
FROM `{{.Database}}`.`{{.Local}}`
GROUP BY toYYYYMM(timestamp_from), toYYYYMMDD(received_at);

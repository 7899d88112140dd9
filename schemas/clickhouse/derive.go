package clickhouse

import (
	"fmt"
	"strings"
	"time"
)

// Block describes the rows of a delivered block by the range of their received_at and the months of
// their timestamp_from, as YYYYMM. Other rows of the archive may match too.
type Block struct {
	First  time.Time `ch:"first_received_at"`
	Last   time.Time `ch:"last_received_at"`
	Months []uint32  `ch:"months"`
}

// Where returns the condition for the rows of the block.
func (b Block) Where() string {
	return fmt.Sprintf("(toYYYYMM(timestamp_from) IN %s AND received_at BETWEEN %s AND %s)",
		monthList(b.Months), nanoseconds(b.First), nanoseconds(b.Last))
}

// DerivedTables contains the names of the tables that the daemon fills from the archive, without
// the prefix that Layout.Derived adds.
var DerivedTables = []string{"blocks", "by_time", "hours", "last"}

// Pending returns a query for the oldest blocks whose rows may be missing from the derived tables.
func (l Layout) Pending(limit int) string {
	return fmt.Sprintf("SELECT first_received_at, last_received_at, months FROM `%s`.`%s` FINAL WHERE derived = 0"+
		" ORDER BY first_received_at LIMIT %d", l.Database, l.Derived("blocks"), limit)
}

// Record returns the statement that records blocks as pending or derived. The statement can be
// repeated.
func (l Layout) Record(derived bool, blocks ...Block) string {
	state, values := 0, make([]string, len(blocks))
	if derived {
		state = 1
	}
	for i, b := range blocks {
		values[i] = fmt.Sprintf("(%s, %s, %s, %d)", nanoseconds(b.First), nanoseconds(b.Last), monthList(b.Months), state)
	}
	return fmt.Sprintf("INSERT INTO `%s`.`%s` (first_received_at, last_received_at, months, derived) VALUES %s",
		l.Database, l.Derived("blocks"), strings.Join(values, ", "))
}

// Derive returns the statements that add the rows of blocks to the derived tables. Execute them in
// this order, with DeriveSettings, once all rows are in the archive. Each can be repeated, even
// concurrently: the tables keep the latest version of a row.
func (l Layout) Derive(blocks ...Block) []string {
	var where []string
	for _, b := range blocks {
		where = append(where, b.Where())
	}
	return l.derive(strings.Join(where, " OR "), "")
}

// derive returns the statements for the rows of the archive that match where. only is an additional
// condition for the rows from which hours are computed; it is empty or ends in AND.
func (l Layout) derive(where, only string) []string {
	statements := make([]string, len(derivations))
	for i, text := range derivations {
		statements[i] = strings.NewReplacer(
			"{archive}", fmt.Sprintf("`%s`.`%s`", l.Database, l.Local()),
			"{by_time}", fmt.Sprintf("`%s`.`%s`", l.Database, l.Derived("by_time")),
			"{hours}", fmt.Sprintf("`%s`.`%s`", l.Database, l.Derived("hours")),
			"{recorded}", fmt.Sprintf("`%s`.`%s`", l.Database, l.Derived("blocks")),
			"{last}", fmt.Sprintf("`%s`.`%s`", l.Database, l.Derived("last")),
			"{blocks}", where,
			"{only}", only,
		).Replace(text)
	}
	return statements
}

// DeriveSettings contains the settings for the statements of Derive. Statements use one thread, so
// that other threads are free for inserts and queries. optimize_on_insert would make by_time three
// times as expensive, and is not needed, because merges and FINAL replace rows with equal keys.
// max_query_size is unlimited, because a statement lists the months of each block. A statement that
// exceeds a limit of the user's settings profile fails: an overflow mode could make it omit rows.
var DeriveSettings = map[string]any{
	"async_insert": 0, "max_threads": 1, "max_insert_threads": 1, "max_partitions_per_insert_block": 0, "insert_deduplicate": 0,
	"optimize_on_insert": 0, "use_query_cache": 0, "final": 0, "limit": 0, "offset": 0, "max_query_size": 0,
	"additional_table_filters": "{}", "additional_result_filter": "",
	"read_overflow_mode": "throw", "read_overflow_mode_leaf": "throw", "timeout_overflow_mode": "throw",
	"group_by_overflow_mode": "throw", "set_overflow_mode": "throw", "distinct_overflow_mode": "throw", "result_overflow_mode": "throw",
}

var derivations = []string{
	`INSERT INTO {last} (product_instance, measure_type_code, detector_code, measurement)
SELECT product_instance, measure_type_code, detector_code,
    max((timestamp_from, timestamp_to, received_at, batch_index, value, quality, batch_id))
FROM {archive} WHERE {blocks}
GROUP BY product_instance, measure_type_code, detector_code`,

	// thousandths / 1000 equals a value with at most three decimals, because both are the double
	// closest to the decimal number. Rows with the same key and received_at are in one part, and
	// keep their order if a single thread reads and writes.
	`INSERT INTO {by_time} (product_instance, bucket, measure_type_code, detector_code, timestamp_from, timestamp_to,
    thousandths, other_value, received_at)
SELECT product_instance, fromUnixTimestamp64Second(intDiv(toUnixTimestamp64Second(timestamp_from), 300) * 300, 'UTC'),
    measure_type_code, detector_code, timestamp_from, timestamp_to,
    if(abs(value) < 1e9, toInt64(round(value * 1000)), 0) AS rounded,
    if(rounded / 1000 = value, 0, value), received_at
FROM {archive} WHERE {blocks}`,

	// All buckets of an hour with a new row are read, so that hours is correct even if rows were
	// replaced. computed_at never decreases, even if the clock is set back: of two rows with the same
	// computed_at, the one that was inserted last is used.
	`INSERT INTO {hours} (product_instance, hour, measure_type_code, detector_code, count_1, count_2, count_3, count_4,
    thousandths_1, thousandths_2, thousandths_3, thousandths_4, other_1, other_2, other_3, other_4, minimum, maximum, computed_at)
SELECT product_instance, hour, measure_type_code, detector_code, n[1], n[2], n[3], n[4],
    t[1], t[2], t[3], t[4], o[1], o[2], o[3], o[4], low, high,
    greatest(now64(6, 'UTC'), (SELECT max(changed_at) FROM {recorded}))
FROM
(
    SELECT product_instance, fromUnixTimestamp64Second(intDiv(toUnixTimestamp64Second(bucket), 3600) * 3600, 'UTC') AS hour,
        measure_type_code, detector_code, min(value) AS low, max(value) AS high, countResample(0, 4, 1)(quarter) AS n,
        sumResample(0, 4, 1)(if(other_value = 0, thousandths, 0), quarter) AS t, sumResample(0, 4, 1)(other_value, quarter) AS o
    FROM
    (
        SELECT product_instance, bucket, measure_type_code, detector_code, thousandths, other_value, value,
            intDiv(toUnixTimestamp64Second(bucket), 900) % 4 AS quarter
        FROM {by_time} FINAL
        WHERE {only}(product_instance, bucket) IN
        (
            SELECT product_instance, fromUnixTimestamp64Second(hour * 3600 + arrayJoin(range(0, 3600, 300)), 'UTC')
            FROM
            (
                SELECT DISTINCT product_instance, intDiv(toUnixTimestamp64Second(timestamp_from), 3600) AS hour
                FROM {archive} WHERE {blocks}
            )
        )
    )
    GROUP BY product_instance, hour, measure_type_code, detector_code
)`,
}

func nanoseconds(t time.Time) string {
	return fmt.Sprintf("fromUnixTimestamp64Nano(%d, 'UTC')", t.UnixNano())
}

// monthList returns months as an SQL array.
func monthList(months []uint32) string { return strings.ReplaceAll(fmt.Sprint(months), " ", ", ") }

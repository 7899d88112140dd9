package clickhouse

import "trafficd/pipeline/metrics"

var (
	rowsInserted  = metrics.NewCounter("trafficd_clickhouse_rows_inserted_total", "Rows whose insert was acknowledged, each counted once.")
	blocksDone    = metrics.NewCounter("trafficd_clickhouse_blocks_total", "Blocks of rows that were delivered.")
	insertSeconds = metrics.NewSeconds("trafficd_clickhouse_insert_seconds", "Time of one acknowledged INSERT, in seconds.")
	lookSeconds   = metrics.NewSeconds("trafficd_clickhouse_lookup_seconds", "Time of one look-up of an in-doubt block, in seconds.")
	rowsVanished  = metrics.NewCounter("trafficd_clickhouse_rows_vanished_total", "Rows that ClickHouse acknowledged but that are not in the table.")

	errorsTotal = counters("trafficd_clickhouse_errors_total", "Failed deliveries of a block, by class of the error.", "class", hints)

	resolvedTotal = counters("trafficd_clickhouse_resolved_total", "Look-ups of in-doubt blocks, by how much of the block was found.", "found",
		map[string]string{foundAll: "", foundSome: "", foundNone: ""})
)

// How much of a block in doubt a look-up finds.
const (
	foundAll  = "all"
	foundSome = "some"
	foundNone = "none"
)

// counters returns a counter for each value of a label.
func counters[L ~string, V any](name, help, label string, values map[L]V) map[L]metrics.Counter {
	vec := metrics.NewCounters(name, help, label)
	set := make(map[L]metrics.Counter, len(values))
	for v := range values {
		set[v] = vec.WithLabelValues(string(v))
	}
	return set
}

package clickhouse

import (
	"fmt"

	"github.com/VictoriaMetrics/metrics"
)

var (
	rowsInserted  = metrics.NewCounter("trafficd_clickhouse_rows_inserted_total") // acknowledged, each row once
	blocksDone    = metrics.NewCounter("trafficd_clickhouse_blocks_total")
	insertSeconds = metrics.NewHistogram("trafficd_clickhouse_insert_seconds") // one acknowledged INSERT
	lookSeconds   = metrics.NewHistogram("trafficd_clickhouse_lookup_seconds") // one look-up of a block in doubt
	rowsVanished  = metrics.NewCounter("trafficd_clickhouse_rows_vanished_total")
	errorsTotal   = counters("trafficd_clickhouse_errors_total", "class", hints)
	resolvedTotal = counters("trafficd_clickhouse_resolved_total", "found", map[string]string{foundAll: "", foundSome: "", foundNone: ""})
)

// How much of a block in doubt a look-up finds.
const (
	foundAll  = "all"
	foundSome = "some"
	foundNone = "none"
)

// counters returns a counter for each value of a label.
func counters[L ~string, V any](name, label string, values map[L]V) map[L]*metrics.Counter {
	set := make(map[L]*metrics.Counter, len(values))
	for v := range values {
		set[v] = metrics.NewCounter(fmt.Sprintf("%s{%s=%q}", name, label, string(v)))
	}
	return set
}

package clickhouse

import (
	"fmt"
	"slices"
	"time"

	"trafficd/pipeline/batch"
)

// planVersion starts every plan. It goes up when the meaning of a plan
// changes; blocks that were planned before are then still recognised.
const planVersion = 1

// cut is how many rows from the start of rows make the next block: at most
// maxRows in at most maxMonths partitions. It is at least 1.
func cut(rows batch.Block, maxRows, maxMonths int) int {
	n := 0
	var seen months
	for _, s := range rows {
		for _, from := range s.Batch.From[s.From:s.To] {
			if n == maxRows || !seen.add(from, maxMonths) {
				return n
			}
			n++
		}
	}
	return n
}

// planOf names a block by what it starts and ends with. A batch id and a row
// never come again, whatever becomes of the journal's folder, and the rows
// between them are fixed by the journal, so the name is the content. It is the
// plan and the deduplication token in one.
func planOf(rows batch.Block) string {
	first, last := rows[0], rows[len(rows)-1]
	return fmt.Sprintf("%d/%d/%s.%d-%s.%d", planVersion, rows.Rows(), first.ID, first.From, last.ID, last.To-1)
}

// months collects calendar months as the server's toYYYYMM numbers them.
type months struct {
	list       []int // distinct
	start, end int64 // of the month that was met last
}

// add takes the month of a time (nanoseconds, 1970–2261) and tells false if it
// would be one more than limit.
func (m *months) add(at int64, limit int) bool {
	if at >= m.start && at < m.end {
		return true
	}
	year, month, _ := time.Unix(0, at).UTC().Date()
	number := year*100 + int(month)
	if !slices.Contains(m.list, number) {
		if len(m.list) == limit {
			return false
		}
		m.list = append(m.list, number)
	}
	m.start = time.Date(year, month, 1, 0, 0, 0, 0, time.UTC).UnixNano()
	m.end = time.Date(year, month+1, 1, 0, 0, 0, 0, time.UTC).UnixNano()
	return true
}

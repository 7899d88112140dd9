package clickhouse

import (
	"fmt"
	"slices"
	"time"

	"trafficd/pipeline/batch"
)

// planVersion is the first part of every plan. It is increased when the meaning of a plan changes;
// blocks planned before are still recognised then.
const planVersion = 1

// cut returns how many of the first rows form the next block: at most maxRows in at most maxMonths
// partitions, and at least 1.
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

// planOf returns the plan of a block, which is its deduplication token as well: its first and its
// last row. A batch id and row are never reused, even if the journal's folder is lost, and the
// journal determines the rows between them, so that the plan identifies the content.
func planOf(rows batch.Block) string {
	first, last := rows[0], rows[len(rows)-1]
	return fmt.Sprintf("%d/%d/%s.%d-%s.%d", planVersion, rows.Rows(), first.ID, first.From, last.ID, last.To-1)
}

// months collects calendar months as the server's toYYYYMM numbers them.
type months struct {
	list       []int // distinct
	start, end int64 // of the month added last
}

// add adds the month of a time (nanoseconds, 1970–2261). It returns false if that would exceed the
// limit.
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

package clickhouse

import (
	"fmt"
	"strings"
	"time"

	"trafficd/pipeline/batch"
)

// planVersion is the first part of every plan. Increase it when the meaning of a plan changes.
const planVersion = 2

// planOf returns the plan of a block (see doc.go), which is also its deduplication token. The first
// and last rows suffice, because the journal determines those between them.
func planOf(rows batch.Block) string {
	first, last := rows[0], rows[len(rows)-1]
	return fmt.Sprintf("%d/%d/%s.%d@%d-%s.%d@%d", planVersion, rows.Rows(),
		first.ID, first.From, first.ReceivedAt, last.ID, last.To-1, last.ReceivedAt)
}

// suspectMark separates the token of a plan from its suspect range, the sink's state after a
// rejection. The rows of such a plan that are before the position in the range may already be in
// the table, although their block was not delivered.
const suspectMark = "/suspect-before/"

func suspectBefore(p batch.Position) string {
	return fmt.Sprintf("%s%d.%d", suspectMark, p.Frame, p.Row)
}

// parseSuspect returns the position in a suspect range, or the zero position if text is not a
// suspect range.
func parseSuspect(text string) (p batch.Position) {
	if _, err := fmt.Sscanf(text, suspectMark+"%d.%d", &p.Frame, &p.Row); err != nil {
		return batch.Position{}
	}
	return p
}

// cutPlan splits a plan into its token and its suspect range, which is empty if there is none.
func cutPlan(plan string) (token, suspect string) {
	token, _, _ = strings.Cut(plan, suspectMark)
	return token, plan[len(token):]
}

// months numbers the months of a block in the order of their first rows.
type months struct {
	list  []uint32       // in the format of ClickHouse's toYYYYMM
	index map[uint32]int // month → index in list

	// The month of the last call of indexOf. Most rows are in the same month as the previous row.
	start, end int64 // in nanoseconds
	last       int   // index
}

func newMonths(rows batch.Block) *months {
	m := &months{index: map[uint32]int{}}
	for _, s := range rows {
		for _, from := range s.Batch.From[s.From:s.To] {
			m.indexOf(from)
		}
	}
	return m
}

// indexOf returns the index in m.list of the month that contains at, a Unix time in nanoseconds. It
// appends the month if it is new.
func (m *months) indexOf(at int64) int {
	if at >= m.start && at < m.end {
		return m.last
	}
	year, month, _ := time.Unix(0, at).UTC().Date()
	number := uint32(year*100 + int(month))
	index, known := m.index[number]
	if !known {
		index = len(m.list)
		m.index[number] = index
		m.list = append(m.list, number)
	}
	m.start = time.Date(year, month, 1, 0, 0, 0, 0, time.UTC).UnixNano()
	m.end = time.Date(year, month+1, 1, 0, 0, 0, 0, time.UTC).UnixNano()
	m.last = index
	return index
}

// groups divides some or all rows of the block into groups of at most maxMonths months, one for
// each INSERT. It keeps the order of the rows; groups may be empty. The group of a month depends
// only on the block, so that an INSERT has the same token when it is repeated with only some of its
// rows.
func (m *months) groups(rows batch.Block) []batch.Block {
	n := max((len(m.list)+maxMonths-1)/maxMonths, min((len(m.list)+9)/10, parallelInserts))
	groups := make([]batch.Block, n)
	for _, s := range rows {
		for row := s.From; row < s.To; row++ {
			appendRow(&groups[m.indexOf(s.Batch.From[row])%n], s, row)
		}
	}
	return groups
}

// appendRow appends a row of s. It extends the last span if the row follows it.
func appendRow(rows *batch.Block, s batch.Span, row int) {
	if end := len(*rows) - 1; end >= 0 && (*rows)[end].Batch == s.Batch && (*rows)[end].To == row {
		(*rows)[end].To++
		return
	}
	s.From, s.To = row, row+1
	*rows = append(*rows, s)
}

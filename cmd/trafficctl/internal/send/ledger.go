package send

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"sync"

	"trafficd/cmd/trafficctl/internal/measurement"
)

// Tally counts the outcomes so far.
type Tally struct {
	Accepted int64            `json:"accepted"`
	Rejected int64            `json:"rejected"`
	Batches  int64            `json:"batches"` // answered with 207
	Retries  int64            `json:"retries"`
	Replayed int64            `json:"replayed"` // batches whose first answer was lost
	BadRows  int64            `json:"bad_rows"` // unreadable rows that were skipped
	Unknown  int64            `json:"unknown"`  // items sent without an answer
	Codes    map[string]int64 `json:"codes,omitempty"`
	// Examples holds the first rejection in the input for each code.
	Examples map[string]Example `json:"-"`
	// Resume is set when sending stopped early: all rows before it are acknowledged. 0: all rows are.
	Resume int64 `json:"resume_row,omitempty"`
}

// Example is one rejected item.
type Example struct {
	Place measurement.Place
	Error ItemError
}

// ledger keeps the tally and writes the rejected items. It is safe for concurrent use.
type ledger struct {
	mu       sync.Mutex
	tally    Tally
	rejected io.Writer // may be nil
	line     []byte
	resume   int64 // the lowest row that is not acknowledged
}

func newLedger(rejected io.Writer) *ledger {
	return &ledger{
		rejected: rejected,
		tally:    Tally{Codes: map[string]int64{}, Examples: map[string]Example{}},
		resume:   math.MaxInt64,
	}
}

// acknowledged records the answer to a batch.
func (l *ledger) acknowledged(b *batch, a *answer) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tally.Batches++
	l.tally.Accepted += int64(a.Accepted)
	l.tally.Rejected += int64(a.Rejected)
	if a.replayed {
		l.tally.Replayed++
	}
	for _, r := range a.Rejections {
		place := b.places[r.Index]
		if first, ok := l.tally.Examples[r.Error.ErrorCode]; !ok || place.Row < first.Place.Row {
			l.tally.Examples[r.Error.ErrorCode] = Example{Place: place, Error: r.Error}
		}
		l.tally.Codes[r.Error.ErrorCode]++
	}
	if l.rejected == nil || len(a.Rejections) == 0 {
		return nil
	}
	l.line = l.line[:0]
	for _, r := range a.Rejections {
		l.line = appendRejected(l.line, b, a.batchID, r)
	}
	// One write per batch: what the tally counts is in the file even if the program is killed afterwards.
	if _, err := l.rejected.Write(l.line); err != nil {
		return fmt.Errorf("cannot write rejected items: %w", err)
	}
	return nil
}

// appendRejected appends one line of a file of rejected items.
func appendRejected(dst []byte, b *batch, batchID string, r rejection) []byte {
	reason, _ := json.Marshal(r.Error) // three strings: cannot fail
	id, _ := json.Marshal(batchID)
	place := b.places[r.Index]
	dst = append(append(dst, `{"item":`...), oneLine(b.item(r.Index))...)
	dst = fmt.Appendf(dst, `,"index":%d,"error":%s,"batchId":%s,"row":%d`, r.Index, reason, id, place.Row)
	if place.Line > 0 {
		dst = fmt.Appendf(dst, `,"line":%d`, place.Line)
	}
	return append(dst, "}\n"...)
}

// oneLine removes the line breaks of an item.
func oneLine(item []byte) []byte {
	if !bytes.ContainsAny(item, "\r\n") {
		return item
	}
	var flat bytes.Buffer
	_ = json.Compact(&flat, item) // an item is valid JSON by contract
	return flat.Bytes()
}

// lost records a batch that is given up. sent reports whether it may have arrived.
func (l *ledger) lost(b *batch, sent bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.resume = min(l.resume, b.firstRow())
	if sent {
		l.tally.Unknown += int64(b.len())
	}
}

func (l *ledger) retried() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tally.Retries++
}

// unread records that the input was given up before a row.
func (l *ledger) unread(row int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.resume = min(l.resume, row)
}

func (l *ledger) badRow() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tally.BadRows++
	return l.tally.BadRows
}

func (l *ledger) snapshot() Tally {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.tally
	t.Codes, t.Examples = maps.Clone(t.Codes), maps.Clone(t.Examples)
	if l.resume != math.MaxInt64 {
		t.Resume = l.resume
	}
	return t
}

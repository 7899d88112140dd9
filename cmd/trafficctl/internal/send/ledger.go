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

// Tally is what has become of the items so far.
type Tally struct {
	Accepted int64            `json:"accepted"`
	Rejected int64            `json:"rejected"`
	Batches  int64            `json:"batches"` // answered with 207
	Retries  int64            `json:"retries"`
	Replayed int64            `json:"replayed"` // batches whose first answer had been lost
	BadRows  int64            `json:"bad_rows"` // rows that cannot be read, passed over
	Unknown  int64            `json:"unknown"`  // items sent, but without an answer
	Codes    map[string]int64 `json:"codes,omitempty"`
	// Examples holds, for each code, the rejection that stands first in the input.
	Examples map[string]Example `json:"-"`
	// Resume is set when the sending ended early: all items of the rows before
	// it are acknowledged. 0: everything is.
	Resume int64 `json:"resume_row,omitempty"`
}

// Example is one rejected item.
type Example struct {
	Place measurement.Place
	Error ItemError
}

// ledger keeps the tally and writes down the rejected items. It is safe for
// concurrent use.
type ledger struct {
	mu       sync.Mutex
	tally    Tally
	rejected io.Writer // nil: not wanted
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

// acknowledged books the answer to a batch.
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
		l.count(r.Error, b.places[r.Index])
	}
	return l.write(b, a)
}

func (l *ledger) count(e ItemError, place measurement.Place) {
	if first, known := l.tally.Examples[e.ErrorCode]; !known || place.Row < first.Place.Row {
		l.tally.Examples[e.ErrorCode] = Example{Place: place, Error: e}
	}
	l.tally.Codes[e.ErrorCode]++
}

// write appends the batch's rejected items to the file, in one piece: what the
// tally counts is also there when the program is killed afterwards.
func (l *ledger) write(b *batch, a *answer) error {
	if l.rejected == nil || len(a.Rejections) == 0 {
		return nil
	}
	l.line = l.line[:0]
	for _, r := range a.Rejections {
		l.line = appendRejected(l.line, b, a.batchID, r)
	}
	if _, err := l.rejected.Write(l.line); err != nil {
		return fmt.Errorf("cannot write rejected items: %w", err)
	}
	return nil
}

// appendRejected appends one line of a file of rejected items.
func appendRejected(dst []byte, b *batch, batchID string, r rejection) []byte {
	reason, _ := json.Marshal(r.Error) // three strings: it cannot fail
	id, _ := json.Marshal(batchID)
	place := b.places[r.Index]
	dst = append(append(dst, `{"item":`...), oneLine(b.item(r.Index))...)
	dst = fmt.Appendf(dst, `,"index":%d,"error":%s,"batchId":%s,"row":%d`, r.Index, reason, id, place.Row)
	if place.Line > 0 {
		dst = fmt.Appendf(dst, `,"line":%d`, place.Line)
	}
	return append(dst, "}\n"...)
}

// oneLine takes the line breaks out of an item that was written over several.
func oneLine(item []byte) []byte {
	if !bytes.ContainsAny(item, "\r\n") {
		return item
	}
	var flat bytes.Buffer
	_ = json.Compact(&flat, item) // an item is valid JSON by contract
	return flat.Bytes()
}

// lost books a batch that is given up; sent tells whether it may have arrived.
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

// unread books that the input was given up before a row.
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

// Package ledger records the responses that the clients of a run received: which measurements were
// accepted, with their batch ID and index, and which responses were unexpected.
package ledger

import (
	"fmt"
	"math"
	"sync"
	"time"
)

// Item is a measurement, identified by Detector and From. Seq numbers the items of a detector in
// the order in which they are sent; it is not part of the measurement.
type Item struct {
	Detector string
	Seq      int64
	Type     string
	From, To int64 // Unix nanoseconds
	Value    float64
	Quality  float64 // NaN = none
}

// Key identifies an item in a store, even if its other fields were altered.
type Key struct {
	Detector string
	From     int64
}

// Key returns the item's key.
func (i Item) Key() Key { return Key{i.Detector, i.From} }

// String returns all fields, for messages.
func (i Item) String() string {
	at := func(ns int64) string { return time.Unix(0, ns).UTC().Format(time.RFC3339Nano) }
	return fmt.Sprintf("%s #%d %s %s–%s %v quality %v", i.Detector, i.Seq, i.Type, at(i.From), at(i.To), i.Value, i.Quality)
}

// Same reports whether the measurements are equal. Floats are compared bit by bit, except for NaN.
func (i Item) Same(o Item) bool {
	return i.Detector == o.Detector && i.Type == o.Type && i.From == o.From && i.To == o.To &&
		same(i.Value, o.Value) && same(i.Quality, o.Quality)
}

func same(a, b float64) bool {
	return math.Float64bits(a) == math.Float64bits(b) || math.IsNaN(a) && math.IsNaN(b)
}

// Accepted is an item that a 207 confirmed, and its position in the batch.
type Accepted struct {
	Item
	Batch string // Batch-Id
	Index int64
	At    time.Time // when the client received the 207
}

// Ledger collects the records of all clients. It is safe for concurrent use.
type Ledger struct {
	mu         sync.Mutex
	accepted   []Accepted
	unexpected []string
	tally      Tally
}

// Tally counts the clients' batches, attempts and requests.
type Tally struct {
	Batches   int // with a 207
	Rejected  int // items rejected as expected
	Failed    int // attempts without a 207
	Replays   int // batches sent again after their 207
	GaveUp    int // attempts that the client cancelled early
	Requests  int // an attempt may consist of several concurrent requests
	Responses int // requests with a 207
}

// Add applies change to the tally.
func (l *Ledger) Add(change func(*Tally)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change(&l.tally)
}

// Accept records the items of a batch after its 207, and sets their At.
func (l *Ledger) Accept(items []Accepted) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	for i := range items {
		items[i].At = now
	}
	l.accepted = append(l.accepted, items...)
}

// Latest returns an item of the batch that was accepted last.
func (l *Ledger) Latest() (item Accepted, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.accepted) == 0 {
		return Accepted{}, false
	}
	return l.accepted[len(l.accepted)-1], true
}

// AddUnexpected records an unexpected response or exit.
func (l *Ledger) AddUnexpected(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unexpected = append(l.unexpected, fmt.Sprintf(format, args...))
}

// Read returns everything recorded. The ledger must not be written to afterwards.
func (l *Ledger) Read() (accepted []Accepted, unexpected []string, tally Tally) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.accepted, l.unexpected, l.tally
}

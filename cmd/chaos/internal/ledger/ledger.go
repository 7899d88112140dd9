// Package ledger holds what a run's clients know: which measurements were
// accepted, under which batch id and index, and what was wrong with an answer.
package ledger

import (
	"fmt"
	"math"
	"strconv"
	"sync"
	"time"
)

// Item is a measurement that no other one of a run is equal to. Seq rises
// within a detector in the order of sending; Detector and From together name
// the item, so that it is known again whatever else was changed on its way.
type Item struct {
	Detector string
	Seq      int64
	Type     string
	From, To int64 // Unix nanoseconds
	Value    float64
	Quality  float64 // NaN: none
}

// Name is how an item is known again in a store.
type Name struct {
	Detector string
	From     int64
}

// Name gives the item's name.
func (i Item) Name() Name { return Name{i.Detector, i.From} }

// String gives all fields, for messages.
func (i Item) String() string {
	return fmt.Sprintf("%s #%d %s %s–%s %s quality %s", i.Detector, i.Seq, i.Type, instant(i.From), instant(i.To), number(i.Value), number(i.Quality))
}

func instant(ns int64) string { return time.Unix(0, ns).UTC().Format(time.RFC3339Nano) }

// number tells all float64 apart, zeros of both signs too.
func number(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

// Same compares all fields to the bit.
func (i Item) Same(o Item) bool {
	return i.Detector == o.Detector && i.Type == o.Type && i.From == o.From && i.To == o.To && same(i.Value, o.Value) && same(i.Quality, o.Quality)
}

func same(a, b float64) bool {
	return math.Float64bits(a) == math.Float64bits(b) || math.IsNaN(a) && math.IsNaN(b)
}

// Accepted is an item that a 207 promised, and where that answer put it.
type Accepted struct {
	Item
	Batch string // Batch-Id
	Index int
}

// Ledger is filled by several clients at a time.
type Ledger struct {
	mu       sync.Mutex
	accepted []Accepted
	wrong    []string
	tally    Tally
}

// Tally counts what the clients went through.
type Tally struct {
	Batches  int // answered 207
	Rejected int // items that were rejected, each for its reason
	Resent   int // attempts after one without a 207
	Replays  int // batches sent again after their 207, and answered as before
	GaveUp   int // attempts that the client itself called off
}

// Add changes the tally.
func (l *Ledger) Add(change func(*Tally)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change(&l.tally)
}

// Accept notes the items of a batch that was answered 207.
func (l *Ledger) Accept(items []Accepted) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.accepted = append(l.accepted, items...)
}

// Wrong notes an answer, or an end, that must not be.
func (l *Ledger) Wrong(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wrong = append(l.wrong, fmt.Sprintf(format, args...))
}

// Read gives everything, when nobody writes any more.
func (l *Ledger) Read() (accepted []Accepted, wrong []string, tally Tally) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.accepted, l.wrong, l.tally
}

// Package judge compares the accepted measurements with the contents of the stores, and the served
// forecasts with the published ones.
package judge

import (
	"cmp"
	"fmt"
	"slices"

	"trafficd/cmd/dev/chaos/internal/ledger"
)

// Arrival is a row or a record in a store.
type Arrival struct {
	ledger.Accepted
	Received int64  // received_at: Unix nanoseconds in the archive, milliseconds in the topic
	Position string // position in the store, for messages
	Defect   string // what else is wrong, such as the key; empty = nothing
}

// Verdict is the result for one store.
type Verdict struct {
	Store      string
	Arrived    int
	Missing    int // accepted but not in the store
	Duplicated int // more than once in the store
	Reordered  int // stored after a later item of the same detector
	Altered    int // never accepted, or has a wrong field, batch ID, index or receive time, or a Defect

	First    ledger.Accepted // the item that is missing or duplicated with the earliest 207; zero if there is none
	Examples []string        // up to five of each kind
}

// Faults returns the total number of faults.
func (v *Verdict) Faults() int { return v.Missing + v.Duplicated + v.Reordered + v.Altered }

// String returns the verdict's line in the report.
func (v *Verdict) String() string {
	return fmt.Sprintf("%s: arrived %d missing %d duplicated %d reordered %d altered %d",
		v.Store, v.Arrived, v.Missing, v.Duplicated, v.Reordered, v.Altered)
}

const maxExamples = 5

func (v *Verdict) note(count *int, format string, args ...any) {
	if *count++; *count <= maxExamples {
		v.Examples = append(v.Examples, v.Store+": "+fmt.Sprintf(format, args...))
	}
}

// lost counts an item as missing or duplicated.
func (v *Verdict) lost(count *int, item ledger.Accepted, format string, args ...any) {
	if v.First.At.IsZero() || item.At.Before(v.First.At) {
		v.First = item
	}
	v.note(count, format, args...)
}

// Compare judges one store. The arrivals must be in the order of the store; for the topic, that is
// by partition and offset.
func Compare(store string, accepted []ledger.Accepted, arrivals []Arrival) *Verdict {
	v := &Verdict{Store: store, Arrived: len(arrivals)}
	wanted := make(map[ledger.Key]ledger.Accepted, len(accepted))
	for _, a := range accepted {
		wanted[a.Key()] = a
	}
	first := make(map[ledger.Key]Arrival, len(accepted))
	newest := map[string]Arrival{} // keyed by detector
	for _, got := range arrivals {
		want, known := wanted[got.Key()]
		earlier, again := first[got.Key()]
		switch {
		case !known:
			v.note(&v.Altered, "never accepted: %v, batch %s index %d, at %s", got.Item, got.Batch, got.Index, got.Position)
			continue
		case again:
			v.lost(&v.Duplicated, want, "%v, batch %s index %d, at %s and at %s (batch %s)",
				want.Item, want.Batch, want.Index, earlier.Position, got.Position, got.Batch)
			continue
		}
		got.Seq = want.Seq
		first[got.Key()] = got
		switch {
		case !want.Same(got.Item):
			v.note(&v.Altered, "sent %v, batch %s index %d; arrived %v at %s", want.Item, want.Batch, want.Index, got.Item, got.Position)
		case want.Batch != got.Batch || want.Index != got.Index:
			v.note(&v.Altered, "%v was accepted as batch %s index %d and arrived as batch %s index %d at %s",
				want.Item, want.Batch, want.Index, got.Batch, got.Index, got.Position)
		case got.Defect != "":
			v.note(&v.Altered, "%v, batch %s index %d, at %s: %s", want.Item, want.Batch, want.Index, got.Position, got.Defect)
		}
		// A detector's items must be in sending order, and their receive times must not decrease.
		if last, ok := newest[got.Detector]; ok && (got.Seq < last.Seq || got.Received < last.Received) {
			v.note(&v.Reordered, "%s #%d at %s (received %d) is after #%d at %s (received %d)",
				got.Detector, got.Seq, got.Position, got.Received, last.Seq, last.Position, last.Received)
			continue
		}
		newest[got.Detector] = got
	}
	for _, a := range accepted {
		if _, ok := first[a.Key()]; !ok {
			v.lost(&v.Missing, a, "%v, batch %s index %d", a.Item, a.Batch, a.Index)
		}
	}
	return v
}

// All judges the topic and each server of the archive. Each must have every accepted measurement.
func All(accepted []ledger.Accepted, topic []Arrival, servers [][]Arrival) []*Verdict {
	all := []*Verdict{Compare("topic", accepted, topic)}
	for i, rows := range servers {
		agree(all[0], rows, topic)
		all = append(all, archive(fmt.Sprint("archive ", i+1), accepted, rows))
	}
	return all
}

// agree compares the record times of the topic with received_at in a server's rows, truncated to
// milliseconds. It notes each difference as Altered in v, the topic's verdict.
func agree(v *Verdict, rows, topic []Arrival) {
	received := make(map[ledger.Key]int64, len(rows))
	for _, a := range rows {
		received[a.Key()] = a.Received
	}
	for _, r := range topic {
		if at, both := received[r.Key()]; both && at/1e6 != r.Received {
			v.note(&v.Altered, "%v at %s has the time %d ms, but the archive has received_at %d ns", r.Item, r.Position, r.Received, at)
		}
	}
}

// archive judges the rows of one of the archive's servers. It sorts them by received_at, which the
// items of a batch share, and then by Seq.
func archive(store string, accepted []ledger.Accepted, rows []Arrival) *Verdict {
	seqs := make(map[ledger.Key]int64, len(accepted))
	for _, a := range accepted {
		seqs[a.Key()] = a.Seq
	}
	slices.SortStableFunc(rows, func(a, b Arrival) int {
		return cmp.Or(cmp.Compare(a.Received, b.Received), cmp.Compare(seqs[a.Key()], seqs[b.Key()]))
	})
	return Compare(store, accepted, rows)
}

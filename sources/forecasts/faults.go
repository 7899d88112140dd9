package forecasts

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"
)

// Fault is one thing that was wrong with a record.
type Fault struct {
	Position string    `json:"position"` // partition and offset, line, place in the array, or row
	Skipped  bool      `json:"skipped"`  // the whole record; else a part was left out or put right
	Error    string    `json:"error"`
	At       time.Time `json:"at"`
}

const (
	keptFaults    = 20
	maxFaultBytes = 512
	logEvery      = time.Minute
)

// faults counts what is wrong with records, keeps the latest, and logs one at
// most every minute: a feed that has gone bad must not fill the log.
type faults struct {
	log zerolog.Logger

	mu       sync.Mutex
	skips    uint64
	remarks  uint64
	latest   []Fault
	nextLog  time.Time
	unlogged int
}

// restart forgets everything: the content is read anew from its start.
func (f *faults) restart() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.skips, f.remarks, f.latest = 0, 0, nil
}

// skip reports a record that is not taken.
func (f *faults) skip(position string, err error) {
	recordsSkipped.Inc()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.skips++
	f.add(Fault{Position: position, Skipped: true, Error: err.Error()})
}

// remark reports what was wrong with a record that is taken.
func (f *faults) remark(position string, r Remarks) {
	if r.Count == 0 {
		return
	}
	remarksTotal.Add(r.Count)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.remarks += uint64(r.Count)
	f.add(Fault{Position: position, Error: r.First.Error()})
}

func (f *faults) add(fault Fault) {
	fault.At = time.Now()
	fault.Error = strings.ToValidUTF8(fault.Error[:min(len(fault.Error), maxFaultBytes)], "")
	if len(f.latest) == keptFaults {
		f.latest = slices.Delete(f.latest, 0, 1)
	}
	f.latest = append(f.latest, fault)
	if fault.At.Before(f.nextLog) {
		f.unlogged++
		return
	}
	f.log.Warn().Str("position", fault.Position).Bool("skipped", fault.Skipped).Str("fault", fault.Error).
		Int("not_logged_before", f.unlogged).Msg("bad forecast record")
	f.nextLog, f.unlogged = fault.At.Add(logEvery), 0
}

func (f *faults) report() (skips, remarks uint64, latest []Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.skips, f.remarks, slices.Clone(f.latest)
}

package forecasts

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"
)

// Fault is a defect in a record.
type Fault struct {
	Position string    `json:"position"` // partition and offset, line, array element, or row
	Skipped  bool      `json:"skipped"`  // true: the whole record was skipped; false: a part of it was dropped or corrected
	Error    string    `json:"error"`
	At       time.Time `json:"at"`
}

const (
	maxFaults     = 20
	maxFaultBytes = 512
	logInterval   = time.Minute
)

// faults counts defects in records and keeps the latest ones. It logs at most one per minute, and
// always the first record that is out of range.
type faults struct {
	log zerolog.Logger

	mu         sync.Mutex
	skips      uint64
	remarks    uint64
	latest     []Fault
	outOfRange bool // a record was skipped because of ErrOutOfRange
	nextLog    time.Time
	unlogged   int // faults since the last one that was logged
}

// attempt calls use, which processes one record, and returns its error. A panic becomes an error
// too, so that one record that reveals a defect of this program stops neither the feed nor the
// daemon, which would read it again after each restart.
func attempt(use func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			panics.Inc()
			err = fmt.Errorf("cannot process the record, because of a defect in trafficd: panic: %v", r)
		}
	}()
	return use()
}

// reset discards all faults and their counts, before content is read from its beginning.
func (f *faults) reset() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.skips, f.remarks, f.latest, f.outOfRange = 0, 0, nil, false
}

func (f *faults) skip(position string, err error) {
	recordsSkipped.Inc()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.skips++
	if errors.Is(err, ErrOutOfRange) {
		outOfRange.Inc()
		if !f.outOfRange {
			f.outOfRange, f.nextLog = true, time.Time{} // the first one is always logged
		}
	}
	f.add(Fault{Position: position, Skipped: true, Error: err.Error()})
}

// addRemarks counts the defects in a record that is not skipped, and adds the first one as a fault.
func (f *faults) addRemarks(position string, r Remarks) {
	if r.Count == 0 {
		return
	}
	remarksTotal.Add(float64(r.Count))
	f.mu.Lock()
	defer f.mu.Unlock()
	f.remarks += uint64(r.Count)
	f.add(Fault{Position: position, Error: r.First.Error()})
}

// add keeps a fault, and logs it unless another one was logged less than a minute ago. The caller
// must hold f.mu.
func (f *faults) add(fault Fault) {
	fault.At = time.Now()
	fault.Error = strings.ToValidUTF8(fault.Error[:min(len(fault.Error), maxFaultBytes)], "")
	if len(f.latest) == maxFaults {
		f.latest = slices.Delete(f.latest, 0, 1)
	}
	f.latest = append(f.latest, fault)
	if fault.At.Before(f.nextLog) {
		f.unlogged++
		return
	}
	f.log.Warn().Str("position", fault.Position).Bool("skipped", fault.Skipped).Str("fault", fault.Error).
		Int("not_logged_before", f.unlogged).Msg("bad forecast record")
	f.nextLog, f.unlogged = fault.At.Add(logInterval), 0
}

// report returns the counts and the latest faults since the last reset.
func (f *faults) report() (skips, remarks uint64, latest []Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.skips, f.remarks, slices.Clone(f.latest)
}

package registry

import (
	"errors"
	"time"

	"trafficd/sources/internal/watch"
)

// Status is the state of a feed. Error is empty if the last check succeeded; while Detectors is 0,
// its product instance cannot be served.
type Status struct {
	ProductInstance string  `json:"product_instance"`
	Kind            string  `json:"kind"`            // file, http or clickhouse
	Detectors       int     `json:"detectors"`       // in the list in use; 0: none yet
	LeftOut         int     `json:"left_out"`        // entries of that list that are empty or too long for a code
	AgeSeconds      float64 `json:"age_seconds"`     // since the feed last confirmed the list in use, or since Start
	Error           string  `json:"error,omitempty"` // of the last check
	Pending         bool    `json:"-"`               // the first list has not been read, or its file was just written
}

func (f *feed) begin(now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.confirmed, f.err = now, errNotYet
}

// inherit takes over the list of a feed that has ended.
func (f *feed) inherit(before *feed) {
	f.current.Store(before.current.Load())
	f.mark, f.leftOut, f.confirmed, f.err = before.mark, before.leftOut, before.confirmed, before.err
}

func (f *feed) status(now time.Time) Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := Status{ProductInstance: f.instance, Kind: f.kind, LeftOut: f.leftOut}
	if set := f.current.Load(); set != nil {
		s.Detectors = set.Len()
	}
	if !f.confirmed.IsZero() {
		s.AgeSeconds = now.Sub(f.confirmed).Seconds()
	}
	s.Pending = f.err == errNotYet || errors.Is(f.err, watch.ErrUnsettled)
	if f.err != nil {
		s.Error = f.err.Error()
	}
	return s
}

// record stores the outcome of a check and reports whether it differs from the last one: only then
// it is logged.
func (f *feed) record(err error, now time.Time) (changed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	before := f.err
	f.err = err
	if err == nil {
		f.confirmed = now
		return before != nil
	}
	return before == nil || before.Error() != err.Error()
}

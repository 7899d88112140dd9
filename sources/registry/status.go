package registry

import "time"

// Status says how a feed is. A feed is well when Error is empty; as long as
// Detectors is 0 its product instance cannot be served.
type Status struct {
	ProductInstance string  `json:"product_instance"`
	Kind            string  `json:"kind"`            // file, http or clickhouse
	Detectors       int     `json:"detectors"`       // in the list that is in use; 0: there is none yet
	LeftOut         int     `json:"left_out"`        // entries of that list that are empty or too long to be a code
	AgeSeconds      float64 `json:"age_seconds"`     // since the feed last confirmed the list in use; since Start, if it never did
	Error           string  `json:"error,omitempty"` // of the last check; empty when that went well
}

// condition is what a feed remembers of its checks.
type condition struct {
	leftOut   int
	confirmed time.Time
	err       error
}

func (f *feed) begin(now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.condition.confirmed, f.condition.err = now, errNotYet
}

func (f *feed) status(now time.Time) Status {
	f.mu.Lock()
	c := f.condition
	f.mu.Unlock()
	s := Status{ProductInstance: f.instance, Kind: f.kind, LeftOut: c.leftOut}
	if set := f.current.Load(); set != nil {
		s.Detectors = set.Len()
	}
	if !c.confirmed.IsZero() {
		s.AgeSeconds = now.Sub(c.confirmed).Seconds()
	}
	if c.err != nil {
		s.Error = c.err.Error()
	}
	return s
}

// record keeps the outcome of a check and tells whether it is another one than
// last time: only then it is worth a line in the log.
func (f *feed) record(err error, now time.Time) (changed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	before := f.condition.err
	f.condition.err = err
	if err == nil {
		f.condition.confirmed = now
		return before != nil
	}
	return before == nil || before.Error() != err.Error()
}

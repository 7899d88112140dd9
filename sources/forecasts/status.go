package forecasts

import "time"

// Status describes the feed. Without a feed it is the zero value.
type Status struct {
	Feed       string  `json:"feed"`             // kafka, file or clickhouse
	Published  bool    `json:"published"`        // a first layer was published
	AgeSeconds float64 `json:"age_seconds"`      // of the data; before the first layer, since Start
	Error      string  `json:"error,omitempty"`  // of the last check
	Skipped    uint64  `json:"skipped"`          // records of the topic since Start, or records of the last content read
	Remarks    uint64  `json:"remarks"`          // parts dropped or corrected, likewise
	Faults     []Fault `json:"faults,omitempty"` // the latest skipped records and remarks, in order
}

// condition is the result of the checks.
type condition struct {
	published bool
	confirmed time.Time
	err       error
	logged    time.Time // when err, or one before it, was logged; zero if the last check succeeded
}

// Status returns the state of the feed, for readiness.
func (f *Forecasts) Status() Status {
	if f.feed == nil {
		return Status{}
	}
	f.mu.Lock()
	c := f.condition
	f.mu.Unlock()
	s := Status{Feed: f.kind, Published: c.published}
	s.Skipped, s.Remarks, s.Faults = f.faults.report()
	if !c.confirmed.IsZero() {
		s.AgeSeconds = max(0, time.Since(c.confirmed).Seconds())
	}
	if c.err != nil {
		s.Error = c.err.Error()
	}
	return s
}

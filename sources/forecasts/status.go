package forecasts

import "time"

// Status says how the feed is. It is well when Error is empty; without a feed
// it is empty as a whole.
type Status struct {
	Feed       string  `json:"feed"`             // kafka, file or clickhouse
	Published  bool    `json:"published"`        // a first layer was published
	AgeSeconds float64 `json:"age_seconds"`      // since the feed confirmed its data; since Start, if it never did
	Error      string  `json:"error,omitempty"`  // of the last check; empty when that went well
	Skipped    uint64  `json:"skipped"`          // records of the topic since Start, or of the content read last
	Remarks    uint64  `json:"remarks"`          // parts left out or put right, likewise
	Faults     []Fault `json:"faults,omitempty"` // the latest of both, the last one at the end
}

// condition is what is remembered of the checks.
type condition struct {
	published bool
	confirmed time.Time
	err       error
}

// Status describes the feed for readiness. The caller owns it.
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

func (f *Forecasts) begin(now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.condition = condition{confirmed: now, err: errNotYet}
}

// well tells whether it was not before: only then it is worth a line in the log.
func (f *Forecasts) well(confirmed time.Time) (changed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	changed = f.condition.err != nil
	f.condition = condition{published: true, confirmed: confirmed}
	return changed
}

// failed tells whether the reason is another one than last time.
func (f *Forecasts) failed(err error) (changed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	before := f.condition.err
	f.condition.err = err
	return before == nil || before.Error() != err.Error()
}

// unsettled is worth a word only as long as there is no layer.
func (f *Forecasts) unsettled(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.condition.published {
		f.condition.err = err
	}
}

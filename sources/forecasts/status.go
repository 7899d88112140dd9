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
	told      time.Time // when the log was told of err, or of one before it
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

// failed tells whether it is worth a line in the log: the first failure is, and
// from then on another reason, but one a minute at most, since each poll begins with
// another partition.
func (f *Forecasts) failed(err error, now time.Time) (worthy bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := &f.condition
	worthy = c.told.IsZero() || c.err.Error() != err.Error() && now.Sub(c.told) >= logEvery
	if c.err = err; worthy {
		c.told = now
	}
	return worthy
}

// unsettled is worth a word only as long as there is no layer.
func (f *Forecasts) unsettled(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.condition.published {
		f.condition.err = err
	}
}

package layers

import "time"

// Status says how the layer is.
type Status struct {
	Published  bool      `json:"published"`          // there is a layer
	Streets    int       `json:"streets"`            // in it
	LeftOut    int       `json:"left_out,omitempty"` // forecasts over max_streets since the feed last gave its whole content
	AgeSeconds float64   `json:"age_seconds"`        // since the feed last confirmed it; 0 before the first time
	Stale      bool      `json:"stale"`              // the age is over stale_after
	Refuses    bool      `json:"refuses,omitempty"`  // it is stale and not served
	Builds     uint64    `json:"builds"`
	Built      time.Time `json:"built,omitzero"`
	Reference  time.Time `json:"reference,omitzero"` // the minute that the layer is for
	Error      string    `json:"error,omitempty"`    // the last forecast that could not be taken
}

// Status gives the state of the layer at now, for readiness and metrics.
func (l *Layer) Status(now time.Time) Status {
	var s Status
	if current := l.current.Load(); current != nil {
		age := l.age(now)
		s.Published, s.Streets, s.LeftOut = true, current.streets, current.leftOut
		s.Builds, s.Built = current.number, current.built.UTC()
		s.Reference = time.UnixMicro(int64(current.ref)).UTC()
		s.AgeSeconds, s.Stale = age.Seconds(), age > l.cfg.StaleAfter
		s.Refuses = s.Stale && l.cfg.Stale == staleRefuse
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.trouble != nil {
		s.Error = l.trouble.Error()
	}
	return s
}

// age is how long ago the feed confirmed its data.
func (l *Layer) age(now time.Time) time.Duration {
	return max(0, now.Sub(time.UnixMicro(l.confirmed.Load())))
}

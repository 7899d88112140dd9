package layers

import "time"

// Status describes the layer.
type Status struct {
	Published  bool      `json:"published"`          // a layer exists
	Streets    int       `json:"streets"`            // in the layer
	LeftOut    int       `json:"left_out,omitempty"` // forecasts over max_streets since the feed last replaced everything
	AgeSeconds float64   `json:"age_seconds"`        // since the feed last confirmed its data
	Stale      bool      `json:"stale"`              // the age is over stale_after
	Refuses    bool      `json:"refuses,omitempty"`  // it is stale and requests get 503
	Builds     uint64    `json:"builds"`
	Built      time.Time `json:"built,omitzero"`
	Reference  time.Time `json:"reference,omitzero"` // the layer's reference time
	Error      string    `json:"error,omitempty"`    // why the last refused forecast cannot be used
}

// Status returns the state of the layer at now, for readiness and metrics.
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
	if l.refused != nil {
		s.Error = l.refused.Error()
	}
	return s
}

// age returns the time since the feed last confirmed its data.
func (l *Layer) age(now time.Time) time.Duration {
	return max(0, now.Sub(time.UnixMicro(l.confirmed.Load())))
}

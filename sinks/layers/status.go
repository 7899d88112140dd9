package layers

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Status describes the layer.
type Status struct {
	Published  bool      `json:"published"`              // a layer exists
	Streets    int       `json:"streets"`                // number of streets in the layer
	Unlocated  int       `json:"unlocated,omitempty"`    // of these, the number whose openLRcode is empty or cannot be decoded
	LeftOut    int       `json:"left_out,omitempty"`     // forecasts omitted because of max_streets since the feed last replaced everything
	AgeSeconds float64   `json:"age_seconds"`            // age of the newest data
	Covered    time.Time `json:"covered_until,omitzero"` // the end of the last period; absent without streets
	Stale      bool      `json:"stale"`                  // clients should not rely on the layer
	Reason     string    `json:"reason,omitempty"`       // why the layer is stale
	Refuses    bool      `json:"refuses,omitempty"`      // the layer is stale, and requests receive a 503
	Builds     uint64    `json:"builds"`
	Built      time.Time `json:"built,omitzero"`
	Reference  time.Time `json:"reference,omitzero"` // the layer's reference time
	Error      string    `json:"error,omitempty"`    // why the last rejected forecast is invalid
}

// Status returns the state of the layer at now, for the readiness check and metrics.
func (l *Layer) Status(now time.Time) Status {
	var s Status
	if current := l.current.Load(); current != nil {
		s.Published, s.Streets, s.LeftOut = true, current.streets, current.leftOut
		s.Unlocated = current.unlocated
		s.Builds, s.Built = current.number, current.built.UTC()
		s.Reference = current.ref.time()
		s.AgeSeconds = l.age(now).Seconds()
		if current.covered > 0 {
			s.Covered = current.covered.time()
		}
		reasons := l.staleReasons(current, now)
		s.Stale, s.Reason = len(reasons) > 0, strings.Join(reasons, "; ")
		s.Refuses = s.Stale && l.cfg.Stale == staleRefuse
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.rejected != nil {
		s.Error = l.rejected.Error()
	}
	return s
}

// staleReasons returns the reasons why clients should not rely on the snapshot (contract 2).
func (l *Layer) staleReasons(s *snapshot, now time.Time) (reasons []string) {
	horizon := 0
	if len(l.cfg.Horizons) > 0 {
		horizon = slices.Min(l.cfg.Horizons)
	}
	switch {
	case s.streets == 0:
		reasons = append(reasons, "no street has a current or future forecast")
	case s.covered <= s.ref+atHorizon(horizon).horizon:
		reasons = append(reasons, fmt.Sprintf("the last forecast ends at %s, before the first horizon", s.until))
	}
	if age := l.age(now); age > l.cfg.StaleAfter {
		reasons = append(reasons, fmt.Sprintf("the newest data is %v old", age.Truncate(time.Minute)))
	}
	return reasons
}

func (l *Layer) age(now time.Time) time.Duration {
	return max(0, now.Sub(time.UnixMicro(l.dataTime.Load())))
}

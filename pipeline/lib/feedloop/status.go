package feedloop

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"trafficd/pipeline/lib/metrics"
	"trafficd/pipeline/lib/watch"
)

// Status records the outcome of the checks of one content. Its methods may be called concurrently.
type Status struct {
	name    string
	results *Results
	log     zerolog.Logger

	mu     sync.Mutex
	state  State
	logged string    // text of the last error logged
	at     time.Time // when it was logged; zero after a success
}

// State is the state of content.
type State struct {
	InUse     bool      // content is in use
	Confirmed time.Time // last successful check; the time of NewStatus before
	Err       error     // error of the last check; ErrNotRead before the first one
}

// ErrNotRead is the error before the first check.
var ErrNotRead = errors.New("has not been loaded yet")

// Results counts the checks by their outcome.
type Results struct {
	Used, Unchanged, Unsettled, Refused, Failed metrics.Counter
}

// NewResults registers a metric with the label result. used is its value for content that was put
// into use.
func NewResults(name, help, used string) *Results {
	help += ", by result: " + used + ", unchanged, unsettled (still being written), refused (not plausible) or failed."
	c := metrics.NewCounters(name, help, "result")
	return &Results{
		Used: c.WithLabelValues(used), Unchanged: c.WithLabelValues("unchanged"), Unsettled: c.WithLabelValues("unsettled"),
		Refused: c.WithLabelValues("refused"), Failed: c.WithLabelValues("failed"),
	}
}

// NewStatus returns the status of content that has not been read. name is its name in the log,
// such as "the forecast layer".
func NewStatus(name string, results *Results, log zerolog.Logger) *Status {
	return &Status{name: name, results: results, log: log, state: State{Confirmed: time.Now(), Err: fmt.Errorf("%s %w", name, ErrNotRead)}}
}

// Get returns the current state.
func (s *Status) Get() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state
}

// Set replaces the state, by that of content from elsewhere.
func (s *Status) Set(state State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state = state
}

// Conclude counts, logs and records the outcome of a check. A feed may fail for hours with errors
// that alternate, or that contain a different port each time, so an error is logged only if it
// differs from the last one, and at most once a minute.
func (s *Status) Conclude(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err == nil:
		s.results.Used.Inc()
	case errors.Is(err, watch.ErrUnchanged):
		s.results.Unchanged.Inc()
	case errors.Is(err, watch.ErrUnsettled):
		s.results.Unsettled.Inc()
		if !s.state.InUse {
			s.state.Err = err
		}
		return
	default:
		refused, before := errors.As(err, new(*Refused)), errors.As(s.state.Err, new(*Refused))
		if refused {
			s.results.Refused.Inc()
		} else {
			s.results.Failed.Inc()
		}
		s.state.Err = err
		if now, text := time.Now(), err.Error(); s.at.IsZero() || text != s.logged && (refused != before || now.Sub(s.at) >= time.Minute) {
			s.logged, s.at = text, now
			kept := "; the last good content stays in use"
			if !s.state.InUse {
				kept = "; there is none yet"
			}
			s.log.Warn().Err(err).Msg("cannot update " + s.name + kept)
		}
		return
	}
	if s.state.Err != nil {
		s.log.Info().Msg("loaded " + s.name)
	}
	s.state = State{InUse: true, Confirmed: time.Now()}
	s.at = time.Time{}
}

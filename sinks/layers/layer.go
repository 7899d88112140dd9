package layers

import (
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"trafficd/schemas/contract"
	pb "trafficd/schemas/proto/trafficd/v1"
)

// Layer is the street forecast layer. A feed changes it through Put, Remove,
// Replace, Publish and Confirm; clients read it through Before and Serve. All
// methods may be used by many goroutines at once.
type Layer struct {
	cfg    Config
	log    zerolog.Logger
	scopes map[string]int // of ?horizon=, as an index into a zoneLayer; 0 is the whole layer

	current   atomic.Pointer[snapshot] // nil: no layer yet
	confirmed atomic.Int64             // the feed's last word, as an instant; 0: none

	mu      sync.Mutex
	open    changes // put, not published
	ready   changes // published, not built
	due     bool    // something was published at all
	trouble error   // the last forecast that could not be taken

	building sync.Mutex // before mu
	builder  *builder

	wake chan struct{} // of capacity 1: a build is wanted
	stop chan struct{}
	done chan struct{}
}

// New makes a layer without forecasts. cfg must be valid.
func New(cfg Config, log zerolog.Logger) *Layer {
	l := &Layer{
		cfg: cfg, log: log, scopes: map[string]int{}, builder: newBuilder(cfg),
		wake: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{}),
	}
	for i, minutes := range cfg.Horizons {
		l.scopes[strconv.Itoa(minutes)] = i + 1
	}
	observed.Store(l)
	return l
}

// Put sets the forecast of a street, in place of an earlier one. f is the layer's from now on.
func (l *Layer) Put(f *pb.StreetForecast) {
	s, err := newStreet(f)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.refuse(err)
		return
	}
	l.open.put(s)
}

// Remove takes a street out (a tombstone).
func (l *Layer) Remove(street, fromnode int32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open.set(key{street, fromnode}, nil)
}

// Replace makes these all the streets there are. Of two forecasts of a street the later
// one counts. The messages are the layer's from now on.
func (l *Layer) Replace(all []*pb.StreetForecast) {
	whole := changes{replace: true}
	var last error
	refused := 0
	for _, f := range all {
		s, err := newStreet(f)
		if err != nil {
			refused, last = refused+1, err
			continue
		}
		whole.put(s)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open = whole
	if last != nil {
		streetsRefused.Add(refused - 1)
		l.refuse(last)
	}
}

// refuse notes a forecast that cannot be taken: what was known of the street stays.
func (l *Layer) refuse(err error) {
	streetsRefused.Inc()
	if l.trouble == nil {
		l.log.Error().Err(err).Msg("a forecast is left out; readiness names the latest, a metric counts them")
	}
	l.trouble = err
}

// Publish makes everything that was put so far visible with the next build.
// confirmed is when the feed knew it to be right, which may be before an earlier content was.
func (l *Layer) Publish(confirmed time.Time) {
	l.mu.Lock()
	l.ready.follow(l.open)
	l.open = changes{}
	l.due = true
	l.mu.Unlock()
	l.confirmed.Store(int64(instantOf(confirmed)))
	select {
	case l.wake <- struct{}{}:
	default: // a build is to come anyway
	}
}

// Confirm says that at this time the feed still held for right what it published last.
func (l *Layer) Confirm(at time.Time) {
	for next := int64(instantOf(at)); ; {
		now := l.confirmed.Load()
		if next <= now || l.confirmed.CompareAndSwap(now, next) {
			return
		}
	}
}

// Prepare makes the layer in the time zones of these clients, and returns when it is
// served: for the keyring, before it puts new keys into use (contract 2).
func (l *Layer) Prepare(clients []*contract.Client) {
	var zones []string
	for _, c := range clients {
		if zone := c.Zone.String(); c.May(contract.RightForecast) && !slices.Contains(zones, zone) {
			zones = append(zones, zone)
		}
	}
	l.building.Lock()
	defer l.building.Unlock()
	now := time.Now()
	l.builder.ask(zones, now)
	if s := l.builder.extend(now); s != nil {
		l.show(s)
	}
}

// Start begins to build, on a goroutine of its own, until Stop.
func (l *Layer) Start() {
	go l.run() // Stop ends it and waits
}

// Stop ends the building; a build under way is finished. The layer is served on.
func (l *Layer) Stop() {
	close(l.stop)
	<-l.done
}

// run builds when something was published and when the minute turns; builds
// begin at least BuildInterval apart.
func (l *Layer) run() {
	defer close(l.done)
	minute := time.NewTimer(untilMinute(time.Now()))
	defer minute.Stop()
	for {
		select {
		case <-l.stop:
			return
		case <-l.wake:
		case <-minute.C:
		}
		now := time.Now()
		l.build(now)
		rest := time.NewTimer(l.cfg.BuildInterval - time.Since(now))
		select {
		case <-l.stop:
			rest.Stop()
			return
		case <-rest.C:
		}
		minute.Reset(untilNext(now))
	}
}

// untilMinute is how long it is to the minute's turn.
func untilMinute(now time.Time) time.Duration {
	return now.Truncate(time.Minute).Add(time.Minute).Sub(now)
}

// untilNext is how long it is to the turn of the minute that built was in: nothing, if
// it passed since.
func untilNext(built time.Time) time.Duration {
	return max(0, time.Until(built.Round(0).Truncate(time.Minute).Add(time.Minute)))
}

// build brings the layer up to now. Before the first Publish there is none.
func (l *Layer) build(now time.Time) {
	l.building.Lock()
	defer l.building.Unlock()
	published, due := l.take()
	if !due {
		return
	}
	l.show(l.builder.update(published, now))
	builds.Inc()
	buildSeconds.UpdateDuration(now)
}

// take gives what was published since the last build.
func (l *Layer) take() (published changes, due bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	published, l.ready = l.ready, changes{}
	return published, l.due
}

func (l *Layer) show(s *snapshot) {
	if l.current.Swap(s) == nil {
		l.log.Info().Int("streets", s.streets).Msg("the first forecast layer is served")
	}
	streets.Set(float64(s.streets))
	streetsLeftOut.Set(float64(s.leftOut))
	bodyBytes.Set(float64(s.size()))
}

package layers

import (
	"math"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"trafficd/pipeline/metrics"
	"trafficd/pipeline/turns"
	"trafficd/schemas/contract"
	pb "trafficd/schemas/proto/trafficd/v1"
)

// Layer is the street forecast layer. A feed changes it through Put, Remove, Clear, Publish and
// Confirm; clients read it through Admit and Handle. All methods are safe for concurrent use.
type Layer struct {
	cfg    Config
	log    zerolog.Logger
	scopes map[string]int // value of ?horizon= → index in builder.scopes; 0 is the whole layer

	current  atomic.Pointer[snapshot] // nil before the first layer
	dataTime atomic.Int64             // time of the newest data, as an instant

	mu       sync.Mutex
	open     changes // not published yet
	ready    changes // published, not built yet
	due      bool    // Publish has been called
	rejected error   // why the last rejected forecast is invalid

	building sync.Mutex // guards builder; acquired before mu
	builder  *builder
	history  history
	waiters  waiters
	turns    *turns.Limiter // for requests whose response is made for them
	unread   *unread

	wake     chan struct{} // capacity 1: a build is due
	draining chan struct{} // closed by Drain
	stop     chan struct{}
	done     chan struct{}
}

// New returns a layer without forecasts. cfg must be valid.
func New(cfg Config, log zerolog.Logger) *Layer {
	slots := runtime.GOMAXPROCS(0)
	l := &Layer{
		turns: turns.New(slots, max(1, slots-1), math.MaxInt), unread: newUnread(),
		cfg: cfg, log: log, scopes: map[string]int{}, builder: newBuilder(cfg),
		history: history{versions: map[uint64]version{}}, waiters: waiters{count: map[string]int{}},
		wake: make(chan struct{}, 1), draining: make(chan struct{}), stop: make(chan struct{}), done: make(chan struct{}),
	}
	for i, minutes := range cfg.Horizons {
		l.scopes[strconv.Itoa(minutes)] = i + 1
	}
	observed.Store(l)
	return l
}

// Put sets the forecast of a street and takes ownership of f. If f is invalid, the error is counted
// and, the first time, logged; the street keeps its earlier forecast, unless Clear has removed it.
func (l *Layer) Put(f *pb.StreetForecast) {
	s, err := newStreet(f)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil {
		l.open.set(s.id, s)
		return
	}
	streetsRejected.Inc()
	if l.rejected == nil {
		l.log.Error().Err(err).Msg("rejected an invalid forecast; further ones are only counted, and the readiness check shows the last one")
	}
	l.rejected = err
}

// Remove removes a street.
func (l *Layer) Remove(street, fromnode int32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open.set(key{street, fromnode}, nil)
}

// Clear removes all streets, including those put since the last Publish.
func (l *Layer) Clear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open = changes{replace: true}
}

// Publish includes all updates so far in the next build. dataTime is the time of the newest data;
// it may be earlier than in a previous call.
func (l *Layer) Publish(dataTime time.Time) {
	l.mu.Lock()
	l.ready.merge(l.open)
	l.open = changes{}
	l.due = true
	l.dataTime.Store(int64(instantOf(dataTime)))
	l.mu.Unlock()
	select {
	case l.wake <- struct{}{}:
	default: // a build is already due
	}
}

// Confirm records the time of data that changed nothing. It ignores earlier times.
func (l *Layer) Confirm(dataTime time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dataTime.Store(max(l.dataTime.Load(), int64(instantOf(dataTime))))
}

// Prepare builds the layer in the time zones of these clients, and returns when it is being served.
// It must be called before the clients' keys are activated (contract 2).
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
	l.builder.setZones(zones, now)
	if s := l.current.Load(); s != nil {
		l.show(l.builder.build(s.ref, now), now)
	}
}

// Start starts building in the background.
func (l *Layer) Start() { go l.run() }

// Drain ends all waits for a change, and makes later requests wait only briefly.
func (l *Layer) Drain() { close(l.draining) }

// Stop stops building and waits for a build in progress. The last layer remains available.
func (l *Layer) Stop() {
	close(l.stop)
	<-l.done
}

// lead is how long before the start of each minute the layer for that minute is prepared.
const lead = 20 * time.Second

// run builds the layer after each Publish and, after some preparation, at the start of each minute.
// Builds start at least BuildInterval apart.
func (l *Layer) run() {
	defer close(l.done)
	left := untilNextMinute(time.Now())
	minute, ahead := time.NewTimer(left), time.NewTimer(left-lead)
	defer minute.Stop()
	defer ahead.Stop()
	for {
		select {
		case <-l.stop:
			return
		case <-ahead.C:
			l.building.Lock()
			l.builder.prepareNext(time.Now())
			l.building.Unlock()
			continue
		case <-l.wake:
		case <-minute.C:
		}
		now := time.Now()
		l.build(now)
		pause := time.NewTimer(l.cfg.BuildInterval - time.Since(now))
		select {
		case <-l.stop:
			pause.Stop()
			return
		case <-pause.C:
		}
		left := untilNextMinute(now)
		minute.Reset(left)
		ahead.Reset(left - lead)
	}
}

// untilNextMinute returns the time from now until the end of the minute that contains t, by the
// wall clock, or 0 if that minute has ended.
func untilNextMinute(t time.Time) time.Duration {
	return max(0, time.Until(t.Round(0).Truncate(time.Minute).Add(time.Minute)))
}

// build builds the layer for now with all published updates. It does nothing before the first
// Publish.
func (l *Layer) build(now time.Time) {
	l.building.Lock()
	defer l.building.Unlock()
	l.mu.Lock()
	published, due := l.ready, l.due
	l.ready = changes{}
	l.mu.Unlock()
	if !due {
		return
	}
	l.show(l.builder.update(published, now), now)
	builds.Inc()
	metrics.Since(buildSeconds, now)
	if len(published.streets) > l.builder.maxStreets/10 {
		debug.FreeOSMemory() // the feed's messages and the previous streets and forms are now garbage
	}
}

// complete returns a snapshot with the built document of a zone and scope, unless the zone is gone.
func (l *Layer) complete(zone string, scope int, now time.Time) *snapshot {
	l.building.Lock()
	defer l.building.Unlock()
	s := l.current.Load()
	if d := s.document(zone, scope); d != nil && !d.built {
		d.zone.demand(d.scope.whole).any.note(now) // find may have noted the request for an earlier zone of this name
		s = l.builder.build(s.ref, now)
		l.show(s, now)
	}
	return s
}

// show makes s the snapshot that requests are served from.
func (l *Layer) show(s *snapshot, now time.Time) {
	old := l.current.Swap(s)
	l.history.record(s, now)
	if old != nil {
		old.replaceBy(s)
	} else {
		metrics.Register(age)
		l.log.Info().Int("streets", s.streets).Msg("serving the first forecast layer")
	}
	streets.Set(float64(s.streets))
	streetsUnlocated.Set(float64(s.unlocated))
	streetsLeftOut.Set(float64(s.leftOut))
	bodyBytes.Set(float64(s.size()))
}

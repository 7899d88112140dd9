package layers

import (
	"fmt"
	"maps"
	"math"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"trafficd/pipeline/lib/admission"
	"trafficd/pipeline/lib/metrics"
	"trafficd/pipeline/lib/turns"
	"trafficd/schemas/contract"
	pb "trafficd/schemas/proto/trafficd/v1"
)

// Layer is the street forecast layer. A feed changes it through Put, Remove, Clear, Publish and
// Confirm; clients read it through Admit and Handle. All methods are safe for concurrent use.
type Layer struct {
	cfg         Config
	log         zerolog.Logger
	views       map[string]int // value of ?horizon= → index in builder.views; 0 is the whole layer
	horizonRule string         // for other values

	current  atomic.Pointer[snapshot] // nil before the first layer
	dataTime atomic.Int64             // time of the newest data, as an instant

	mu       sync.Mutex
	open     changes // not published yet
	ready    changes // published, not built yet
	due      bool    // Publish has been called
	rejected error   // why the last rejected forecast is invalid

	building sync.Mutex // guards builder; acquired before mu
	builder  *builder

	turns        *turns.Limiter    // for requests whose response is made for them
	made         *admission.Quotas // memory of these responses
	earlierLimit int

	clients sync.Mutex                        // guards the fields below, which are keyed by contract.Client.Owner
	waiting map[string]int                    // number of requests that wait for a change
	unread  map[string]map[representation]int // total size of the responses from a representation that are not read to the end

	wake     chan struct{} // capacity 1: a build is due
	draining chan struct{} // closed by Drain
	stop     chan struct{}
	done     chan struct{}
}

// New returns a layer without forecasts. cfg must be valid.
func New(cfg Config, log zerolog.Logger) *Layer {
	slots := runtime.GOMAXPROCS(0)
	l := &Layer{
		turns: turns.New(slots, max(1, slots-1), math.MaxInt), made: admission.New(madeLimit, memory), earlierLimit: earlierLimit,
		cfg: cfg, log: log, views: map[string]int{}, builder: newBuilder(cfg), open: noChanges(), ready: noChanges(),
		waiting: map[string]int{}, unread: map[string]map[representation]int{},
		wake: make(chan struct{}, 1), draining: make(chan struct{}), stop: make(chan struct{}), done: make(chan struct{}),
	}
	l.horizonRule = fmt.Sprintf("horizon must be one of %v minutes; omit it for the whole layer", cfg.Horizons)
	for i, minutes := range cfg.Horizons {
		l.views[strconv.Itoa(minutes)] = i + 1
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
		l.open.streets[s.id] = s
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
	l.open.streets[key{street, fromnode}] = nil
}

// Clear removes all streets, including those put since the last Publish.
func (l *Layer) Clear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open = noChanges()
	l.open.replace = true
}

// Publish includes all updates so far in the next build. dataTime is the time of the newest data;
// it may be earlier than in a previous call.
func (l *Layer) Publish(dataTime time.Time) {
	l.mu.Lock()
	if l.open.replace {
		l.ready = l.open
	} else {
		maps.Copy(l.ready.streets, l.open.streets)
	}
	l.open = noChanges()
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
		l.publish(l.builder.update(noChanges(), s.ref, now))
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

// run builds the layer after each Publish and at the start of each minute. Builds start at least
// BuildInterval apart.
func (l *Layer) run() {
	defer close(l.done)
	minute := time.NewTimer(untilNextMinute(time.Now()))
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
		pause := time.NewTimer(l.cfg.BuildInterval - time.Since(now))
		select {
		case <-l.stop:
			pause.Stop()
			return
		case <-pause.C:
		}
		minute.Reset(untilNextMinute(now))
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
	l.ready = noChanges()
	l.mu.Unlock()
	if !due {
		return
	}
	l.publish(l.builder.update(published, instantOf(now.Truncate(time.Minute)), now))
	builds.Inc()
	metrics.Since(buildSeconds, now)
	if len(published.streets) > l.cfg.MaxStreets/10 {
		debug.FreeOSMemory() // the feed's messages and the previous streets and forms are now garbage
	}
}

// publish makes s the snapshot that requests are served from.
func (l *Layer) publish(s *snapshot) {
	if old := l.current.Swap(s); old != nil {
		close(old.replaced)
	} else {
		metrics.Register(age)
		l.log.Info().Int("streets", s.streets).Msg("serving the first forecast layer")
	}
	streets.Set(float64(s.streets))
	streetsUnlocated.Set(float64(s.unlocated))
	streetsLeftOut.Set(float64(s.leftOut))
	bodyBytes.Set(float64(s.bytes))
}

package follow

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"trafficd/cmd/internal/client"
	"trafficd/cmd/trafficctl/internal/forecast"
	"trafficd/cmd/trafficctl/internal/route"
	pb "trafficd/schemas/proto/trafficd/v1"
)

// Target is what an engine reads.
type Target interface {
	// Write writes the speeds. The speeds of the changed streets, or of all if it is nil, differ from
	// those of the last call. It returns how many units of the engine's map were written.
	Write(speeds []speed, changed []int32, now time.Time) (int, error)
	// Updated returns the time of the last Write, also by an earlier process; zero if there was none.
	Updated() time.Time
	Close() error
}

// key identifies a street in one direction.
type key struct{ street, fromNode int32 }

// Streets numbers the streets of matches.
type Streets map[key]int32

func (s Streets) of(m *route.Match) int32 { return s[key{m.Street, m.FromNode}] }

// Usable returns the matches that speeds may be written for, and their streets. Ambiguous ones are
// left out: no speed is better than that of another road.
func Usable(matches []route.Match) ([]route.Match, Streets) {
	usable, streets := matches[:0:0], make(Streets)
	for _, m := range matches {
		if m.State != route.Matched {
			continue
		}
		k := key{m.Street, m.FromNode}
		if _, ok := streets[k]; !ok {
			streets[k] = int32(len(streets))
		}
		usable = append(usable, m)
	}
	return usable, streets
}

// Follower writes the speeds of the layer to a target.
type Follower struct {
	Target  Target
	Streets Streets
	// Get requests the layer, or the changes since a version.
	Get        func(ctx context.Context, since string) (*forecast.Response, error)
	StaleAfter time.Duration
	// Run makes the engine read what was written. Nil: it reads the file by itself.
	Run func(context.Context) error
	// Every is the shortest time between two calls of Run.
	Every time.Duration
	// Log prints a line for operators, and Progress one that can be omitted, concurrently.
	Log, Progress func(format string, args ...any)

	speeds  []speed
	changed []int32 // streets since the last write
	whole   bool    // all streets have changed
	dirty   bool
	cleared bool
	version string
	data    time.Time // time of the newest forecasts
	written time.Time // end of the last attempt
}

// retryAfter is the pause after a failed request or write. For requests, it doubles up to maxRetry.
const (
	retryAfter = time.Second
	maxRetry   = 30 * time.Second
)

func (f *Follower) start() {
	f.speeds = make([]speed, len(f.Streets))
	f.data = f.Target.Updated()
	f.whole = true
}

// grace is the time that the daemon has for its first response before speeds of an earlier process
// are cleared.
const grace = 30 * time.Second

// Once writes the layer once. If there is none, it clears speeds that are stale.
func (f *Follower) Once(ctx context.Context) error {
	f.start()
	resp, err := f.Get(ctx, "")
	if err == nil {
		f.take(resp)
	}
	if f.stale() {
		f.clear()
	} else if err != nil {
		return err
	}
	return errors.Join(err, f.flush(ctx))
}

// Follow writes the layer and its changes until ctx is done. It returns an error only if the first
// request is refused.
func (f *Follower) Follow(ctx context.Context) error {
	f.start()
	if earliest := time.Now().Add(grace - f.StaleAfter); f.data.Before(earliest) {
		f.data = earliest
	}
	var polling sync.WaitGroup
	defer polling.Wait()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	responses := make(chan *forecast.Response)
	polling.Go(func() { cancel(f.poll(ctx, responses)) })
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case resp := <-responses:
			f.take(resp)
		case <-tick.C:
		case <-ctx.Done():
			if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
				return cause
			}
			return nil
		}
		if f.stale() {
			f.clear()
		}
		if f.dirty && (f.Run == nil || time.Since(f.written) >= f.Every) {
			if err := f.flush(ctx); err != nil && ctx.Err() == nil {
				f.Log("%v", err)
				f.Every = max(f.Every, retryAfter)
			}
		}
	}
}

// poll sends responses until ctx is done or the first request is refused.
func (f *Follower) poll(ctx context.Context, responses chan<- *forecast.Response) error {
	version, pause, lost := "", retryAfter, time.Time{}
	for ctx.Err() == nil {
		asked := time.Now()
		resp, err := f.Get(ctx, version)
		refused, _ := errors.AsType[*client.Error](err)
		switch {
		case ctx.Err() != nil:
		case err == nil:
			if !lost.IsZero() {
				f.Log("the daemon responds again, after %s", time.Since(lost).Round(time.Second))
			}
			select {
			case responses <- resp:
			case <-ctx.Done():
			}
			same := version == resp.Get("Forecast-Version")
			version, pause, lost = resp.Get("Forecast-Version"), retryAfter, time.Time{}
			if same { // the daemon may not have waited
				_ = client.Sleep(ctx, time.Until(asked.Add(retryAfter)))
			}
		case version == "" && refused != nil && refused.Status < http.StatusInternalServerError && refused.Status != http.StatusTooManyRequests:
			return err
		default:
			if lost.IsZero() {
				lost = time.Now()
				f.Log("%v; trying again, and clearing the speeds once the forecasts are older than %s", err, f.StaleAfter)
			}
			_ = client.Sleep(ctx, pause)
			pause = min(2*pause, maxRetry)
		}
	}
	return nil
}

// take applies a response.
func (f *Follower) take(resp *forecast.Response) {
	f.data = time.Now().Add(-resp.Age())
	if resp.Get("Forecast-Content") != "changes" {
		f.whole, f.dirty = true, true
		clear(f.speeds)
	}
	found := 0
	for _, s := range resp.Layer.StreetForecast {
		i, ok := f.Streets[key{s.Street, s.Fromnode}]
		if !ok {
			continue
		}
		found++
		if now := speedOf(s, f.speeds[i]); now != f.speeds[i] {
			f.speeds[i], f.dirty = now, true
			f.changed = append(f.changed, i)
		}
	}
	if f.version == "" {
		f.Progress("%d of %d streets of the layer have a match", found, len(resp.Layer.StreetForecast))
	}
	f.version = resp.Get("Forecast-Version")
	if f.cleared && !f.stale() {
		f.Log("the forecasts are up to date again")
		f.cleared, f.whole, f.dirty = false, true, true
	}
}

// speedOf returns the speed in the only period of a forecast.
func speedOf(s *pb.StreetForecast, last speed) speed {
	if len(s.Forecast) == 0 {
		return speed{}
	}
	p := s.Forecast[0]
	v := speed{closed: p.GetClosed(), free: last.free}
	if s.FreeFlowSpeed != nil {
		v.free = float32(s.GetFreeFlowSpeed())
	}
	if !v.closed && (p.SpeedValid == nil || *p.SpeedValid) {
		v.kmh = max(float32(p.Speed), minSpeed)
	}
	return v
}

func (f *Follower) stale() bool { return time.Since(f.data) > f.StaleAfter }

// clear makes all speeds unknown to the engine until there is a newer response.
func (f *Follower) clear() {
	if f.cleared {
		return
	}
	f.cleared, f.whole, f.dirty = true, true, true
	f.Log("there are no forecasts that are newer than %s: clearing all speeds", f.StaleAfter)
}

// flush writes what has changed.
func (f *Follower) flush(ctx context.Context) error {
	speeds, changed := f.speeds, f.changed
	if f.cleared {
		speeds = make([]speed, len(f.speeds))
	}
	if f.whole {
		changed = nil
	}
	defer func() { f.written = time.Now() }()
	n, err := f.Target.Write(speeds, changed, time.Now())
	if err != nil {
		return err
	}
	if f.Run != nil {
		if err := f.Run(ctx); err != nil {
			return err
		}
	}
	closed := 0
	for _, s := range speeds {
		if s.closed {
			closed++
		}
	}
	f.Progress("wrote %d speeds; %d streets are closed", n, closed)
	f.changed, f.whole, f.dirty = f.changed[:0], false, false
	return nil
}

package follow

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"trafficd/cmd/internal/client"
	"trafficd/cmd/trafficctl/internal/forecast"
	"trafficd/cmd/trafficctl/internal/route"
	pb "trafficd/schemas/proto/trafficd/v1"
)

// memory is a target that keeps the speeds.
type memory struct {
	mu      sync.Mutex
	last    []speed
	changed [][]int32 // of all calls
	updated time.Time
}

func (m *memory) Write(speeds []speed, changed []int32, now time.Time) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.last, m.updated = append([]speed(nil), speeds...), now
	m.changed = append(m.changed, append([]int32(nil), changed...))
	return len(changed), nil
}

func (m *memory) Updated() time.Time { return m.updated }

func (m *memory) Close() error { return nil }

func (m *memory) speeds() []speed { return locked(&m.mu, &m.last) }

// locked returns a value that is written under a lock.
func locked[T any](mu *sync.Mutex, value *T) T {
	mu.Lock()
	defer mu.Unlock()
	return *value
}

// journal keeps the lines of a log.
type journal struct {
	mu   sync.Mutex
	text string
}

func (j *journal) print(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.text += fmt.Sprintf(format+"\n", args...)
}

func (j *journal) String() string { return locked(&j.mu, &j.text) }

// daemon is a layer whose responses the test sets.
type daemon struct {
	mu      sync.Mutex
	version int
	next    chan struct{} // closed when there is a new version
	streets []*pb.StreetForecast
	age     time.Duration
	err     error
	asked   []string
}

func (d *daemon) get(ctx context.Context, since string) (*forecast.Response, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked = append(d.asked, since)
	if since == fmt.Sprint(d.version) && d.err == nil {
		next := d.next
		d.mu.Unlock()
		select {
		case <-next:
		case <-time.After(30 * time.Second):
		case <-ctx.Done():
		}
		d.mu.Lock()
	}
	if err := errors.Join(d.err, ctx.Err()); err != nil {
		return nil, err
	}
	r := &forecast.Response{Header: http.Header{}, Layer: &pb.StreetForecastResponse{}}
	r.Set("Forecast-Version", fmt.Sprint(d.version))
	r.Set("Forecast-Age", fmt.Sprint(int(d.age.Seconds())))
	r.Set("Forecast-Content", "changes")
	if since == "" {
		r.Set("Forecast-Content", "whole")
	}
	if since != fmt.Sprint(d.version) {
		r.Layer.StreetForecast = d.streets
	}
	return r, nil
}

// publish sets the response to requests for another version, the age of its data, and an error that
// replaces it.
func (d *daemon) publish(age time.Duration, err error, streets ...*pb.StreetForecast) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.version, d.age, d.err, d.streets = d.version+1, age, err, streets
	close(d.next)
	d.next = make(chan struct{})
}

func street(number int32, kmh float64) *pb.StreetForecast {
	return &pb.StreetForecast{Street: number, Fromnode: 1, Forecast: []*pb.ForecastPeriod{{Speed: kmh, SpeedValid: proto.Bool(true)}}}
}

func newFollower(target Target, d *daemon, log *journal) *Follower {
	return &Follower{
		Target: target, Streets: Streets{{1, 1}: 0, {2, 1}: 1, {3, 1}: 2}, Get: d.get, StaleAfter: 15 * time.Minute,
		Log: log.print, Progress: log.print,
	}
}

// TestFollow checks that changes are written as they are published, that speeds are cleared when
// the forecasts are stale or the daemon is lost, and that they come back.
func TestFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, m, log := &daemon{next: make(chan struct{})}, &memory{}, &journal{}
		d.version, d.streets = 1, []*pb.StreetForecast{street(1, 50), street(2, 30), street(9, 30)}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- newFollower(m, d, log).Follow(ctx) }()
		synctest.Wait()
		require.Equal(t, []speed{{kmh: 50}, {kmh: 30}, {}}, m.speeds())
		require.Contains(t, log.String(), "2 of 3 streets of the layer have a match")

		closed := street(3, 0)
		closed.Forecast[0].Closed = proto.Bool(true)
		d.publish(0, nil, &pb.StreetForecast{Street: 1, Fromnode: 1}, street(2, 0), closed)
		synctest.Wait()
		require.Equal(t, []speed{{}, {kmh: 1}, {closed: true}}, m.speeds())
		require.Equal(t, [][]int32{nil, {0, 1, 2}}, locked(&m.mu, &m.changed))
		require.Equal(t, []string{"", "1", "2"}, locked(&d.mu, &d.asked))
		require.Contains(t, log.String(), "1 streets are closed")

		// Nothing changes: nothing is written, and the speeds remain, because the data are fresh.
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Len(t, locked(&m.mu, &m.changed), 2)

		d.publish(14*time.Minute+50*time.Second, nil, street(2, 20)) // the forecaster has stopped
		synctest.Wait()
		require.InDelta(t, 20, m.speeds()[1].kmh, 0)
		time.Sleep(12 * time.Second)
		synctest.Wait()
		require.Equal(t, make([]speed, 3), m.speeds())
		d.publish(0, nil, street(2, 25))
		synctest.Wait()
		require.Equal(t, []speed{{}, {kmh: 25}, {closed: true}}, m.speeds())
		require.Contains(t, log.String(), "the forecasts are up to date again")

		d.publish(0, errors.New("connection refused"))
		time.Sleep(14 * time.Minute)
		synctest.Wait()
		require.InDelta(t, 25, m.speeds()[1].kmh, 0)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		require.Equal(t, make([]speed, 3), m.speeds())
		d.publish(0, nil, street(1, 40))
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, []speed{{kmh: 40}, {kmh: 25}, {closed: true}}, m.speeds())
		require.Equal(t, 1, strings.Count(log.String(), "connection refused; trying again"))
		require.Contains(t, log.String(), "the daemon responds again, after 16m")

		stop()
		require.NoError(t, <-ended)
	})
}

// TestRun checks that the engine's command follows each change, not more often than allowed, and
// that a failed one is repeated.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, m, log := &daemon{next: make(chan struct{})}, &memory{}, &journal{}
		d.version, d.streets = 1, []*pb.StreetForecast{street(1, 50)}
		f := newFollower(m, d, log)
		var runs []time.Duration
		start := time.Now()
		f.Every = 5 * time.Second
		f.Run = func(context.Context) error {
			runs = append(runs, time.Since(start))
			if len(runs) == 3 {
				return errors.New("osrm-customize failed")
			}
			return nil
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- f.Follow(ctx) }()
		for i := range 10 {
			time.Sleep(time.Second / 2)
			synctest.Wait()
			d.publish(0, nil, street(1, float64(60+i)))
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, []time.Duration{0, 5 * time.Second, 10 * time.Second, 15 * time.Second}, runs)
		require.InDelta(t, 69, m.speeds()[0].kmh, 0)
		require.Contains(t, log.String(), "osrm-customize failed")
		stop()
		require.NoError(t, <-ended)
	})
}

// TestRestart checks that speeds of an earlier process are cleared if the daemon does not respond,
// and that a refused key ends the command.
func TestRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, log := &daemon{next: make(chan struct{}), err: errors.New("connection refused")}, &journal{}
		m := &memory{updated: time.Now().Add(-time.Hour), last: []speed{{kmh: 5}}}
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		_ = newFollower(m, d, log).Follow(ctx)
		require.Equal(t, make([]speed, 3), m.speeds())

		m = &memory{updated: time.Now().Add(-time.Minute), last: []speed{{kmh: 5}}}
		require.ErrorContains(t, newFollower(m, d, log).Once(t.Context()), "connection refused")
		require.Equal(t, []speed{{kmh: 5}}, m.speeds())
		m.updated = time.Now().Add(-time.Hour)
		require.ErrorContains(t, newFollower(m, d, log).Once(t.Context()), "connection refused")
		require.Equal(t, make([]speed, 3), m.speeds())

		d.err = &client.Error{Status: http.StatusUnauthorized, Description: "unknown key"}
		require.ErrorContains(t, newFollower(m, d, log).Follow(t.Context()), "unknown key")
	})
}

func TestUsable(t *testing.T) {
	matches, streets := Usable([]route.Match{
		{Street: 1, FromNode: 1, State: route.Matched},
		{Street: 2, FromNode: 1, State: route.Ambiguous},
		{Street: 3, FromNode: 1, State: route.Unmatched},
		{Street: 1, FromNode: 2, State: route.Matched},
	})
	require.Len(t, matches, 2)
	require.Equal(t, Streets{{1, 1}: 0, {1, 2}: 1}, streets)
}

package forecasts

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"trafficd/schemas/contract"
	pb "trafficd/schemas/proto/trafficd/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// timeout is longer than any operation takes on a busy machine. Only a failing test waits that
// long.
const timeout = time.Minute

// fakeLayer is a Layer that records its content and checks that the feed uses it as documented.
type fakeLayer struct {
	mu        sync.Mutex
	t         testing.TB
	put       map[identity]*pb.StreetForecast
	visible   map[identity]*pb.StreetForecast // nil before the first Publish
	published int
	confirmed time.Time
}

func newFakeLayer(t testing.TB) *fakeLayer {
	return &fakeLayer{t: t, put: make(map[identity]*pb.StreetForecast)}
}

func (s *fakeLayer) Put(f *pb.StreetForecast) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := checkNormal(f); err != nil {
		s.t.Errorf("put %v: %v", f, err)
	}
	s.put[identityOf(f)] = f
}

// checkNormal returns an error if Normalise would reject or change f.
func checkNormal(f *pb.StreetForecast) error {
	normal := proto.CloneOf(f)
	if _, err := Normalise(normal, MaxSpeed); err != nil {
		return err
	}
	if !proto.Equal(f, normal) {
		return fmt.Errorf("not in normal form: %v", f)
	}
	return nil
}

func (s *fakeLayer) Remove(street, fromnode int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.put, identity{street, fromnode})
}

func (s *fakeLayer) Clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.put)
}

func (s *fakeLayer) Publish(confirmed time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.visible, s.confirmed = maps.Clone(s.put), confirmed
	s.published++
}

func (s *fakeLayer) Confirm(at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.visible == nil {
		s.t.Error("Confirm was called before Publish")
	}
	s.confirmed = at
}

// shown returns the published forecasts, sorted, each as `street:fromnode speed,speed…`; nil before
// the first Publish.
func (s *fakeLayer) shown() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.visible == nil {
		return nil
	}
	list := []string{}
	for _, f := range s.visible {
		text := string(Key(f))
		for i, p := range f.Forecast {
			text += fmt.Sprintf("%c%g", " ,"[min(i, 1)], p.Speed)
		}
		list = append(list, text)
	}
	slices.Sort(list)
	return list
}

func (f *Forecasts) check(ctx context.Context) time.Duration { return f.loop.Check(ctx) }

// waitFor waits until exactly the forecasts want are shown.
func (s *fakeLayer) waitFor(want ...string) {
	s.t.Helper()
	if !eventually(func() bool { return s.shown() != nil && slices.Equal(want, s.shown()) }) {
		s.t.Fatalf("got %q, want %q", s.shown(), want)
	}
}

// waitUntilHealthy waits until the status is published and has no error.
func waitUntilHealthy(t *testing.T, f *Forecasts) {
	t.Helper()
	if !eventually(func() bool { s := f.Status(); return s.Published && s.Error == "" }) {
		t.Fatalf("got status %+v, want published and no error", f.Status())
	}
}

// eventually reports whether ok returns true before the timeout.
func eventually(ok func() bool) bool {
	for deadline := time.Now().Add(timeout); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if ok() {
			return true
		}
	}
	return false
}

// street returns a forecast with a quarter-hour period for each speed.
func street(street, fromnode int32, speeds ...float64) *pb.StreetForecast {
	f := &pb.StreetForecast{Street: street, Fromnode: fromnode, OpenLRcode: "CwV/OiHN2TvlAAA1ABM7FQ=="}
	at := time.Date(2026, 11, 20, 18, 0, 0, 0, time.UTC)
	for _, v := range speeds {
		f.Forecast = append(f.Forecast, &pb.ForecastPeriod{Start: contract.FormatForecastTime(at), End: contract.FormatForecastTime(at.Add(15 * time.Minute)), SpeedValid: proto.Bool(true), Speed: v})
		at = at.Add(15 * time.Minute)
	}
	return f
}

// run starts a feed that updates a fakeLayer.
func run(t *testing.T, cfg Config, change ...func(*topicFeed)) (*Forecasts, *fakeLayer) {
	t.Helper()
	layer := newFakeLayer(t)
	f, err := New(cfg, layer, zerolog.New(zerolog.NewTestWriter(t)))
	require.NoError(t, err)
	if topic, ok := f.feed.(*topicFeed); ok {
		f.loop.Interval, f.loop.Settle = 20*time.Millisecond, 20*time.Millisecond
		for _, c := range change {
			c(topic)
		}
	}
	f.Start(t.Context())
	t.Cleanup(f.Close)
	return f, layer
}

// smallResponses makes a topicFeed fetch less at once than a topic has.
func smallResponses(t *topicFeed) { t.fetchBytes = 16 << 10 }

// waitForError waits until the status has an error that contains want.
func waitForError(t *testing.T, f *Forecasts, want string) {
	t.Helper()
	if !eventually(func() bool { return strings.Contains(f.Status().Error, want) }) {
		t.Fatalf("got error %q, want %q", f.Status().Error, want)
	}
}

// write replaces a file atomically. The modification time is old enough for the feed to read the
// file at once.
func write(t *testing.T, path, content string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path+".new", []byte(content), 0o644))
	old := time.Now().Add(-time.Hour)
	require.NoError(t, os.Chtimes(path+".new", old, old))
	require.NoError(t, os.Rename(path+".new", path))
}

// tempPath returns the path of a file in a new temporary directory.
func tempPath(t *testing.T, name string) string {
	t.Helper()
	return filepath.Join(t.TempDir(), name)
}

package registry

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"trafficd/pipeline/batch"
	"trafficd/pipeline/lib/feedloop"
	"trafficd/pipeline/lib/metrics"
	"trafficd/pipeline/lib/watch"
	"trafficd/sources/internal/shrink"
)

// TestLastGoodListRemains checks that an invalid file does not replace the list in use, and that a
// valid one does.
func TestLastGoodListRemains(t *testing.T) {
	path := tempPath(t, "detectors.csv")
	feed := newTestFeed(t, FeedConfig{File: &FileConfig{Path: path}})
	good := codesOf(nil)
	f := func(content, wantError string) {
		t.Helper()
		write(t, path, content)
		feed.check(t.Context())
		status := feed.onlyList().status(time.Now())
		require.Equal(t, good, codesOf(feed.onlyList().current.Load()))
		require.Equal(t, len(good), status.Detectors)
		if wantError == "" {
			require.Empty(t, status.Error)
			return
		}
		require.Contains(t, status.Error, wantError)
	}
	require.Contains(t, feed.onlyList().status(time.Now()).Error, "not been loaded yet")
	f("detectorCode\n", "no detector codes")
	f("code\nA\n", "no column")

	good = []string{"A", "B", "C"}
	f("detectorCode,x\nA,1\nB,2\nC,3\n", "")
	f("detectorCode,x\nA,1\nB,2\nC", "truncated")
	f("detectorCode,x\n", "no detector codes")
	f("", "empty")
	f("detectorCode,x\n ,1\n ,2\n", "no detector codes")
	f("detectorCode,x\nA,1\n", "max_shrink")
	f("detectorCode,x\nC,1\nB,2\nA,3\n", "") // the same codes in another order: unchanged
	require.NoError(t, os.Remove(path))
	feed.check(t.Context())
	require.Contains(t, feed.onlyList().status(time.Now()).Error, "no such file")
	require.NoError(t, os.Mkdir(path, 0o755))
	feed.check(t.Context())
	require.Contains(t, feed.onlyList().status(time.Now()).Error, "not a regular file")
	require.NoError(t, os.Remove(path))

	good = []string{"A", "B", "D"}
	f("detectorCode,x\nA,1\nB,2\nD,3\n", "")
	good = []string{"E"}
	feed.onlyList().guard.ShrinkConfirm = 0
	f("detectorCode,x\nE,1\n,2\n", "")
	require.Equal(t, 1, feed.onlyList().status(time.Now()).LeftOut)
}

// TestConfirmationStartsOver checks that the wait for a suspect list starts over if the list in use
// was read in the meantime.
func TestConfirmationStartsOver(t *testing.T) {
	feed := newTestFeed(t, FeedConfig{File: &FileConfig{Path: tempPath(t, "list.csv")}})
	feed.onlyList().guard.ShrinkConfirm = time.Hour
	start := time.Now()
	f := func(after time.Duration, want error, codes ...string) {
		t.Helper()
		err := feed.onlyList().replace(codes, start.Add(after))
		feed.onlyList().conclude(err)
		require.IsType(t, want, err)
	}
	suspect := &feedloop.Refused{}
	f(0, nil, "A", "B", "C")
	f(time.Minute, suspect, "D")
	f(2*time.Minute, watch.ErrUnchanged, "A", "B", "C")
	f(3*time.Hour, suspect, "D")
	f(4*time.Hour-time.Second, suspect, "D")
	f(4*time.Hour, nil, "D")
}

// TestReloadKeepsConfirmation checks that a reload does not restart the wait for a suspect list, so
// that it is used although reloads are more frequent than shrink_confirm.
func TestReloadKeepsConfirmation(t *testing.T) {
	cfg := DefaultConfig()
	before, start := newList(cfg, "city", "file", zerolog.Nop()), time.Now()
	require.NoError(t, before.replace([]string{"A", "B", "C"}, start))
	require.Error(t, before.replace([]string{"D"}, start))
	after := newList(cfg, "city", "file", zerolog.Nop())
	after.adopt(before)
	require.NoError(t, after.replace([]string{"D"}, start.Add(cfg.ShrinkConfirm)))
}

// TestColumns checks that onList receives the other columns of a list, even if only they change.
func TestColumns(t *testing.T) {
	path := tempPath(t, "list")
	attributes := func(pairs ...string) (list []batch.Attribute) {
		for i := 0; i < len(pairs); i += 2 {
			list = append(list, batch.Attribute{Name: pairs[i], Value: pairs[i+1]})
		}
		return list
	}
	var got []batch.DetectorList
	var feed *feed
	start := func(fc FeedConfig) {
		feed = newTestFeed(t, fc)
		feed.onList = func(l batch.DetectorList) { got = append(got, l) }
	}
	f := func(content string, want ...batch.DetectorList) {
		t.Helper()
		got = nil
		write(t, path, content)
		feed.check(t.Context())
		require.ElementsMatch(t, want, got)
	}
	start(FeedConfig{File: &FileConfig{Path: path, Format: FormatCSV}})
	f("detectorCode,street\n") // empty lists are not used
	f("street;detectorCode; lat \nRingvej;A;56.1\n;B; \n", batch.DetectorList{
		ProductInstance: "test", Codes: []string{"A", "B"}, Attributes: [][]batch.Attribute{attributes("street", "Ringvej", "lat", "56.1"), nil},
	})
	feed.check(t.Context())
	require.Len(t, got, 1, "unchanged")
	f("street;detectorCode\nNy Ringvej;A\n;B\n", batch.DetectorList{
		ProductInstance: "test", Codes: []string{"A", "B"}, Attributes: [][]batch.Attribute{attributes("street", "Ny Ringvej"), nil},
	})

	start(FeedConfig{File: &FileConfig{Path: path, Format: FormatJSON}})
	f(`[{"detectorCode":"A","lanes":2,"at":{"lat":56.1}},"B",{"detectorCode":"C","street":"Ringvej","lanes":null}]`, batch.DetectorList{
		ProductInstance: "test", Codes: []string{"A", "B", "C"},
		Attributes: [][]batch.Attribute{attributes("at", `{"lat":56.1}`, "lanes", "2"), nil, attributes("street", "Ringvej")},
	})
}

func TestOutcomesAreCounted(t *testing.T) {
	path := tempPath(t, "detectors.csv")
	feed := newTestFeed(t, FeedConfig{File: &FileConfig{Path: path}})
	f := func(content string, counter metrics.Counter) {
		t.Helper()
		if content != "" {
			write(t, path, content)
		}
		before := testutil.ToFloat64(counter)
		feed.check(t.Context())
		require.Equal(t, before+1, testutil.ToFloat64(counter))
	}
	f("detectorCode\nA\nB\n", reloads.Used)
	f("", reloads.Unchanged)
	f("detectorCode\nB\nA\n", reloads.Unchanged)
	f("detectorCode\n", reloads.Refused)
	f("x\n", reloads.Failed)
	require.NoError(t, os.WriteFile(path, []byte("detectorCode\nA\nB\nC\n"), 0o644))
	feed.source.close()
	feed.source = newFileSource(FileConfig{Path: path, Column: DefaultColumn}, "", time.Hour, 1<<20)
	f("", reloads.Unsettled)
}

// fakeSource is a source whose reads return the given outcomes in order, and then repeat the last
// one.
type fakeSource struct {
	outcomes []error
	reads    int
}

func (s *fakeSource) read(_ context.Context, add addEntry) error {
	n := min(s.reads, len(s.outcomes)-1)
	s.reads++
	add(0, "", "A")
	return s.outcomes[n]
}
func (s *fakeSource) keep()                    {}
func (s *fakeSource) forget()                  {}
func (s *fakeSource) changes() <-chan struct{} { return nil }
func (s *fakeSource) close()                   {}

// newFakeFeed returns a feed that reads from a fakeSource.
func newFakeFeed(s *fakeSource, interval time.Duration, limits shrink.Limits) *feed {
	f := newFeed(Config{Limits: limits}, FeedConfig{ProductInstance: "city", HTTP: &HTTPConfig{}}, zerolog.Nop())
	f.source, f.interval, f.settle = s, interval, time.Second
	return f
}

// TestStatusAfterCheck checks the status that readiness uses, after each outcome of a check.
func TestStatusAfterCheck(t *testing.T) {
	unavailable := errors.New("unavailable")
	s := &fakeSource{outcomes: []error{watch.ErrUnsettled, unavailable, nil, watch.ErrUnsettled, unavailable, watch.ErrUnchanged, unavailable}}
	feed := newFakeFeed(s, time.Hour, shrink.Limits{})
	age(feed.onlyList())
	f := func(ctx context.Context, wantNext time.Duration, wantError string, confirmed bool) {
		t.Helper()
		require.Equal(t, wantNext, feed.check(ctx))
		status := feed.onlyList().status(time.Now())
		require.Contains(t, status.Error, wantError)
		require.Equal(t, wantError == "", status.Error == "")
		require.Equal(t, confirmed, status.AgeSeconds < 3000)
	}
	f(t.Context(), time.Second, "being written", false) // no list is in use, so the feed is not ready
	f(t.Context(), feedloop.RetryAfter, "unavailable", false)
	f(t.Context(), time.Hour, "", true)
	f(t.Context(), time.Second, "", true) // the list in use is valid
	f(t.Context(), feedloop.RetryAfter, "unavailable", true)
	age(feed.onlyList())
	f(t.Context(), time.Hour, "", true)
	ended, end := context.WithCancel(t.Context())
	end()
	f(ended, time.Hour, "", true) // an error after cancellation is not a failure
}

// TestSuspectListIsReadAgain checks that a suspect list is read again after shrink_confirm, or
// after the feed's interval if that is shorter.
func TestSuspectListIsReadAgain(t *testing.T) {
	f := func(interval, confirm, want time.Duration) {
		t.Helper()
		feed := newFakeFeed(&fakeSource{outcomes: []error{&feedloop.Refused{Reason: "much is gone"}}}, interval, shrink.Limits{ShrinkConfirm: confirm})
		require.Equal(t, want, feed.check(t.Context()))
	}
	f(time.Hour, 2*time.Minute, 2*time.Minute)
	f(time.Minute, 2*time.Minute, time.Minute)
	f(time.Minute, 0, feedloop.RetryAfter)
}

package forecasts

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"trafficd/cmd/dev/devstores/stores"
	"trafficd/pipeline/lib/dial"
	"trafficd/pipeline/lib/feedloop"
	"trafficd/sources/internal/shrink"
)

// newGuardedFeed returns a feed like newManualFeed, with the default limits.
func newGuardedFeed(t *testing.T, cfg Config) (*Forecasts, *fakeLayer) {
	t.Helper()
	cfg.Limits = shrink.DefaultLimits()
	return newManualFeed(t, cfg)
}

// requireSuspect checks the feed and requires that the guard rejects its content.
func requireSuspect(t *testing.T, feed *Forecasts, want string) {
	t.Helper()
	before := testutil.ToFloat64(checks.Refused)
	feed.check(t.Context())
	require.Contains(t, feed.Status().Error, want)
	require.Contains(t, feed.Status().Error, "restart trafficd")
	require.Equal(t, before+1, testutil.ToFloat64(checks.Refused))
}

// TestShrunkFile checks that a file that lacks many streets does not replace the layer until
// shrink_confirm has passed.
func TestShrunkFile(t *testing.T) {
	path := tempPath(t, "f.ndjson")
	lines := func(streets int) string {
		var all strings.Builder
		for i := range int32(streets) {
			fmt.Fprintln(&all, jsonOf(t, street(i+1, 1, 10)))
		}
		return all.String()
	}
	write(t, path, lines(300))
	feed, layer := newGuardedFeed(t, fileConfig(path))
	feed.check(t.Context())
	require.Len(t, layer.shown(), 300)
	dataTime := layer.confirmedAt()

	write(t, path, lines(10))
	requireSuspect(t, feed, "the file lacks 290 of the 300 streets in use")
	requireSuspect(t, feed, "the file lacks 290") // it is read again
	require.Len(t, layer.shown(), 300)
	require.Equal(t, dataTime, layer.confirmedAt())

	write(t, path, lines(200)) // a third is missing
	feed.check(t.Context())
	require.Empty(t, feed.Status().Error)
	require.Len(t, layer.shown(), 200)

	write(t, path, lines(10))
	requireSuspect(t, feed, "the file lacks 190 of the 200")
	require.NoError(t, os.WriteFile(path, []byte("{"), 0o644))
	old := time.Now().Add(-time.Minute)
	require.NoError(t, os.Chtimes(path, old, old))
	feed.check(t.Context())
	require.Contains(t, feed.Status().Error, "truncated NDJSON")
	write(t, path, lines(10))
	feed.feed.(*fileFeed).guarded.guard.ShrinkConfirm = 0
	feed.check(t.Context())
	require.Empty(t, feed.Status().Error)
	require.Len(t, layer.shown(), 10)
}

// TestShrunkQuery checks the same for a query as TestShrunkFile for a file.
func TestShrunkQuery(t *testing.T) {
	store := stores.StartClickHouse(t)
	cfg := DefaultConfig()
	cfg.Feed = FeedClickHouse
	cfg.ClickHouse.Address = store.TCP
	cfg.ClickHouse.ClickHouse = dial.ClickHouse{Username: "trafficd", Password: "trafficd"}
	cfg.ClickHouse.Query = "SELECT"
	feed, layer := newGuardedFeed(t, cfg)
	source := feed.feed.(*queryFeed)
	query := func(streets int) {
		source.Query = fmt.Sprintf("SELECT 1 + number AS street, 1 AS fromnode, 10 AS speed, now() AS start, now() + 60 AS `end` FROM numbers(%d)", streets)
	}
	query(20_000)
	feed.check(t.Context())
	require.Len(t, layer.shown(), 20_000)
	query(100)
	requireSuspect(t, feed, "the query result lacks 19900 of the 20000 streets in use")
	require.Len(t, layer.shown(), 20_000)
	source.guarded.guard.ShrinkConfirm = time.Nanosecond
	feed.check(t.Context())
	require.Len(t, layer.shown(), 100)
}

// TestShrunkTopic checks that a recreated topic, which is empty at first, does not empty the layer
// before it has been filled again.
func TestShrunkTopic(t *testing.T) {
	c := stores.StartKfake(t, kfake.SeedTopics(1, "f"))
	feed, layer := newGuardedFeed(t, topicConfig("f", c.ListenAddrs()...))
	topic := feed.feed.(*topicFeed)
	check := func() error {
		t.Helper()
		at, err := settled(t, topic)
		if err == nil {
			require.NoError(t, feed.use(at))
		}
		feed.loop.Status.Conclude(err)
		return err
	}
	k := producer(t, c.ListenAddrs())
	for i := range int32(4) {
		produce(t, k, record("f", 0, fmt.Sprintf("%d:1", i+1), value(t, street(i+1, 1, 10))))
	}
	require.NoError(t, check())
	k.Close()
	recreate(t, c, "f")
	require.ErrorContains(t, check(), "was recreated")

	var suspect *feedloop.Refused
	f := func(want string) {
		t.Helper()
		require.ErrorAs(t, check(), &suspect)
		require.Contains(t, feed.Status().Error, want)
		require.Len(t, layer.shown(), 4)
	}
	f("the topic lacks 4 of the 4 streets in use")
	k = producer(t, c.ListenAddrs())
	produce(t, k, record("f", 0, "1:1", value(t, street(1, 1, 11))))
	f("the topic lacks 3 of the 4")
	produce(t, k, record("f", 0, "2:1", value(t, street(2, 1, 21))))
	require.NoError(t, check())
	require.Equal(t, []string{"1:1 11", "2:1 21"}, layer.shown())
	produce(t, k, record("f", 0, "1:1", nil)) // a producer removes it on purpose
	require.NoError(t, check())
	require.Equal(t, []string{"2:1 21"}, layer.shown())

	k.Close()
	recreate(t, c, "f")
	require.ErrorContains(t, check(), "was recreated")
	require.ErrorAs(t, check(), &suspect)
	topic.guarded.guard.ShrinkConfirm = time.Nanosecond
	require.NoError(t, check(), "a topic that remains empty must be used")
	require.Empty(t, layer.shown())
}

// TestShrunkTopicFilledInTransaction checks that a transaction that fills a recreated topic, which
// was found to be empty, is used immediately.
func TestShrunkTopicFilledInTransaction(t *testing.T) {
	c := stores.StartKfake(t, kfake.SeedTopics(1, "f"))
	feed, layer := newGuardedFeed(t, topicConfig("f", c.ListenAddrs()...))
	topic := feed.feed.(*topicFeed)
	publish := func(speed float64) {
		t.Helper()
		k := producer(t, c.ListenAddrs(), kgo.TransactionalID("forecaster"))
		defer k.Close()
		require.NoError(t, k.BeginTransaction())
		produce(t, k, record("f", 0, "1:1", value(t, street(1, 1, speed))), record("f", 0, "2:1", value(t, street(2, 1, speed))))
		require.NoError(t, k.EndTransaction(t.Context(), kgo.TryCommit))
	}
	publish(10)
	_, err := settled(t, topic)
	require.NoError(t, err)
	recreate(t, c, "f")
	_, err = settled(t, topic)
	require.ErrorContains(t, err, "was recreated")
	var suspect *feedloop.Refused
	_, err = settled(t, topic)
	require.ErrorAs(t, err, &suspect)
	publish(20)
	require.True(t, eventually(func() bool { _, err = settled(t, topic); return err == nil }), "%v", err)
	require.Equal(t, []string{"1:1 20", "2:1 20"}, layer.shown())
}

// TestSuspectContentIsCheckedAgain checks that suspect content is checked again after
// shrink_confirm, or after the feed's interval if that is shorter.
func TestSuspectContentIsCheckedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logged bytes.Buffer
		f := func(interval, confirm, want time.Duration) {
			t.Helper()
			logged.Reset()
			suspect := fmt.Errorf("cannot use f.json: %w", &feedloop.Refused{Reason: "much is gone: correct it"})
			feed := &Forecasts{feed: &fakeFeed{outcomes: []error{suspect}}, faults: &faults{}, log: zerolog.New(&logged)}
			feed.setLoop(interval, 0, confirm)
			for range 2 {
				require.Equal(t, want, feed.check(t.Context()))
			}
			require.Equal(t, "cannot use f.json: much is gone: correct it", feed.Status().Error)
			require.Equal(t, 1, strings.Count(logged.String(), "\n"), "the error must be logged once")
			require.Contains(t, logged.String(), "much is gone: correct it")
		}
		f(time.Hour, 2*time.Minute, 2*time.Minute)
		f(time.Second, 2*time.Minute, time.Second)
		f(time.Minute, 0, feedloop.RetryAfter)
	})
}

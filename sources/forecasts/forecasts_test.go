package forecasts

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"errors"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/rs/zerolog"
	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"trafficd/cmd/dev/devstores/stores"
	"trafficd/pipeline/lib/dial"
	"trafficd/pipeline/lib/feedloop"
	"trafficd/pipeline/lib/watch"
)

// fakeFeed is a feed whose checks return the given outcomes in order, and then repeat the last one.
type fakeFeed struct {
	outcomes []error
	at       []time.Time // times of the checks
	changed  chan struct{}
	closed   bool
}

func (s *fakeFeed) check(context.Context) (time.Time, error) {
	n := min(len(s.at), len(s.outcomes)-1)
	s.at = append(s.at, time.Now())
	return time.Now(), s.outcomes[n]
}
func (s *fakeFeed) changes() <-chan struct{} { return s.changed }
func (s *fakeFeed) close()                   { s.closed = true }

// TestCheckTimes checks on a fake clock when the feed is checked.
func TestCheckTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		unavailable := errors.New("unavailable")
		s := &fakeFeed{outcomes: []error{unavailable, watch.ErrUnsettled, nil, watch.ErrUnchanged, unavailable, nil}, changed: make(chan struct{}, 1)}
		f := &Forecasts{feed: s, faults: &faults{}, log: zerolog.Nop()}
		f.setLoop(time.Minute, time.Second, 0)
		start := time.Now()
		f.Start(t.Context())
		time.Sleep(4 * time.Second)
		require.Contains(t, f.Status().Error, "unavailable")
		require.False(t, f.Status().Published)
		time.Sleep(66 * time.Second) // checks at 0, 5, 6, 66
		require.Empty(t, f.Status().Error)
		require.InDelta(t, 4, f.Status().AgeSeconds, 0.001)
		for range 5 { // several changes cause one check, one second after the first change
			s.changed <- struct{}{}
			time.Sleep(300 * time.Millisecond)
		}
		time.Sleep(10 * time.Second)
		f.Close()

		var seconds []float64
		for _, at := range s.at {
			seconds = append(seconds, at.Sub(start).Seconds())
		}
		// The failed check at 71 s would be repeated at 76 s, but the change at 71.2 s causes an
		// earlier check.
		require.Equal(t, []float64{0, 5, 6, 66, 71, 72.2}, seconds)
		require.True(t, s.closed)
	})
}

// TestStatusAfterCheck checks the status after each outcome of a check.
func TestStatusAfterCheck(t *testing.T) {
	unavailable := errors.New("unavailable")
	s := &fakeFeed{outcomes: []error{watch.ErrUnsettled, unavailable, nil, watch.ErrUnsettled, unavailable, watch.ErrUnchanged, unavailable}}
	feed := &Forecasts{feed: s, faults: &faults{}, log: zerolog.Nop()}
	feed.setLoop(time.Hour, time.Second, 0)
	f := func(ctx context.Context, wantNext time.Duration, wantError string, published bool) {
		t.Helper()
		require.Equal(t, wantNext, feed.check(ctx))
		status := feed.Status()
		require.Contains(t, status.Error, wantError)
		require.Equal(t, wantError == "", status.Error == "")
		require.Equal(t, published, status.Published)
	}
	f(t.Context(), time.Second, "being written", false) // no layer yet: not ready
	f(t.Context(), feedloop.RetryAfter, "unavailable", false)
	f(t.Context(), time.Hour, "", true)
	f(t.Context(), time.Second, "", true) // the layer remains usable
	f(t.Context(), feedloop.RetryAfter, "unavailable", true)
	f(t.Context(), time.Hour, "", true)
	ended, end := context.WithCancel(t.Context())
	end()
	f(ended, time.Hour, "", true) // an error after cancellation is not a failure
}

// TestFaultsAreBounded checks that only the latest faults are kept, and that at most one per minute
// is logged.
func TestFaultsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logged bytes.Buffer
		f := &faults{log: zerolog.New(&logged)}
		long := errors.New(strings.Repeat("ø", 1000))
		for range 500 {
			f.skip("line 1", long)
			f.addRemarks("line 2", Remarks{Count: 3, First: long})
			f.addRemarks("line 3", Remarks{})
			time.Sleep(time.Second)
		}
		skips, remarks, latest := f.report()
		require.EqualValues(t, 500, skips)
		require.EqualValues(t, 1500, remarks)
		require.Len(t, latest, maxFaults)
		require.Equal(t, "line 2", latest[maxFaults-1].Position)
		require.LessOrEqual(t, len(latest[0].Error), maxFaultBytes)
		text, err := json.Marshal(latest)
		require.NoError(t, err)
		require.NotContains(t, string(text), `\ufffd`)
		require.Equal(t, 9, strings.Count(logged.String(), "\n"), "lines logged in 500 seconds, at most one per minute")
		require.Contains(t, logged.String(), `"not_logged_before":119`)
		f.reset()
		skips, _, latest = f.report()
		require.Zero(t, skips)
		require.Empty(t, latest)
	})
}

func TestMetrics(t *testing.T) {
	shown := func() int {
		n, err := testutil.GatherAndCount(prometheus.DefaultGatherer, "trafficd_forecasts_age_seconds", "trafficd_forecasts_failing")
		require.NoError(t, err)
		return n
	}
	path := tempPath(t, "f.ndjson")
	write(t, path, jsonOf(t, street(1, 1, 10))+"\n{\n")
	taken, skipped := testutil.ToFloat64(recordsTaken), testutil.ToFloat64(recordsSkipped)
	f, layer := run(t, fileConfig(path))
	layer.waitFor("1:1 10")
	require.True(t, eventually(func() bool { return f.Status().Error == "" }))
	require.Equal(t, 2, shown())
	registered := gauges(f)
	age, failing := registered[0], registered[1]
	require.Zero(t, testutil.ToFloat64(failing))
	require.GreaterOrEqual(t, testutil.ToFloat64(age), 3600.0, "the file is one hour old")
	require.EqualValues(t, 1, testutil.ToFloat64(recordsTaken)-taken)
	require.EqualValues(t, 1, testutil.ToFloat64(recordsSkipped)-skipped)
	require.NoError(t, os.Remove(path))
	waitForError(t, f, "no such file")
	require.Equal(t, 1.0, testutil.ToFloat64(failing))
	f.Close()
	require.Zero(t, shown())
}

func TestWithoutFeed(t *testing.T) {
	f, layer := run(t, DefaultConfig())
	require.Equal(t, Status{}, f.Status())
	f.Close()
	require.Nil(t, layer.shown())
}

// TestSecurity reads a topic over TLS with SASL. TestSecurity in package sinks/kafka checks each
// mechanism, wrong passwords and unknown CAs.
func TestSecurity(t *testing.T) {
	server, ca := certificate(t)
	c := stores.StartKfake(t, kfake.SeedTopics(1, "f"), kfake.TLS(server), kfake.EnableSASL(), kfake.Superuser("PLAIN", "trafficd", "secret"))
	cfg := topicConfig("f", c.ListenAddrs()...)
	cfg.Kafka.TLS = dial.TLS{Enabled: true, CA: ca}
	cfg.Kafka.SASL = dial.SASL{Mechanism: "plain", Username: "trafficd", Password: "secret"}
	_, layer := run(t, cfg)
	layer.waitFor()

	cfg.Kafka.TLS.CA = tempPath(t, "missing.pem")
	_, err := New(cfg, nil, zerolog.Nop())
	require.ErrorContains(t, err, "forecasts.kafka.tls.ca: cannot read the CA certificates")
}

// certificate returns a server configuration with a certificate for 127.0.0.1, and the path of a
// file with the authority that signed it.
func certificate(t *testing.T) (server *tls.Config, file string) {
	t.Helper()
	s := httptest.NewTLSServer(nil)
	s.Close() // only its certificate is used
	file = tempPath(t, "ca.pem")
	require.NoError(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o600))
	return &tls.Config{Certificates: s.TLS.Certificates}, file
}

// TestTopicPartitionAdded checks that a partition added while the feed runs is read from its start.
func TestTopicPartitionAdded(t *testing.T) {
	c := stores.StartKfake(t, kfake.SeedTopics(1, "f"))
	cfg := topicConfig("f", c.ListenAddrs()...)
	cfg.Kafka.MetadataMaxAge = time.Second
	_, layer := run(t, cfg)
	layer.waitFor()
	k := producer(t, c.ListenAddrs())
	produce(t, k, record("f", 0, "1:1", value(t, street(1, 1, 10))))
	layer.waitFor("1:1 10")
	admin := &kafka.Transport{}
	defer admin.CloseIdleConnections()
	_, err := (&kafka.Client{Addr: kafka.TCP(c.ListenAddrs()...), Transport: admin}).CreatePartitions(t.Context(),
		&kafka.CreatePartitionsRequest{Topics: []kafka.TopicPartitionsConfig{{Name: "f", Count: 2}}})
	require.NoError(t, err)
	k = producer(t, c.ListenAddrs(), kgo.MetadataMinAge(10*time.Millisecond))
	produce(t, k, record("f", 1, "2:1", value(t, street(2, 1, 20))))
	layer.waitFor("1:1 10", "2:1 20")
}

func TestValidate(t *testing.T) {
	require.NoError(t, DefaultConfig().Validate())
	f := func(feed string, change func(c *Config), want ...string) {
		t.Helper()
		cfg := DefaultConfig()
		cfg.Feed = feed
		cfg.File.Path, cfg.ClickHouse.Address, cfg.ClickHouse.Query = "f.pb", "localhost:9000", "SELECT"
		change(&cfg)
		err := cfg.Validate()
		if len(want) == 0 {
			require.NoError(t, err)
			return
		}
		for _, w := range want {
			require.ErrorContains(t, err, w)
		}
	}
	for _, feed := range []string{"", FeedKafka, FeedFile, FeedClickHouse} {
		f(feed, func(*Config) {})
		f(feed, func(c *Config) { c.MaxBytes = 0 }, "max_bytes is 0")
	}
	f("", func(c *Config) { c.Kafka.Topic = "?" })
	f("ftp", func(*Config) {}, `feed is "ftp"`)
	f(FeedKafka, func(c *Config) { c.Kafka.Brokers = nil }, "kafka.brokers must name")
	f(FeedKafka, func(c *Config) { c.Kafka.Topic = "a b" }, "kafka.topic")
	f(FeedKafka, func(c *Config) { c.Kafka.RequestTimeout = 0 }, "kafka.request_timeout")
	f(FeedKafka, func(c *Config) { c.Kafka.TLS.Cert = "x" }, "kafka.tls.cert and", "kafka.tls.enabled must be true")
	f(FeedKafka, func(c *Config) { c.Kafka.SASL = dial.SASL{Username: "x"} }, "kafka.sasl.mechanism must be set")
	f(FeedKafka, func(c *Config) { c.Kafka.SASL = dial.SASL{Mechanism: "plain"} }, "kafka.sasl.username and")
	f(FeedKafka, func(c *Config) { c.Kafka.SASL = dial.SASL{Mechanism: "gssapi"} }, `kafka.sasl.mechanism is "gssapi"`)
	f(FeedFile, func(c *Config) { c.File = FileConfig{Format: "xml"} }, "file.path must be set", `file.format is "xml"`)
	f(FeedClickHouse, func(c *Config) { c.ClickHouse = dial.ClickHouseQuery{Address: "x"} },
		`clickhouse.address is "x"`, "clickhouse.query must be set", "clickhouse.interval", "clickhouse.timeout")
}

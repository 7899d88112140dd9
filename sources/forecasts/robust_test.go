package forecasts

import (
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"trafficd/cmd/dev/devstores/stores"
	"trafficd/pipeline/lib/dial"
	pb "trafficd/schemas/proto/trafficd/v1"
)

// panickyLayer is a layer with a defect that one street reveals.
type panickyLayer struct{ *fakeLayer }

func (l panickyLayer) Put(f *pb.StreetForecast) {
	if f.Street == 2 {
		panic("index out of range")
	}
	l.fakeLayer.Put(f)
}

// requireSkipped checks that a feed with the streets 1, 2 and 3 skips the record of the second one,
// at which the daemon panics, counts and names it, and uses the others.
func requireSkipped(t *testing.T, cfg Config, position string) {
	t.Helper()
	layer := newFakeLayer(t)
	feed, err := New(cfg, panickyLayer{layer}, zerolog.New(zerolog.NewTestWriter(t)))
	require.NoError(t, err)
	t.Cleanup(feed.feed.close)
	feed.check(t.Context())
	require.Equal(t, []string{"1:1 10", "3:1 10"}, layer.shown())
	s := feed.Status()
	require.Empty(t, s.Error)
	require.EqualValues(t, 1, s.Skipped)
	require.Equal(t, position, s.Faults[0].Position)
	require.Contains(t, s.Faults[0].Error, "a defect in trafficd: panic: index out of range")
}

func TestPanicSkipsOneRecord(t *testing.T) {
	k := stores.StartKfake(t, kfake.SeedTopics(1, "f"))
	c := producer(t, k.ListenAddrs())
	path := tempPath(t, "f.ndjson")
	lines := ""
	for id := range int32(3) {
		produce(t, c, record("f", 0, fmt.Sprintf("%d:1", id+1), value(t, street(id+1, 1, 10))))
		lines += jsonOf(t, street(id+1, 1, 10)) + "\n"
	}
	write(t, path, lines)
	requireSkipped(t, topicConfig("f", k.ListenAddrs()...), "partition 0 offset 1")
	requireSkipped(t, fileConfig(path), "line 2")
}

func TestPanicSkipsOneRow(t *testing.T) {
	store := stores.StartClickHouse(t)
	cfg := DefaultConfig()
	cfg.Feed = FeedClickHouse
	cfg.ClickHouse.Address = store.TCP
	cfg.ClickHouse.ClickHouse = dial.ClickHouse{Username: "trafficd", Password: "trafficd"}
	cfg.ClickHouse.Query = "SELECT 1 + number AS street, 1 AS fromnode, 10 AS speed, now() AS start, now() + 60 AS `end` FROM numbers(3)"
	requireSkipped(t, cfg, "street 2:1 (first row 2)")
}

// TestAttempt checks that a panic of the parser becomes an error too.
func TestAttempt(t *testing.T) {
	var f *pb.StreetForecast
	err := attempt(func() error {
		_ = f.Street
		return nil
	})
	require.ErrorContains(t, err, "panic: runtime error: invalid memory address")
}

// slowConn is a connection over a slow link.
type slowConn struct{ net.Conn }

func (c slowConn) Read(b []byte) (int, error) {
	time.Sleep(5 * time.Millisecond)
	return c.Conn.Read(b[:min(len(b), 512)])
}

// TestTopicSlowLink reads a response that takes several times the request timeout, because
// something arrives all the time.
func TestTopicSlowLink(t *testing.T) {
	k := stores.StartKfake(t, kfake.SeedTopics(1, "f"))
	c := producer(t, k.ListenAddrs(), kgo.ProducerBatchCompression(kgo.NoCompression()))
	const streets = 500
	var records []*kgo.Record
	for i := range int32(streets) {
		records = append(records, record("f", 0, fmt.Sprintf("%d:1", i+1), value(t, street(i+1, 1, make([]float64, 10)...))))
	}
	produce(t, c, records...)
	cfg := topicConfig("f", k.ListenAddrs()...)
	cfg.Kafka.RequestTimeout = time.Second
	layer := newFakeLayer(t)
	feed, err := newTopicFeed(cfg, layer, &faults{})
	require.NoError(t, err)
	defer feed.close()
	connect := feed.transport.Dial
	feed.transport.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := connect(ctx, network, address)
		return slowConn{c}, err
	}
	start := time.Now()
	_, err = settled(t, feed)
	require.NoError(t, err)
	require.Greater(t, time.Since(start), 2*cfg.Kafka.RequestTimeout, "the response must be larger")
	require.Len(t, layer.shown(), streets)
}

// TestTopicNoResponse checks that a fetch fails if the broker sends nothing for the request
// timeout.
func TestTopicNoResponse(t *testing.T) {
	k := stores.StartKfake(t, kfake.SeedTopics(1, "f"))
	k.ControlKey(int16(kmsg.Fetch), func(kmsg.Request) (kmsg.Response, error, bool) {
		k.KeepControl()
		return nil, nil, true
	})
	cfg := topicConfig("f", k.ListenAddrs()...)
	cfg.Kafka.RequestTimeout = 500 * time.Millisecond
	feed, err := newTopicFeed(cfg, newFakeLayer(t), &faults{})
	require.NoError(t, err)
	defer feed.close()
	_, err = feed.check(t.Context())
	require.ErrorContains(t, err, "cannot read from offset 0")
	require.ErrorContains(t, err, "timeout")
}

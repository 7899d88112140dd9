package publish

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"google.golang.org/protobuf/proto"

	"trafficd/cmd/dev/devstores/stores"
	"trafficd/cmd/dev/launch"
	"trafficd/pipeline/lib/dial"
	pb "trafficd/schemas/proto/trafficd/v1"
	"trafficd/sources/forecasts"
)

// view is a layer that checks what its readers would see.
type view struct {
	streets int // that every layer must have
	put     map[string]float64

	mu     sync.Mutex
	layers int     // published
	speed  float64 // of all streets in the last layer
	err    error   // what is wrong with the layers published
}

func (v *view) Put(f *pb.StreetForecast) { v.put[string(forecasts.Key(f))] = f.Forecast[0].Speed }

func (v *view) Remove(street, fromnode int32) {
	delete(v.put, string(forecasts.Key(&pb.StreetForecast{Street: street, Fromnode: fromnode})))
}

func (v *view) Clear() { clear(v.put) }

// Publish checks that all streets have the same speed, and that none is missing.
func (v *view) Publish(time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.layers++
	v.speed = -1
	for key, speed := range v.put {
		if v.speed >= 0 && speed != v.speed {
			v.err = errors.Join(v.err, fmt.Errorf("layer %d: street %s has generation %g, another has %g", v.layers, key, speed, v.speed))
			return
		}
		v.speed = speed
	}
	if len(v.put) != v.streets {
		v.err = errors.Join(v.err, fmt.Errorf("layer %d has %d streets, want %d", v.layers, len(v.put), v.streets))
	}
}

func (v *view) Confirm(time.Time) {}

// follow shows the topic in a view.
func follow(t *testing.T, cfg dial.Kafka, streets int) *view {
	t.Helper()
	all := forecasts.DefaultConfig()
	all.Feed, all.Kafka = forecasts.FeedKafka, cfg
	v := &view{streets: streets, put: map[string]float64{}}
	feed, err := forecasts.New(all, v, zerolog.New(zerolog.NewTestWriter(t)))
	require.NoError(t, err)
	feed.Start(t.Context())
	t.Cleanup(feed.Close)
	return v
}

// await waits until the last layer has the speed, and returns the number of layers.
func (v *view) await(t *testing.T, speed float64) (layers int) {
	t.Helper()
	require.NoError(t, launch.Eventually(t.Context(), time.Minute, func() error {
		v.mu.Lock()
		defer v.mu.Unlock()
		require.NoError(t, v.err)
		layers = v.layers
		if layers == 0 || v.speed != speed {
			return fmt.Errorf("%d layers, the last one has generation %g", layers, v.speed)
		}
		return nil
	}))
	return layers
}

func publisher(t *testing.T, k *stores.Kafka, topic string, o Options) *Publisher {
	t.Helper()
	cfg := forecasts.DefaultConfig().Kafka
	cfg.Brokers, cfg.Topic = k.Brokers, topic
	o.Timeout = time.Minute
	p, err := NewPublisher(cfg, o)
	require.NoError(t, err)
	t.Cleanup(p.Close)
	return p
}

// generationOf returns forecasts that all have the given speed.
func generationOf(streets int, speed float64) []*pb.StreetForecast {
	all := make([]*pb.StreetForecast, streets)
	for i := range all {
		all[i] = &pb.StreetForecast{Street: int32(i + 1), Fromnode: 1, Forecast: []*pb.ForecastPeriod{{
			Start: "2026-11-20T18:00:00Z", End: "2026-11-20T18:15:00Z", SpeedValid: proto.Bool(true), Speed: speed,
		}}}
	}
	return all
}

func ignoreCount(int) {}

// TestBrokers runs the same tests on both kinds of broker.
func TestBrokers(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{stores.Kfake, stores.Apache} {
		t.Run(kind, func(t *testing.T) {
			k := stores.StartKafka(t, stores.Broker(kind))
			t.Run("mixed reads", func(t *testing.T) { testNoMixedReads(t, k) })
			t.Run("killed", func(t *testing.T) { testKilledPublisher(t, k) })
			t.Run("permissions", func(t *testing.T) { testPermissions(t, k) })
			t.Run("interrupted", func(t *testing.T) { testInterrupted(t, k) })
		})
	}
}

// testNoMixedReads publishes generations, one after the other and with pauses. No layer has streets
// of two generations.
func testNoMixedReads(t *testing.T, k *stores.Kafka) {
	const streets, generations = 120, 60
	pauses := []time.Duration{0, 10 * time.Millisecond, 300 * time.Millisecond} // the daemon polls every second
	for topic, partitions := range map[string]int{"one": 1, "six": 6} {
		k.Create(t, topic, partitions)
		p := publisher(t, k, topic, Options{})
		require.NoError(t, p.Publish(t.Context(), generationOf(streets, 0), nil, ignoreCount))
		v := follow(t, p.cfg, streets)
		v.await(t, 0)
		for n := 1; n <= generations; n++ {
			require.NoError(t, p.Publish(t.Context(), generationOf(streets, float64(n)), nil, ignoreCount))
			time.Sleep(pauses[n%len(pauses)])
		}
		layers := v.await(t, generations)
		t.Logf("%s: %d layers shown", topic, layers)
		require.Greater(t, layers, 3)
		for _, r := range k.Records(t, topic) {
			require.Zero(t, r.Partition, "a publication must be on one partition")
		}
	}
}

// testKilledPublisher kills a publisher between two records of a publication: neither a daemon that
// follows the topic nor one that starts later shows any of it, and the next publication is shown as
// a whole.
func testKilledPublisher(t *testing.T, k *stores.Kafka) {
	const streets = 60
	k.Create(t, "killed", 6)
	first := publisher(t, k, "killed", Options{})
	require.NoError(t, first.Publish(t.Context(), generationOf(streets, 1), nil, ignoreCount))
	v := follow(t, first.cfg, streets)
	v.await(t, 1)

	killed := publisher(t, k, "killed", Options{})
	tx, err := killed.begin(t.Context(), 0)
	require.NoError(t, err)
	for i, f := range generationOf(streets/2, 2) {
		value, err := proto.Marshal(f)
		require.NoError(t, err)
		record := protocol.Record{Key: protocol.NewBytes(forecasts.Key(f)), Value: protocol.NewBytes(value)}
		require.NoError(t, tx.write(t.Context(), i, []protocol.Record{record}))
	}
	killed.Close() // no commit, no abort

	later := follow(t, first.cfg, streets)
	v.await(t, 1)
	digests, err := publisher(t, k, "killed", Options{}).Digests(t.Context(), 20*time.Second)
	require.NoError(t, err)
	require.Len(t, digests, streets)
	for _, f := range generationOf(streets, 1) {
		require.Equal(t, Digest(f), digests[string(forecasts.Key(f))])
	}
	require.NoError(t, first.Publish(t.Context(), generationOf(streets, 3), nil, ignoreCount))
	v.await(t, 3)
	later.await(t, 3)
	follow(t, first.cfg, streets).await(t, 3)
	err = tx.commit(t.Context())
	require.ErrorContains(t, err, `another publisher with the transactional ID "trafficctl-forecasts-killed" took over`)
	require.True(t, Fenced(err))
}

// testPermissions checks that the check of permissions does not affect a transaction in progress.
func testPermissions(t *testing.T, k *stores.Kafka) {
	k.Create(t, "permissions", 1)
	p := publisher(t, k, "permissions", Options{})
	tx, err := p.begin(t.Context(), 0)
	require.NoError(t, err)
	topic, id := publisher(t, k, "permissions", Options{}).CheckPermissions(t.Context())
	require.NoError(t, errors.Join(topic, id))
	require.NoError(t, tx.write(t.Context(), 0, []protocol.Record{{Value: protocol.NewBytes([]byte("v"))}}))
	require.NoError(t, tx.commit(t.Context()))
}

// TestCheckPermissions checks that missing permissions are reported.
func TestCheckPermissions(t *testing.T) {
	user := func(name string, acls ...kfake.ACL) kfake.Opt { return kfake.User("PLAIN", name, "secret", acls...) }
	allow := func(operation kmsg.ACLOperation, resource kmsg.ACLResourceType, name string) kfake.ACL {
		return kfake.ACL{Resource: resource, Name: name, Pattern: kmsg.ACLResourcePatternTypeLiteral, Operation: operation, Allow: true}
	}
	read := allow(kmsg.ACLOperationRead, kmsg.ACLResourceTypeTopic, "forecasts")
	k := stores.StartKfake(t, kfake.SeedTopics(1, "forecasts"), kfake.EnableSASL(), kfake.EnableACLs(), user("reader", read),
		user("writer", read, allow(kmsg.ACLOperationWrite, kmsg.ACLResourceTypeTopic, "forecasts"),
			allow(kmsg.ACLOperationWrite, kmsg.ACLResourceTypeTransactionalId, "p")))
	f := func(user, wantTopic, wantID string) {
		t.Helper()
		cfg := forecasts.DefaultConfig().Kafka
		cfg.Brokers, cfg.SASL = k.ListenAddrs(), dial.SASL{Mechanism: "plain", Username: user, Password: "secret"}
		p, err := NewPublisher(cfg, Options{ID: "p"})
		require.NoError(t, err)
		defer p.Close()
		topic, id := p.CheckPermissions(t.Context())
		require.Contains(t, fmt.Sprint(topic), wantTopic)
		require.Contains(t, fmt.Sprint(id), wantID)
	}
	f("writer", "<nil>", "<nil>")
	f("reader", `sasl.username: cannot write to topic "forecasts"`, `transactional_id: cannot write with the transactional ID "p"`)
}

// testInterrupted checks that an interrupted publication is aborted, so it does not delay
// the next publication of another publisher.
func testInterrupted(t *testing.T, k *stores.Kafka) {
	k.Create(t, "interrupted", 1)
	p := publisher(t, k, "interrupted", Options{ID: "p"})
	require.NoError(t, p.Publish(t.Context(), generationOf(3000, 1), nil, ignoreCount))
	v := follow(t, p.cfg, 3000)
	v.await(t, 1)
	ctx, interrupt := context.WithCancel(t.Context())
	err := p.Publish(ctx, generationOf(3000, 2), nil, func(int) { interrupt() })
	require.ErrorContains(t, err, "nothing is published")
	other := publisher(t, k, "interrupted", Options{ID: "other"})
	require.NoError(t, other.Publish(t.Context(), generationOf(3000, 3), []string{"3001:1"}, ignoreCount))
	v.await(t, 3)
	digests, err := p.Digests(t.Context(), time.Minute)
	require.NoError(t, err)
	require.Len(t, digests, 3000)
}

// TestCommitInDoubt checks that without a response to the commit, it is unknown whether the
// forecasts are published.
func TestCommitInDoubt(t *testing.T) {
	k := stores.StartKfake(t, kfake.SeedTopics(1, "forecasts"))
	cfg := forecasts.DefaultConfig().Kafka
	cfg.Brokers = k.ListenAddrs()
	p, err := NewPublisher(cfg, Options{Timeout: time.Minute})
	require.NoError(t, err)
	defer p.Close()
	require.NoError(t, p.Publish(t.Context(), generationOf(1, 1), nil, ignoreCount))
	k.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.EndTxn}, Err: kerr.RequestTimedOut, Count: -1})
	ctx, cancel := context.WithCancel(t.Context())
	k.ControlKey(int16(kmsg.EndTxn), func(kmsg.Request) (kmsg.Response, error, bool) {
		cancel() // instead of repeating the request until the request timeout, which a busy machine could need
		return nil, nil, false
	})
	err = p.Publish(ctx, generationOf(1, 2), nil, ignoreCount)
	require.ErrorContains(t, err, "cannot commit the transaction")
	require.NotContains(t, err.Error(), "nothing is published")
}

// TestBatches checks that record batches have at least one record, and at most 1,000 records and
// 900 KiB unless a single record is larger.
func TestBatches(t *testing.T) {
	f := func(want []int, values ...int) {
		t.Helper()
		var records []protocol.Record
		for _, size := range values {
			records = append(records, protocol.Record{Key: protocol.NewBytes([]byte("k")), Value: protocol.NewBytes(make([]byte, size))})
		}
		var got []int
		for len(records) > 0 {
			n := len(firstBatch(records))
			got = append(got, n)
			records = records[n:]
		}
		require.Equal(t, want, got)
	}
	f([]int{3}, 1, 2, 3)
	f([]int{1, 1, 2}, 2<<20, 900<<10, 1, 2)
	f([]int{1000, 1000, 500}, slices.Repeat([]int{1}, 2500)...)
	f([]int{8, 2}, slices.Repeat([]int{100 << 10}, 10)...)
}

// TestRecreated checks that changes are not published to a topic that was recreated, because it
// lacks the other forecasts, until these have been read again.
func TestRecreated(t *testing.T) {
	k := stores.StartKafka(t, stores.Topic("one", 1))
	p := publisher(t, k, "one", Options{})
	require.NoError(t, p.Publish(t.Context(), generationOf(3, 1), nil, ignoreCount))
	digests, err := p.Digests(t.Context(), time.Minute)
	require.NoError(t, err)
	require.Len(t, digests, 3)
	require.NoError(t, p.Publish(t.Context(), generationOf(1, 2), nil, ignoreCount))

	_, err = p.client.DeleteTopics(t.Context(), &kafka.DeleteTopicsRequest{Topics: []string{"one"}})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		return launch.CreateTopic(t.Context(), k.Brokers, "one", 1, nil) == nil // it might not be deleted yet
	}, time.Minute, 100*time.Millisecond)
	require.ErrorIs(t, p.Publish(t.Context(), generationOf(1, 3), nil, ignoreCount), errRecreated)
	digests, err = p.Digests(t.Context(), time.Minute)
	require.NoError(t, err)
	require.Empty(t, digests)
	require.NoError(t, p.Publish(t.Context(), generationOf(3, 3), nil, ignoreCount))
	follow(t, p.cfg, 3).await(t, 3)
}

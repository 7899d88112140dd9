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
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"google.golang.org/protobuf/proto"

	"trafficd/cmd/devstores/stores"
	"trafficd/cmd/internal/launch"
	"trafficd/pipeline/dial"
	pb "trafficd/schemas/proto/trafficd/v1"
	"trafficd/sources/forecasts"
)

// view is a layer whose readers see the speed of each street.
type view struct {
	mu      sync.Mutex
	put     map[string]float64
	visible map[string]float64 // nil before the first Publish
	layers  int                // published
}

func newView() *view { return &view{put: make(map[string]float64)} }

func (v *view) Put(f *pb.StreetForecast) { v.put[string(forecasts.Key(f))] = f.Forecast[0].Speed }

func (v *view) Remove(street, fromnode int32) {
	delete(v.put, string(forecasts.Key(&pb.StreetForecast{Street: street, Fromnode: fromnode})))
}

func (v *view) Clear() { clear(v.put) }

func (v *view) Publish(time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.visible = make(map[string]float64, len(v.put))
	for key, speed := range v.put {
		v.visible[key] = speed
	}
	v.layers++
}

func (v *view) Confirm(time.Time) {}

// generation returns the speed that all streets have and the number of layers published. It returns
// an error if the speeds differ or the number of streets is wrong.
func (v *view) generation(streets int) (speed float64, layers int, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.visible == nil {
		return 0, 0, nil
	}
	speed = -1
	for key, s := range v.visible {
		if speed >= 0 && s != speed {
			return 0, 0, fmt.Errorf("street %s has generation %g, another has %g", key, s, speed)
		}
		speed = s
	}
	if len(v.visible) != streets {
		err = fmt.Errorf("got %d streets, want %d", len(v.visible), streets)
	}
	return speed, v.layers, err
}

// follow shows the topic in a view.
func follow(t *testing.T, cfg forecasts.KafkaConfig) *view {
	t.Helper()
	all := forecasts.DefaultConfig()
	all.Feed, all.Kafka = forecasts.FeedKafka, cfg
	all.Kafka.Interval, all.Kafka.Quiet = 10*time.Millisecond, 10*time.Millisecond
	v := newView()
	feed, err := forecasts.New(all, v, zerolog.New(zerolog.NewTestWriter(t)))
	require.NoError(t, err)
	feed.Start(t.Context())
	t.Cleanup(feed.Close)
	return v
}

func (v *view) await(t *testing.T, streets int, speed float64) {
	t.Helper()
	require.NoError(t, launch.Eventually(t.Context(), time.Minute, func() error {
		got, layers, err := v.generation(streets)
		require.NoError(t, err)
		if layers == 0 || got != speed {
			return fmt.Errorf("%d layers, the last one has generation %g", layers, got)
		}
		return nil
	}))
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

// brokers starts each kind of broker in turn.
func brokers(t *testing.T, test func(t *testing.T, k *stores.Kafka)) {
	for _, kind := range []string{stores.Kfake, stores.Apache} {
		t.Run(kind, func(t *testing.T) {
			test(t, stores.StartKafka(t, stores.Broker(kind), stores.Topic("one", 1), stores.Topic("six", 6)))
		})
	}
}

// TestNoMixedReads reads 10,000 layers while generations are published, one after the other and
// with pauses. No layer has streets of two generations.
func TestNoMixedReads(t *testing.T) {
	const streets, reads = 120, 10_000
	brokers(t, func(t *testing.T, k *stores.Kafka) {
		for _, topic := range []string{"one", "six"} {
			p := publisher(t, k, topic, Options{})
			require.NoError(t, p.Publish(t.Context(), generationOf(streets, 0), nil, ignoreCount))
			v := follow(t, p.cfg)
			v.await(t, streets, 0)
			ctx, stop := context.WithCancel(t.Context())
			var publishing sync.WaitGroup
			published := 0
			publishing.Go(func() {
				for ctx.Err() == nil {
					published++
					if err := p.Publish(ctx, generationOf(streets, float64(published%500)), nil, ignoreCount); err != nil && ctx.Err() == nil {
						t.Error(err)
						return
					}
					select {
					case <-ctx.Done():
					case <-time.After([]time.Duration{0, 10 * time.Millisecond, 100 * time.Millisecond}[published/20%3]):
					}
				}
			})
			layers := 0
			for read := 0; read < reads || layers <= 5; read++ { // a busy machine publishes slowly
				_, seen, err := v.generation(streets)
				if !assert.NoError(t, err) {
					break
				}
				layers = max(layers, seen)
				time.Sleep(100 * time.Microsecond)
			}
			stop()
			publishing.Wait()
			t.Logf("%s: %d generations published, %d layers shown", topic, published, layers)
		}
	})
}

// TestKilledPublisher kills a publisher between two records of a publication: neither a daemon that
// follows the topic nor one that starts later shows any of it, and the next publication is shown as
// a whole.
func TestKilledPublisher(t *testing.T) {
	const streets = 60
	brokers(t, func(t *testing.T, k *stores.Kafka) {
		first := publisher(t, k, "six", Options{})
		require.NoError(t, first.Publish(t.Context(), generationOf(streets, 1), nil, ignoreCount))
		v := follow(t, first.cfg)
		v.await(t, streets, 1)

		killed := publisher(t, k, "six", Options{})
		tx, err := killed.begin(t.Context(), []int{0, 1, 2, 3, 4, 5})
		require.NoError(t, err)
		for i, f := range generationOf(streets/2, 2) {
			value, err := proto.Marshal(f)
			require.NoError(t, err)
			record := protocol.Record{Key: protocol.NewBytes(forecasts.Key(f)), Value: protocol.NewBytes(value)}
			require.NoError(t, tx.write(t.Context(), i%6, i/6, []protocol.Record{record}))
		}
		killed.Close() // no commit, no abort

		short := first.cfg
		short.TransactionWait = time.Second
		follow(t, short).await(t, streets, 1)
		later := follow(t, first.cfg)
		v.await(t, streets, 1)
		digests, err := publisher(t, k, "six", Options{}).Digests(t.Context(), 20*time.Second)
		require.NoError(t, err)
		require.Len(t, digests, streets)
		for _, f := range generationOf(streets, 1) {
			require.Equal(t, Digest(f), digests[string(forecasts.Key(f))])
		}
		require.NoError(t, first.Publish(t.Context(), generationOf(streets, 3), nil, ignoreCount))
		v.await(t, streets, 3)
		later.await(t, streets, 3)
		follow(t, first.cfg).await(t, streets, 3)
		err = tx.commit(t.Context())
		require.ErrorContains(t, err, `another publisher with the transactional ID "trafficctl-forecasts-six" took over`)
		require.True(t, Fenced(err))
	})
}

// TestCheckPermissions checks that missing permissions are reported, and that the check does not
// affect a transaction in progress.
func TestCheckPermissions(t *testing.T) {
	brokers(t, func(t *testing.T, k *stores.Kafka) {
		p := publisher(t, k, "one", Options{})
		tx, err := p.begin(t.Context(), []int{0})
		require.NoError(t, err)
		topic, id := publisher(t, k, "one", Options{}).CheckPermissions(t.Context())
		require.NoError(t, errors.Join(topic, id))
		require.NoError(t, tx.write(t.Context(), 0, 0, []protocol.Record{{Value: protocol.NewBytes([]byte("v"))}}))
		require.NoError(t, tx.commit(t.Context()))
	})
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

// TestPublishInterrupted checks that an interrupted publication is aborted, so it does not delay
// the next publication of another publisher.
func TestPublishInterrupted(t *testing.T) {
	brokers(t, func(t *testing.T, k *stores.Kafka) {
		p := publisher(t, k, "one", Options{ID: "p"})
		require.NoError(t, p.Publish(t.Context(), generationOf(3000, 1), nil, ignoreCount))
		v := follow(t, p.cfg)
		v.await(t, 3000, 1)
		ctx, interrupt := context.WithCancel(t.Context())
		err := p.Publish(ctx, generationOf(3000, 2), nil, func(int) { interrupt() })
		require.ErrorContains(t, err, "nothing is published")
		other := publisher(t, k, "one", Options{ID: "other"})
		require.NoError(t, other.Publish(t.Context(), generationOf(3000, 3), []string{"3001:1"}, ignoreCount))
		v.await(t, 3000, 3)
		digests, err := p.Digests(t.Context(), time.Minute)
		require.NoError(t, err)
		require.Len(t, digests, 3000)
	})
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
	follow(t, p.cfg).await(t, 3, 3)
}

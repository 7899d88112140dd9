package kafka

import (
	"context"
	"errors"
	"net"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"trafficd/cmd/dev/devstores/stores"
	"trafficd/pipeline/batch"
)

// TestBrokerUnavailable starts the sink while the broker is stopped, and later stops the broker
// between two blocks.
func TestBrokerUnavailable(t *testing.T) {
	k := stores.StartKafka(t, stores.Topic("measurements", 4))
	require.NoError(t, k.Stop())
	cfg := testConfig("measurements", k.Brokers...)
	cfg.BlockRows = 300
	s, loop := newSink(t, cfg), &deliveryLoop{t: t}
	rng := random()
	rows := block(rowsOf(rng, 1000, 50))
	loop.add(rows)
	for range 3 {
		_, _, err := s.Plan(t.Context(), nil, rows)
		require.ErrorContains(t, err, k.Brokers[0])
	}
	require.NoError(t, k.Restart())
	loop.run(s)

	for range 2 {
		more := block(rowsOf(rng, 1000, 50))
		rows = append(rows, more...)
		loop.add(more)
		require.NoError(t, loop.step(s))
		require.NoError(t, k.Stop())
		require.Error(t, loop.step(s))
		require.ErrorContains(t, loop.step(s), "connection refused", "the error must name the cause, not an unknown topic")
		require.NoError(t, k.Restart())
		loop.run(s)
	}
	requireOnce(t, k.Brokers, "measurements", rows)
}

// TestHangingBroker lists a broker that accepts connections but never responds. Only the first
// connection to it delays deliveries.
func TestHangingBroker(t *testing.T) {
	hanging, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer hanging.Close()
	brokers := stores.StartKfake(t, kfake.SeedTopics(4, "measurements")).ListenAddrs()
	cfg := testConfig("measurements", append([]string{hanging.Addr().String()}, brokers...)...)
	cfg.DialTimeout = 2 * time.Second
	s, loop := newSink(t, cfg), &deliveryLoop{t: t}
	var rows batch.Block
	for range 20 {
		more := block(rowsOf(random(), 100, 50))
		rows = append(rows, more...)
		loop.add(more)
		loop.run(s)
		s.cluster.refresh()
	}
	require.LessOrEqual(t, loop.retries, 1)
	requireOnce(t, brokers, "measurements", rows)
}

// TestPausedBroker pauses the broker while a request is in its socket. The request gets no
// response, but is processed later.
func TestPausedBroker(t *testing.T) {
	k := stores.StartKafka(t, stores.Topic("measurements", 2))
	cfg := testConfig("measurements", k.Brokers...)
	cfg.RequestTimeout = 500 * time.Millisecond
	s, loop := newSink(t, cfg), &deliveryLoop{t: t}
	first, second := block(rowsOf(random(), 500, 50)), block(rowsOf(random(), 500, 50))
	loop.add(first)
	loop.run(s)
	loop.add(second)
	require.Eventually(t, func() bool { // request_timeout is short
		var err error
		loop.n, loop.plan, err = s.Plan(t.Context(), loop.state, loop.rows)
		return err == nil
	}, time.Minute, 10*time.Millisecond)
	require.NoError(t, k.Pause())
	require.Error(t, loop.step(s))
	for _, e := range s.encoders {
		require.Nil(t, e.frame, "the connection may still read the frame")
	}
	require.NoError(t, k.Resume())
	loop.run(s)
	requireOnce(t, k.Brokers, "measurements", append(first, second...))
}

// TestForgottenProducer has Apache Kafka forget a producer while its block is in doubt. The broker
// then accepts any sequence, and only the lookup finds the rows.
func TestForgottenProducer(t *testing.T) {
	f := func(name string, sinkForRetry func(t *testing.T, cfg Config, s *Sink) *Sink) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			expiration := producerExpiration()
			k := stores.StartKafka(t, stores.Broker(stores.Apache), stores.Topic("measurements", 2),
				stores.Set("producer.id.expiration.ms", strconv.FormatInt(expiration.Milliseconds(), 10)), stores.Set("producer.id.expiration.check.interval.ms", "200"))
			cfg := testConfig("measurements", k.Brokers...)
			cfg.ResolveAfter = expiration
			cutter := new(connectionCutter)
			s, loop := cutter.sink(t, cfg), &deliveryLoop{t: t}
			first, second := block(rowsOf(random(), 500, 50)), block(rowsOf(random(), 500, 50))
			loop.add(first)
			loop.run(s)

			loop.add(second) // written without a response, then forgotten
			cutter.cuts.Store(2)
			require.Error(t, loop.step(s))
			requireOnce(t, k.Brokers, "measurements", append(first, second...))
			waitForgotten(t, cfg)
			loop.run(sinkForRetry(t, cfg, s))
			requireOnce(t, k.Brokers, "measurements", append(first, second...))
		})
	}
	f("same process", func(_ *testing.T, _ Config, s *Sink) *Sink { return s })
	f("restart", func(t *testing.T, cfg Config, _ *Sink) *Sink { return newSink(t, cfg) })
}

// TestRecreatedTopicForgottenProducer restarts the sink with a block in doubt that was written to a
// recreated topic. The offsets in its plan are those of the former topic, another daemon has
// written above them, and Apache Kafka has forgotten the producer.
func TestRecreatedTopicForgottenProducer(t *testing.T) {
	t.Parallel()
	k := stores.StartKafka(t, stores.Broker(stores.Apache), stores.Topic("measurements", 2),
		stores.Set("producer.id.expiration.ms", "1000"), stores.Set("producer.id.expiration.check.interval.ms", "200"))
	cfg := testConfig("measurements", k.Brokers...)
	cutter := new(connectionCutter)
	s, loop := cutter.sink(t, cfg), &deliveryLoop{t: t}
	loop.add(block(rowsOf(random(), 100, 50)))
	loop.run(s)

	_, err := kadm.NewClient(client(t, cfg)).DeleteTopic(t.Context(), cfg.Topic)
	require.NoError(t, err)
	k.Create(t, cfg.Topic, 2)
	require.Eventually(t, func() bool {
		records, err := stores.ReadTopic(t.Context(), k.Brokers, cfg.Topic)
		return err == nil && len(records) == 0
	}, time.Minute, 100*time.Millisecond)
	rows := block(rowsOf(random(), 50, 50)) // written without a response
	loop.add(rows)
	s.cluster.refresh()
	cutter.cuts.Store(2)
	require.Error(t, loop.step(s))
	requireOnce(t, k.Brokers, cfg.Topic, rows)

	other := &deliveryLoop{t: t}
	other.add(block(rowsOf(random(), 1000, 50)))
	rows = append(rows, other.rows...)
	other.run(newSink(t, cfg))
	waitForgotten(t, cfg)
	loop.run(newSink(t, cfg))
	requireOnce(t, k.Brokers, cfg.Topic, rows)

	last, err := decodeState(loop.state)
	require.NoError(t, err)
	loop.add(block(rowsOf(random(), 50, 50)))
	_, plan, err := newSink(t, cfg).Plan(t.Context(), loop.state, loop.rows)
	require.NoError(t, err)
	next, err := decodePlan(plan)
	require.NoError(t, err)
	require.NotEqual(t, last.topicID, next.topicID)
	require.Equal(t, []int64{unknownOffset, unknownOffset}, next.offsets, "offsets of two topics must not be mixed")
}

// producerExpiration returns the time after which the broker forgets a producer: a realistic minute
// if all tests run on Apache Kafka, otherwise a second.
func producerExpiration() time.Duration {
	if os.Getenv(stores.KafkaEnv) == stores.Apache {
		return time.Minute
	}
	return time.Second
}

// TestOldRecords delivers rows that have waited so long that the broker expires their producer
// immediately, because the timestamp of the last record, received_at, is too old.
func TestOldRecords(t *testing.T) {
	k := stores.StartKafka(t, stores.Broker(stores.Apache), stores.Topic("measurements", 2),
		stores.Set("producer.id.expiration.ms", "60000"), stores.Set("producer.id.expiration.check.interval.ms", "200"))
	cfg := testConfig("measurements", k.Brokers...)
	cutter := new(connectionCutter)
	s, loop := cutter.sink(t, cfg), &deliveryLoop{t: t}
	waited := rowsOf(random(), 500, 50)
	waited.ReceivedAt -= (2 * time.Minute).Nanoseconds()
	rows := block(waited)
	loop.add(rows)
	cutter.cuts.Store(2)
	require.Error(t, loop.step(s))
	waitForgotten(t, cfg)
	loop.run(s)
	requireOnce(t, k.Brokers, "measurements", rows)
}

// waitForgotten waits until the broker has forgotten all producers of the topic.
func waitForgotten(t *testing.T, cfg Config) {
	t.Helper()
	k := client(t, cfg)
	request := kmsg.NewDescribeProducersRequest()
	request.Topics = []kmsg.DescribeProducersRequestTopic{{Topic: cfg.Topic, Partitions: []int32{0, 1}}}
	require.Eventually(t, func() bool {
		response, err := request.RequestWith(t.Context(), k)
		if err != nil || len(response.Topics) != 1 {
			return false
		}
		for _, p := range response.Topics[0].Partitions {
			if p.ErrorCode != 0 || len(p.ActiveProducers) > 0 {
				return false
			}
		}
		return len(response.Topics[0].Partitions) == 2
	}, 2*time.Minute, 50*time.Millisecond)
}

// TestBrokerKilled kills Apache Kafka while blocks are in flight.
func TestBrokerKilled(t *testing.T) {
	k := stores.StartKafka(t, stores.Broker(stores.Apache), stores.Topic("measurements", 4))
	cfg := testConfig("measurements", k.Brokers...)
	cfg.BlockRows = 100
	s, loop, rng := newSink(t, cfg), &deliveryLoop{t: t}, random()
	loop.add(block(rowsOf(rng, 100, 50)))
	rows := loop.rows
	loop.run(s)
	for range 2 {
		killed, before := make(chan error, 1), loop.retries
		go func() { killed <- errors.Join(k.Kill(), k.Restart()) }()
		for loop.retries == before { // the broker may be killed only after the first 140 blocks
			more := block(rowsOf(rng, 14_000, 50))
			rows = append(rows, more...)
			loop.add(more)
			loop.run(s)
		}
		require.NoError(t, <-killed)
	}
	requireOnce(t, k.Brokers, "measurements", rows)
}

// TestCancel cancels a call of Plan that waits for a broker that never responds.
func TestCancel(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // accepts connections, never responds
	require.NoError(t, err)
	defer l.Close()
	s, err := New(testConfig("measurements", l.Addr().String()), zerolog.Nop())
	require.NoError(t, err)
	defer s.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, _, err = s.Plan(ctx, nil, block(rowsOf(random(), 1, 1)))
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

package kafka

import (
	"bytes"
	"fmt"
	"math"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"trafficd/cmd/dev/devstores/stores"
	"trafficd/cmd/dev/needs"
	"trafficd/pipeline/batch"
	"trafficd/pipeline/lib/dial"
)

// TestLateRecords checks that rows wait while the topic would delete or reject them because they
// are late, and are delivered once its settings are corrected.
func TestLateRecords(t *testing.T) {
	k := stores.StartKafka(t)
	f := func(topic, key, value, then, thenValue string) {
		t.Helper()
		k.Create(t, topic, 1)
		cfg := testConfig(topic, k.Brokers...)
		admin := kadm.NewClient(client(t, cfg))
		set := func(key, value string) {
			t.Helper()
			responses, err := admin.AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Name: key, Value: &value}}, topic)
			require.NoError(t, err)
			_, err = responses.On(topic, nil)
			require.NoError(t, err)
		}
		set(key, value)
		rows := rowsOf(random(), 100, 10)
		rows.ReceivedAt = time.Now().Add(-50 * time.Minute).UnixNano()
		sink := newSink(t, cfg)
		loop := deliveryLoop{t: t}
		loop.add(block(rows))
		require.Eventually(t, func() bool { // a broker that has just started refuses producers for a while
			return strings.Contains(fmt.Sprint(loop.step(sink)), "because of its "+key+" "+value)
		}, time.Minute, 100*time.Millisecond)
		require.Empty(t, k.Records(t, topic))
		set(then, thenValue)
		loop.run(sink)
		require.Len(t, k.Records(t, topic), 100)
	}
	f("short", "retention.ms", "3600000", "retention.ms", "604800000")
	f("early", "message.timestamp.before.max.ms", "600000", "message.timestamp.type", "LogAppendTime")
}

// TestShortProducerExpiry checks that the deep check compares resolve_after with the brokers'
// memory of producers.
func TestShortProducerExpiry(t *testing.T) {
	needs.Everything(t, "Apache Kafka")
	for value, want := range map[string]string{"60000": "resolve_after: producer.id.expiration.ms of the brokers is 60000, must be at least 120000", "86400000": ""} {
		k := stores.StartKafka(t, stores.Broker("apache"), stores.Set("producer.id.expiration.ms", value), stores.Topic("t", 1))
		err := testConfig("t", k.Brokers...).Check(t.Context(), true)
		if want == "" {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, want)
		}
	}
}

// TestBroker tests the sink with a broker process, which is kfake or Apache Kafka.
func TestBroker(t *testing.T) {
	k := stores.StartKafka(t)
	run := func(name string, partitions int, f func(t *testing.T, topic string, cfg Config)) {
		t.Run(name, func(t *testing.T) {
			topic := "t-" + strconv.FormatInt(time.Now().UnixNano(), 36)
			if partitions > 0 {
				k.Create(t, topic, partitions)
			}
			f(t, topic, testConfig(topic, k.Brokers...))
		})
	}

	run("every column, every codec", 6, func(t *testing.T, topic string, cfg Config) {
		rng, loop := random(), &deliveryLoop{t: t}
		all := block()
		for name := range codecs {
			cfg.Compression = name
			rows := block(rowsOf(rng, 700, 60), rowsOf(rng, 1, 1), rowsOf(rng, 300, 60))
			loop.add(rows)
			loop.run(newSink(t, cfg))
			all = append(all, rows...)
		}
		requireOnce(t, k.Brokers, topic, all)
	})

	run("one partition, a whole batch", 1, func(t *testing.T, topic string, cfg Config) {
		loop, rows := &deliveryLoop{t: t}, block(rowsOf(random(), 14_000, 3000))
		loop.add(rows)
		loop.run(newSink(t, cfg))
		requireOnce(t, k.Brokers, topic, rows)
	})

	run("many blocks in one session", 3, func(t *testing.T, topic string, cfg Config) {
		cfg.BlockRows = 37
		loop, rows := &deliveryLoop{t: t}, block(rowsOf(random(), 1000, 20))
		loop.add(rows)
		s := newSink(t, cfg)
		loop.run(s)
		require.NotNil(t, s.session)
		sent := int32(0)
		for _, n := range s.session.sequences {
			sent += n
		}
		require.EqualValues(t, 1000, sent)
		requireOnce(t, k.Brokers, topic, rows)
	})

	run("the same plan several times", 4, func(t *testing.T, topic string, cfg Config) {
		s, rows := newSink(t, cfg), block(rowsOf(random(), 500, 40))
		n, plan := planned(t, s, rows)
		require.Equal(t, 500, n)
		var states [][]byte
		for range 5 {
			state, err := s.Deliver(t.Context(), plan, rows)
			require.NoError(t, err)
			states = append(states, state)
		}
		state, err := newSink(t, cfg).Deliver(t.Context(), plan, rows)
		require.NoError(t, err)
		for _, other := range append(states, state) {
			require.Equal(t, states[0], other)
		}
		requireOnce(t, k.Brokers, topic, rows)
	})

	run("a lost acknowledgement", 4, func(t *testing.T, topic string, cfg Config) {
		cutter := new(connectionCutter)
		loop, rows := &deliveryLoop{t: t}, block(rowsOf(random(), 2000, 40))
		loop.add(rows)
		s := cutter.sink(t, cfg)
		cutter.cuts.Store(6)
		loop.run(s)
		require.Positive(t, loop.retries)
		requireOnce(t, k.Brokers, topic, rows)
	})

	run("a restart after every attempt", 4, func(t *testing.T, topic string, cfg Config) {
		cutter := new(connectionCutter)
		cutter.cuts.Store(12)
		cfg.BlockRows = 500
		loop, rows := &deliveryLoop{t: t}, block(rowsOf(random(), 2000, 40))
		loop.add(rows)
		require.Eventually(t, func() bool {
			_ = loop.step(cutter.sink(t, cfg))
			return len(loop.rows) == 0
		}, time.Minute, time.Millisecond)
		require.Negative(t, cutter.cuts.Load(), "all connections must have been cut")
		requireOnce(t, k.Brokers, topic, rows)
	})

	run("killed between plan and delivery", 4, func(t *testing.T, topic string, cfg Config) {
		loop, rows := &deliveryLoop{t: t}, block(rowsOf(random(), 600, 40))
		loop.add(rows)
		loop.n, loop.plan = planned(t, newSink(t, cfg), rows)
		loop.run(newSink(t, cfg))
		requireOnce(t, k.Brokers, topic, rows)
	})

	run("sequences start again after 2^31-1", 2, func(t *testing.T, topic string, cfg Config) {
		cfg.BlockRows = 100
		loop, rows := &deliveryLoop{t: t}, block(rowsOf(random(), 1000, 40))
		warm := block(rowsOf(random(), 100, 40)) // the first sequence in a new partition must be 0
		loop.add(warm)
		s := newSink(t, cfg)
		loop.run(s)
		id := s.session.id + 4711 // unknown to the broker, which therefore accepts any first sequence
		s.session = &session{id: id, sequences: []int32{math.MaxInt32 - 120, math.MaxInt32 - 99}}
		loop.add(rows)
		loop.run(s)
		require.Less(t, s.session.sequences[0], int32(1000))
		if k.Kind == stores.Apache { // kfake wraps to 0 one sequence too early; the lookup corrects that
			require.Equal(t, id, s.session.id, "the session must not be replaced")
		}
		requireOnce(t, k.Brokers, topic, append(warm, rows...))
	})

	run("an epoch fenced by another producer", 2, func(t *testing.T, topic string, cfg Config) {
		loop, first := &deliveryLoop{t: t}, block(rowsOf(random(), 300, 40))
		loop.add(first)
		s := newSink(t, cfg)
		loop.run(s)
		other := newSink(t, cfg) // another sink with the same producer ID and a later epoch
		fencing := block(rowsOf(random(), 50, 40))
		_, plan := planned(t, other, fencing)
		p, err := decodePlan(plan)
		require.NoError(t, err)
		p.id, p.epoch = s.session.id, 1
		other.planned = p.encode()
		_, err = other.Deliver(t.Context(), p.encode(), fencing)
		require.NoError(t, err)

		second := block(rowsOf(random(), 300, 40))
		loop.add(second)
		loop.run(s)
		require.Nil(t, s.session, "the next plan needs a new producer")
		requireSet(t, k.Records(t, topic), append(append(first, fencing...), second...))
	})

	run("sequences that the broker does not expect", 2, func(t *testing.T, topic string, cfg Config) {
		loop, first := &deliveryLoop{t: t}, block(rowsOf(random(), 300, 40))
		loop.add(first)
		s := newSink(t, cfg)
		loop.run(s)
		s.session.sequences[0] += 7
		second := block(rowsOf(random(), 300, 40))
		loop.add(second)
		loop.run(s)
		requireOnce(t, k.Brokers, topic, append(first, second...))
	})

	run("a missing topic", 0, func(t *testing.T, topic string, cfg Config) {
		s, rows := newSink(t, cfg), block(rowsOf(random(), 100, 40))
		_, _, err := s.Plan(t.Context(), nil, rows)
		require.ErrorContains(t, err, "create the topic")
		require.ErrorContains(t, err, topic)
		k.Create(t, topic, 3) // as the operator would
		loop := &deliveryLoop{t: t}
		loop.add(rows)
		loop.run(s)
		requireOnce(t, k.Brokers, topic, rows)
	})

	run("a topic that the sink creates", 0, func(t *testing.T, topic string, cfg Config) {
		cfg.CreateTopic = CreateTopic{Partitions: 5, ReplicationFactor: 1}
		loop, rows := &deliveryLoop{t: t}, block(rowsOf(random(), 400, 40))
		loop.add(rows)
		s := newSink(t, cfg)
		loop.run(s)
		require.Len(t, s.session.sequences, 5)
		requireOnce(t, k.Brokers, topic, rows)
	})

	run("partitions added between plans", 2, func(t *testing.T, topic string, cfg Config) {
		cfg.BlockRows, cfg.MetadataMaxAge = 200, time.Second
		loop, rows := &deliveryLoop{t: t}, block(rowsOf(random(), 600, 60))
		loop.add(rows)
		s := newSink(t, cfg)
		require.Eventually(t, func() bool { return loop.step(s) == nil }, time.Minute, 10*time.Millisecond)
		loop.n, loop.plan = planned(t, s, loop.rows)
		request := kmsg.NewCreatePartitionsRequest()
		request.Topics = []kmsg.CreatePartitionsRequestTopic{{Topic: topic, Count: 5}}
		request.TimeoutMillis = 5000
		response, err := request.RequestWith(t.Context(), client(t, cfg))
		require.NoError(t, err)
		require.Zero(t, response.Topics[0].ErrorCode)
		require.Eventually(t, func() bool {
			_, n, err := s.cluster.describe(t.Context())
			return err == nil && n == 5
		}, time.Minute, 20*time.Millisecond)
		loop.run(s)
		records, err := stores.ReadTopic(t.Context(), cfg.Brokers, topic)
		require.NoError(t, err)
		requireSet(t, records, rows)
		perPartition := map[int32]int{}
		for i, partitions := range []int{2, 2, 5} { // the existing plan is sent unchanged
			for r := 200 * i; r < 200*i+200; r++ {
				perPartition[int32(dial.PartitionOf(rows[0].Code(r), partitions))]++
			}
		}
		for _, r := range records {
			perPartition[r.Partition]--
		}
		for p, n := range perPartition {
			require.Zero(t, n, "partition %d", p)
		}
	})

	run("a lookup among records of other producers", 1, func(t *testing.T, topic string, cfg Config) {
		produceOthers := func(n int, commit kgo.TransactionEndTry) {
			k := client(t, cfg, kgo.TransactionalID(topic), kgo.ProducerBatchCompression(kgo.NoCompression())) // a lookup needs several responses
			require.NoError(t, k.BeginTransaction())
			for range n {
				require.NoError(t, k.ProduceSync(t.Context(), &kgo.Record{
					Topic: topic, Value: make([]byte, 3000),
					Headers: []kgo.RecordHeader{{Key: "index", Value: []byte("x")}, {Key: "batch-id"}},
				}).FirstErr())
			}
			require.NoError(t, k.EndTransaction(t.Context(), commit))
		}
		loop, rows := &deliveryLoop{t: t}, block(rowsOf(random(), 300, 60))
		loop.add(rows)
		loop.n, loop.plan = planned(t, newSink(t, cfg), rows)
		plan := loop.plan
		produceOthers(500, kgo.TryCommit)
		produceOthers(3, kgo.TryAbort)
		loop.run(newSink(t, cfg)) // the lookup finds no rows
		produceOthers(2, kgo.TryCommit)
		_, err := newSink(t, cfg).Deliver(t.Context(), plan, rows) // the lookup finds all rows
		require.NoError(t, err)
		records, err := stores.ReadTopic(t.Context(), cfg.Brokers, topic)
		require.NoError(t, err)
		sent := records[:0]
		for _, r := range records {
			if len(r.Key) > 0 {
				sent = append(sent, r)
			}
		}
		requireRecords(t, sent, rows)
	})

	run("kcat", 3, func(t *testing.T, topic string, cfg Config) {
		kcat := needs.Program(t, "kcat")
		loop, rows := &deliveryLoop{t: t}, block(rowsOf(random(), 300, 40))
		loop.add(rows)
		loop.run(newSink(t, cfg))
		out, err := exec.Command(kcat, "-C", "-q", "-b", strings.Join(k.Brokers, ","), "-t", topic, "-o", "beginning", "-e",
			"-X", "check.crcs=true", "-f", `%k|%T|%h|%S\n`).Output()
		require.NoError(t, err)
		got := map[string]int{}
		for line := range bytes.Lines(out) {
			got[strings.TrimSpace(string(line))]++
		}
		b := rows[0].Batch
		for r := range b.Rows() {
			want := string(b.Code(r)) + "|" + strconv.FormatInt(b.ReceivedAt/1e6, 10) + "|product-instance=" + b.ProductInstance +
				",batch-id=" + b.ID.String() + ",index=" + strconv.Itoa(int(b.Index[r])) + "|" + strconv.Itoa(len(appendMeasurement(nil, b, r)))
			require.Equal(t, 1, got[want], want)
		}
		require.Len(t, got, 300)
	})
}

// client returns a franz-go client, which is independent of the sink.
func client(t testing.TB, cfg Config, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	k, err := kgo.NewClient(append(opts, kgo.SeedBrokers(cfg.Brokers...))...)
	require.NoError(t, err)
	t.Cleanup(k.Close)
	return k
}

// planned returns a plan for the rows. It retries while a new topic has no leaders.
func planned(t testing.TB, s *Sink, rows batch.Block) (n int, plan []byte) {
	t.Helper()
	require.Eventually(t, func() bool {
		var err error
		n, plan, err = s.Plan(t.Context(), nil, rows)
		return err == nil
	}, time.Minute, 10*time.Millisecond)
	return n, plan
}

// requireSet is requireRecords for records in any order. It compares only their batch IDs and
// indexes.
func requireSet(t testing.TB, records []stores.Record, rows batch.Block) {
	t.Helper()
	unexpected := map[string]int{}
	for _, r := range records {
		unexpected[r.Header("batch-id")+"/"+r.Header("index")]++
	}
	require.Len(t, unexpected, len(records), "duplicate records")
	for _, s := range rows {
		for r := s.From; r < s.To; r++ {
			delete(unexpected, s.ID.String()+"/"+strconv.Itoa(int(s.Index[r])))
		}
	}
	require.Empty(t, unexpected)
	require.Len(t, records, rows.Rows())
}

package kafka

import (
	"bytes"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"trafficd/cmd/dev/devstores/stores"
	"trafficd/pipeline/batch"
)

const topic = "measurements"

// fixture is a kfake cluster with faults, a sink for it, and the state of the delivery loop.
type fixture struct {
	*kfake.Cluster
	*deliveryLoop
	cfg  Config
	sink *Sink
	rows batch.Block // all rows that were offered
}

func newFixture(t *testing.T, partitions int32, opts ...kfake.Opt) *fixture {
	t.Helper()
	c := stores.StartKfake(t, append([]kfake.Opt{kfake.SeedTopics(partitions, topic)}, opts...)...)
	s := &fixture{Cluster: c, deliveryLoop: &deliveryLoop{t: t}, cfg: testConfig(topic, c.ListenAddrs()...)}
	s.cfg.Compression = "none" // faults match text in the records
	s.restart()
	return s
}

func (s *fixture) restart() { s.sink = newSink(s.t, s.cfg) }

func (s *fixture) offer(b *batch.Batch) {
	s.rows = append(s.rows, block(b)...)
	s.add(block(b))
}

func (s *fixture) fault(err *kerr.Error, count int, when func(records []byte) bool, partitions ...int32) *kfake.FaultHandle {
	return s.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: topic, Partitions: partitions, Err: err, Count: count, When: func(r kmsg.Request) bool {
		return when == nil || when(r.(*kmsg.ProduceRequest).Topics[0].Partitions[0].Records)
	}})
}

func (s *fixture) requireOnce(excluded ...rowID) {
	s.t.Helper()
	requireOnce(s.t, s.ListenAddrs(), topic, s.rows, excluded...)
}

// TestOtherPartition makes the broker acknowledge a partition or topic other than the requested
// one, without writing anything.
func TestOtherPartition(t *testing.T) {
	f := func(change func(*kmsg.ProduceResponse)) {
		t.Helper()
		s := newFixture(t, 3)
		s.ControlKey(int16(kmsg.Produce), func(request kmsg.Request) (kmsg.Response, error, bool) {
			asked := request.(*kmsg.ProduceRequest).Topics[0]
			response := request.ResponseKind().(*kmsg.ProduceResponse)
			about := kmsg.NewProduceResponseTopic()
			about.Topic = asked.Topic
			about.Partitions = append(about.Partitions, kmsg.NewProduceResponseTopicPartition())
			about.Partitions[0].Partition = asked.Partitions[0].Partition
			response.Topics = append(response.Topics, about)
			change(response)
			return response, nil, true
		})
		s.offer(rowsOf(random(), 300, 40))
		require.ErrorContains(t, s.step(s.sink), "it is not about partition")
		s.run(s.sink)
		s.requireOnce()
	}
	f(func(r *kmsg.ProduceResponse) { r.Topics[0].Partitions[0].Partition++ })
	f(func(r *kmsg.ProduceResponse) { r.Topics[0].Topic = "another" })
	f(func(r *kmsg.ProduceResponse) { r.Topics[0].Partitions = nil })
	f(func(r *kmsg.ProduceResponse) { r.Topics = append(r.Topics, r.Topics[0]) })
}

// TestErrorResponses makes the broker respond to a block with each kind of error. In some cases the
// broker has nevertheless written the block.
func TestErrorResponses(t *testing.T) {
	f := func(count int, errs ...*kerr.Error) {
		t.Helper()
		s := newFixture(t, 3)
		counted := testutil.ToFloat64(recordsTotal)
		s.offer(rowsOf(random(), 300, 40))
		s.run(s.sink)
		for _, err := range errs {
			s.fault(err, count, nil)
		}
		s.offer(rowsOf(random(), 300, 40))
		s.run(s.sink)
		s.offer(rowsOf(random(), 300, 40))
		s.run(s.sink)
		s.requireOnce()
		require.EqualValues(t, 900, testutil.ToFloat64(recordsTotal)-counted)
	}
	f(7, kerr.RequestTimedOut)              // written
	f(7, kerr.NotEnoughReplicasAfterAppend) // written
	f(7, kerr.NotEnoughReplicas)
	f(7, kerr.NotLeaderForPartition)
	f(7, kerr.UnknownServerError)
	f(7, kerr.InvalidTimestamp)
	f(4, kerr.OutOfOrderSequenceNumber)
	f(4, kerr.InvalidProducerEpoch)
	f(4, kerr.UnknownProducerID)
	f(3, kerr.RequestTimedOut, kerr.DuplicateSequenceNumber)  // written, then reported as a duplicate
	f(3, kerr.RequestTimedOut, kerr.UnknownProducerID)        // written, then forgotten
	f(3, kerr.RequestTimedOut, kerr.OutOfOrderSequenceNumber) // written, then rejected as out of order
	f(3, kerr.RequestTimedOut, kerr.MessageTooLarge)          // written, then the limit was lowered
	f(2, kerr.RequestTimedOut, kerr.InvalidRecord, kerr.UnknownProducerID, kerr.NotLeaderForPartition)
}

// TestAcknowledgedPartIsNotResent checks that retries for one partition do not send anything to the
// other one again.
func TestAcknowledgedPartIsNotResent(t *testing.T) {
	s := newFixture(t, 2)
	s.fault(kerr.NotEnoughReplicas, 5, nil, 0)
	sent := s.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: topic, Partitions: []int32{1}, Observe: true, Count: -1})
	s.offer(rowsOf(random(), 100, 40))
	s.run(s.sink)
	require.Equal(t, 5, s.retries)
	require.Equal(t, 1, sent.Hits())
	s.requireOnce()
}

// TestLeaderMoves moves both partitions to other brokers between blocks.
func TestLeaderMoves(t *testing.T) {
	s := newFixture(t, 2, kfake.NumBrokers(3))
	for node := range int32(3) {
		s.offer(rowsOf(random(), 300, 40))
		s.run(s.sink)
		require.NoError(t, s.MoveTopicPartition(topic, 0, node))
		require.NoError(t, s.MoveTopicPartition(topic, 1, 2-node))
		s.offer(rowsOf(random(), 300, 40))
		s.run(s.sink)
	}
	s.requireOnce()
}

// TestRecreatedTopic recreates the topic between two blocks, and while a block is planned or in
// doubt.
func TestRecreatedTopic(t *testing.T) {
	s := newFixture(t, 2)
	recreate := func() {
		require.NoError(t, s.DeleteTopic(topic))
		require.NoError(t, s.CreateTopic(topic, 2, nil))
		s.rows = nil
	}
	s.offer(rowsOf(random(), 300, 40))
	s.run(s.sink)
	recreate()
	s.offer(rowsOf(random(), 200, 40))
	s.run(s.sink)
	s.requireOnce()

	s.offer(rowsOf(random(), 100, 40))
	s.n, s.plan = planned(t, s.sink, s.deliveryLoop.rows)
	recreate()
	s.rows = s.deliveryLoop.rows
	s.restart()
	s.run(s.sink)
	s.requireOnce()

	s.offer(rowsOf(random(), 50, 40))
	s.n, s.plan = planned(t, s.sink, s.deliveryLoop.rows)
	recreate()
	s.rows = s.deliveryLoop.rows
	s.fault(kerr.RequestTimedOut, 2, nil) // written at lower offsets than in the plan
	require.Error(t, s.step(s.sink))
	s.fault(kerr.UnknownProducerID, -1, nil) // for the next attempt
	s.restart()
	s.run(s.sink)
	s.requireOnce()
}

// TestRecreatedTopicThatGrows checks that a lookup finds rows below the last offset of a former
// topic with the same name, after another daemon has written above it.
func TestRecreatedTopicThatGrows(t *testing.T) {
	s := newFixture(t, 1)
	s.offer(rowsOf(random(), 100, 40))
	s.run(s.sink)
	require.NoError(t, s.DeleteTopic(topic))
	require.NoError(t, s.CreateTopic(topic, 1, nil))
	s.rows = nil
	s.offer(rowsOf(random(), 60, 40))
	s.run(s.sink)

	s.offer(rowsOf(random(), 20, 40))
	s.fault(kerr.RequestTimedOut, 1, nil) // written
	require.Error(t, s.step(s.sink))
	other := &deliveryLoop{t: t}
	other.add(block(rowsOf(random(), 30, 40)))
	s.rows = append(s.rows, other.rows...)
	other.run(newSink(t, s.cfg))
	s.restart()
	s.fault(kerr.UnknownProducerID, 1, nil) // if the rows were sent again
	s.run(s.sink)
	s.requireOnce()
}

// TestDeletedTopic deletes the topic between two blocks, and while a block is planned or in doubt.
// With create_topic, the sink creates it again, and delivers the block to it once.
func TestDeletedTopic(t *testing.T) {
	s := newFixture(t, 3)
	s.cfg.CreateTopic = CreateTopic{Partitions: 2, ReplicationFactor: 1}
	s.restart()
	s.offer(rowsOf(random(), 300, 40))
	s.run(s.sink)
	f := func(afterPlan func()) {
		s.offer(rowsOf(random(), 100, 40))
		afterPlan()
		s.rows = s.deliveryLoop.rows
		s.run(s.sink)
		s.requireOnce()
	}
	plan := func() {
		s.n, s.plan = planned(t, s.sink, s.deliveryLoop.rows)
	}
	deleteTopic := func() { require.NoError(t, s.DeleteTopic(topic)) }
	f(deleteTopic)
	f(func() { plan(); deleteTopic() })
	f(func() { plan(); deleteTopic(); s.restart() })
	f(func() {
		plan()
		s.fault(kerr.RequestTimedOut, 2, nil) // written
		require.Error(t, s.step(s.sink))
		deleteTopic()
	})

	s.offer(rowsOf(random(), 100, 40))
	plan()
	deleteTopic()
	s.sink.cfg.CreateTopic, s.sink.cluster.cfg.CreateTopic = CreateTopic{}, CreateTopic{}
	require.ErrorContains(t, s.step(s.sink), "create the topic")
	s.sink.cfg.CreateTopic = CreateTopic{Partitions: 1}
	s.sink.cluster.cfg.CreateTopic = CreateTopic{Partitions: 1, ReplicationFactor: 9}
	require.ErrorContains(t, s.step(s.sink), "cannot create topic")
}

// TestTopicUnknownToOneBroker checks that the log does not say that the topic was created if a
// broker only does not know it yet, as after a restart.
func TestTopicUnknownToOneBroker(t *testing.T) {
	s := newFixture(t, 1)
	s.cfg.CreateTopic = CreateTopic{Partitions: 2, ReplicationFactor: 1}
	var logged bytes.Buffer
	f := func(want string) {
		t.Helper()
		sink, err := New(s.cfg, zerolog.New(&logged))
		require.NoError(t, err)
		defer sink.Close()
		require.NoError(t, sink.Probe(t.Context()))
		require.Contains(t, logged.String(), want)
		require.Equal(t, want == "", logged.Len() == 0)
	}
	s.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Topic: topic, Err: kerr.UnknownTopicOrPartition, Count: 1})
	f("")
	require.NoError(t, s.DeleteTopic(topic))
	f("topic created")
}

// TestFewerPartitions recreates the topic with fewer partitions between two blocks, and while a
// block is planned or in doubt.
func TestFewerPartitions(t *testing.T) {
	s := newFixture(t, 4)
	partitions := int32(4)
	recreate := func() {
		partitions--
		require.NoError(t, s.DeleteTopic(topic))
		require.NoError(t, s.CreateTopic(topic, partitions, nil))
		s.rows = s.deliveryLoop.rows
	}
	s.offer(rowsOf(random(), 300, 40))
	s.run(s.sink)
	recreate()
	s.offer(rowsOf(random(), 200, 40))
	s.run(s.sink)
	s.requireOnce()

	s.offer(rowsOf(random(), 100, 40))
	s.n, s.plan = planned(t, s.sink, s.deliveryLoop.rows)
	recreate()
	s.run(s.sink)
	s.requireOnce()

	s.offer(rowsOf(random(), 100, 40))
	s.n, s.plan = planned(t, s.sink, s.deliveryLoop.rows)
	recreate()
	s.fault(kerr.RequestTimedOut, 1, nil) // written
	require.Error(t, s.step(s.sink))
	s.restart()
	s.run(s.sink)
	s.requireOnce()

	s.offer(rowsOf(random(), 100, 40)) // later blocks are delivered as usual
	s.run(s.sink)
	s.requireOnce()
}

// TestOutdatedMetadata adds partitions, plans a block for all of them, and then asks only a broker
// that does not know the new partitions yet. That must not look like a topic with fewer partitions.
func TestOutdatedMetadata(t *testing.T) {
	s := newFixture(t, 4)
	request := kmsg.NewPtrMetadataRequest()
	request.Topics = []kmsg.MetadataRequestTopic{{Topic: kmsg.StringPtr(topic)}}
	known, err := request.RequestWith(t.Context(), client(t, s.cfg))
	require.NoError(t, err)
	slices.SortFunc(known.Topics[0].Partitions, func(a, b kmsg.MetadataResponseTopicPartition) int { return int(a.Partition - b.Partition) })
	known.Topics[0].Partitions = known.Topics[0].Partitions[:2]
	s.offer(rowsOf(random(), 300, 40))
	s.run(s.sink)

	f := func(restart bool) {
		s.offer(rowsOf(random(), 200, 40))
		s.n, s.plan, err = s.sink.Plan(t.Context(), s.state, s.deliveryLoop.rows)
		require.NoError(t, err)
		s.fault(kerr.NotLeaderForPartition, 1, nil, 1) // the other partitions are written
		var outdated atomic.Bool
		outdated.Store(true)
		s.ControlKey(int16(kmsg.Metadata), func(r kmsg.Request) (kmsg.Response, error, bool) {
			s.KeepControl()
			response := *known
			response.SetVersion(r.GetVersion())
			return &response, nil, outdated.Load()
		})
		require.Error(t, s.step(s.sink))
		if restart {
			s.restart()
		}
		for range 3 {
			require.ErrorContains(t, s.step(s.sink), "2 of 4 partitions")
		}
		outdated.Store(false)
		s.run(s.sink)
		s.requireOnce()
	}
	f(false)
	f(true)
}

// TestAnotherCluster delivers a block that was planned for one cluster to another, where its
// producer ID may belong to another producer.
func TestAnotherCluster(t *testing.T) {
	s := newFixture(t, 2)
	other := stores.StartKfake(t, kfake.SeedTopics(2, topic), kfake.ClusterID("other"))
	s.offer(rowsOf(random(), 300, 40))
	s.run(s.sink)
	first := s.rows
	s.offer(rowsOf(random(), 200, 40))
	s.n, s.plan = planned(t, s.sink, s.deliveryLoop.rows)
	before, err := decodePlan(s.plan)
	require.NoError(t, err)

	var ids []int64
	other.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Observe: true, Count: -1, When: func(r kmsg.Request) bool {
		ids = append(ids, producerOf(r.(*kmsg.ProduceRequest).Topics[0].Partitions[0].Records))
		return true
	}})
	s.cfg.Brokers = other.ListenAddrs()
	s.restart()
	require.NoError(t, s.step(s.sink))
	require.NotEmpty(t, ids)
	require.NotContains(t, ids, before.id)
	s.offer(rowsOf(random(), 100, 40))
	s.run(s.sink)
	requireOnce(t, other.ListenAddrs(), topic, s.rows[1:])
	requireOnce(t, s.ListenAddrs(), topic, first)
	base, err := s.sink.baseState(t.Context(), state{cluster: "kfake", topic: topic, suspect: 5, offsets: []int64{0, 0}}.encode())
	require.NoError(t, err)
	require.Equal(t, "other", base.cluster)
	require.Zero(t, base.suspect)
	require.EqualValues(t, 300-2, base.offsets[0]+base.offsets[1])
	after, err := decodeState(s.state)
	require.NoError(t, err)
	require.Equal(t, "other", after.cluster)
}

// TestAnotherClusterTwice interrupts the delivery to the other cluster with another restart.
func TestAnotherClusterTwice(t *testing.T) {
	s := newFixture(t, 1)
	other := stores.StartKfake(t, kfake.SeedTopics(1, topic), kfake.ClusterID("other"))
	s.offer(rowsOf(random(), 100, 40))
	s.run(s.sink)
	s.offer(rowsOf(random(), 50, 40))
	s.n, s.plan = planned(t, s.sink, s.deliveryLoop.rows)
	s.cfg.Brokers = other.ListenAddrs()
	s.restart()
	other.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.RequestTimedOut}) // written
	require.Error(t, s.step(s.sink))
	more := &deliveryLoop{t: t}
	more.add(block(rowsOf(random(), 200, 40)))
	all := append(s.rows[1:], more.rows...)
	more.run(newSink(t, s.cfg))
	s.restart()
	s.run(s.sink)
	requireOnce(t, other.ListenAddrs(), topic, all)
}

func producerOf(records []byte) int64 {
	var b kmsg.RecordBatch
	if b.ReadFrom(records) != nil {
		return -1
	}
	return b.ProducerID
}

// TestAnotherTopic checks that a block planned for one topic is delivered to it, and later blocks
// to the newly configured one.
func TestAnotherTopic(t *testing.T) {
	s := newFixture(t, 2, kfake.SeedTopics(3, "second"))
	s.offer(rowsOf(random(), 200, 40))
	s.n, s.plan = planned(t, s.sink, s.deliveryLoop.rows)
	s.cfg.Topic = "second"
	s.restart()
	require.NoError(t, s.step(s.sink))
	s.offer(rowsOf(random(), 100, 40))
	s.run(s.sink)
	requireOnce(t, s.ListenAddrs(), topic, s.rows[:1])
	requireOnce(t, s.ListenAddrs(), "second", s.rows[1:])
}

// TestUnusablePlans checks that plans for other rows, and invalid plans and states, are rejected.
func TestUnusablePlans(t *testing.T) {
	s := newFixture(t, 1)
	rows := block(rowsOf(random(), 20, 5))
	_, plan := planned(t, s.sink, rows)
	f := func(plan []byte, rows batch.Block, want string) {
		t.Helper()
		_, err := s.sink.Deliver(t.Context(), plan, rows)
		require.ErrorContains(t, err, want)
	}
	f(plan, rows.Head(19), "19 rows with a plan for 20 rows")
	f(plan, block(rowsOf(random(), 20, 5)), "with a plan for rows of batch "+rows[0].ID.String())
	f(plan, nil, "0 rows")
	f(plan[:5], rows, "cannot decode the stored plan")
	_, _, err := s.sink.Plan(t.Context(), []byte("junk"), rows)
	require.ErrorContains(t, err, "cannot plan from the stored state")
}

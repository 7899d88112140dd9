package forecasts

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"google.golang.org/protobuf/proto"

	"trafficd/cmd/dev/devstores/stores"
	"trafficd/pipeline/lib/watch"
	pb "trafficd/schemas/proto/trafficd/v1"
)

func topicConfig(topic string, brokers ...string) Config {
	cfg := DefaultConfig()
	cfg.Feed = FeedKafka
	cfg.MaxShrink = 1
	cfg.Kafka.Brokers, cfg.Kafka.Topic = brokers, topic
	// The maximum age of metadata is also the timeout of metadata requests.
	cfg.Kafka.DialTimeout, cfg.Kafka.RequestTimeout, cfg.Kafka.MetadataMaxAge = timeout, timeout, timeout
	return cfg
}

// producer returns a franz-go client that chooses the partition of each record itself.
func producer(t *testing.T, brokers []string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	c, err := kgo.NewClient(append(opts, kgo.SeedBrokers(brokers...), kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

func record(topic string, partition int32, key string, value []byte) *kgo.Record {
	return &kgo.Record{Topic: topic, Partition: partition, Key: []byte(key), Value: value}
}

func value(t *testing.T, f *pb.StreetForecast) []byte {
	t.Helper()
	b, err := proto.Marshal(f)
	require.NoError(t, err)
	return b
}

func produce(t *testing.T, c *kgo.Client, records ...*kgo.Record) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	require.NoError(t, c.ProduceSync(ctx, records...).FirstErr())
}

// TestTopic writes forecasts, replacements, tombstones and invalid records to all partitions,
// before the feed starts and while it runs.
func TestTopic(t *testing.T) {
	k := stores.StartKafka(t, stores.Topic("f", 3))
	c := producer(t, k.Brokers)
	produce(t, c,
		record("f", 0, "1:1", value(t, street(1, 1, 10))),
		record("f", 1, "2:1", value(t, street(2, 1, 20, 21))),
		record("f", 2, "3:-7", value(t, street(3, -7, 30))),
		record("f", 0, "1:1", value(t, street(1, 1, 11))),
		record("f", 1, "4:1", value(t, street(4, 1, 40))),
		record("f", 1, "4:1", nil),
		record("f", 2, "5:1", value(t, street(6, 1, 50))),
		record("f", 2, "5:1", []byte("no protobuf")),
		record("f", 2, "five", value(t, street(5, 1, 50))),
		record("f", 2, "6:1", []byte{}),
		record("f", 2, "", nil),
	)
	f, layer := run(t, topicConfig("f", k.Brokers...))
	layer.waitFor("1:1 11", "2:1 20,21", "3:-7 30")
	require.Equal(t, 1, layer.published, "the first layer must be complete")
	waitUntilHealthy(t, f)
	s := f.Status()
	require.EqualValues(t, 5, s.Skipped)
	require.Len(t, s.Faults, 5)
	require.Equal(t, "partition 2 offset 1", s.Faults[0].Position)
	require.Contains(t, s.Faults[0].Error, `key "5:1" does not match its value, 6:1`)

	produce(t, c,
		record("f", 0, "1:1", nil),
		record("f", 1, "2:1", value(t, street(2, 1, 99))),
		record("f", 2, "7:1", value(t, street(7, 1))),
		record("f", 2, "3:-7", []byte{0xff}), // invalid: the earlier forecast remains
	)
	layer.waitFor("2:1 99", "3:-7 30", "7:1")
	require.True(t, eventually(func() bool { return f.Status().Skipped == 6 }))
}

// TestTopicAge checks that the time of the data is the time of the newest valid record, not of a
// poll, and never in the future.
func TestTopicAge(t *testing.T) {
	k := stores.StartKafka(t, stores.Topic("f", 2))
	c := producer(t, k.Brokers)
	now := time.Now().Truncate(time.Millisecond)
	put := func(partition, id int32, at time.Time) {
		t.Helper()
		r := record("f", partition, fmt.Sprintf("%d:1", id), value(t, street(id, 1, 10)))
		r.Timestamp = at
		produce(t, c, r)
	}
	put(0, 1, now.Add(-2*time.Hour))
	put(1, 2, now.Add(-3*time.Hour))
	layer := newFakeLayer(t)
	feed, err := newTopicFeed(topicConfig("f", k.Brokers...), layer, &faults{})
	require.NoError(t, err)
	defer feed.close()
	f := func(want time.Time, wantErr error) {
		t.Helper()
		dataTime, err := settled(t, feed)
		require.ErrorIs(t, err, wantErr)
		require.WithinDuration(t, want, dataTime, 0)
		require.WithinDuration(t, want, layer.confirmedAt(), 0)
	}
	f(now.Add(-2*time.Hour), nil)
	f(now.Add(-2*time.Hour), watch.ErrUnchanged)
	put(1, 1, now.Add(-time.Hour))
	f(now.Add(-time.Hour), nil)
	put(0, 3, now.Add(24*time.Hour))
	dataTime, err := settled(t, feed)
	require.NoError(t, err)
	require.False(t, dataTime.After(time.Now()))
}

// settled polls until the records read are complete publications.
func settled(t *testing.T, feed *topicFeed) (dataTime time.Time, err error) {
	t.Helper()
	for deadline := time.Now().Add(timeout); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		dataTime, err = feed.check(t.Context())
		// A check may use metadata from the time when a recreated topic did not exist.
		if !errors.Is(err, watch.ErrUnsettled) && !errors.Is(err, kafka.UnknownTopicOrPartition) {
			return dataTime, err
		}
	}
	t.Fatalf("got error %v after %v, want a complete publication", err, timeout)
	return dataTime, err
}

func (s *fakeLayer) confirmedAt() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.confirmed
}

// TestTopicWithoutRecords checks that an empty topic is published as a layer without streets.
func TestTopicWithoutRecords(t *testing.T) {
	k := stores.StartKafka(t, stores.Topic("f", 2))
	_, layer := run(t, topicConfig("f", k.Brokers...))
	layer.waitFor()
}

// TestTopicManyResponses reads partitions that do not fit into one response, and checks that
// nothing is visible before all of them have been read.
func TestTopicManyResponses(t *testing.T) {
	const streets = 3000
	k := stores.StartKafka(t, stores.Topic("f", 4))
	c := producer(t, k.Brokers, kgo.ProducerBatchMaxBytes(8<<10))
	var records []*kgo.Record
	for round := range 2 {
		for i := range streets {
			s := street(int32(i+1), 1, float64(round), 1, 2, 3)
			records = append(records, record("f", int32(i%4), string(Key(s)), value(t, s)))
		}
	}
	produce(t, c, records...)
	_, layer := run(t, topicConfig("f", k.Brokers...), smallResponses)
	require.True(t, eventually(func() bool { return layer.shown() != nil }))
	shown := layer.shown()
	require.Len(t, shown, streets)
	for _, s := range shown {
		require.Regexp(t, ` 1,1,2,3$`, s)
	}
}

// TestTopicCompressed reads record batches compressed with each codec, and records that exceed
// fetchBytes.
func TestTopicCompressed(t *testing.T) {
	k := stores.StartKafka(t, stores.Topic("f", 1))
	var want []string
	long := make([]float64, 9000) // half a megabyte
	for i, codec := range []kgo.CompressionCodec{kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression()} {
		c := producer(t, k.Brokers, kgo.ProducerBatchCompression(codec))
		small, large := street(1, int32(i), float64(i)), street(2, int32(i), long...)
		produce(t, c, record("f", 0, string(Key(small)), value(t, small)), record("f", 0, string(Key(large)), value(t, large)))
		want = append(want, fmt.Sprintf("1:%d %d", i, i), fmt.Sprintf("2:%d 0%s", i, strings.Repeat(",0", len(long)-1)))
	}
	f, layer := run(t, topicConfig("f", k.Brokers...), smallResponses)
	require.True(t, eventually(func() bool { return layer.shown() != nil }))
	require.ElementsMatch(t, want, layer.shown())
	require.Zero(t, f.Status().Skipped)
}

// TestTopicBrokerUnavailable checks a broker that is unavailable at startup and later, and a topic
// that does not exist yet.
func TestTopicBrokerUnavailable(t *testing.T) {
	k := stores.StartKafka(t)
	require.NoError(t, k.Kill())
	f, layer := run(t, topicConfig("f", k.Brokers...))
	waitForError(t, f, "cannot look up topic")
	require.Nil(t, layer.shown())
	require.NoError(t, k.Restart())
	k.Create(t, "f", 2)
	c := producer(t, k.Brokers)
	produce(t, c, record("f", 0, "1:1", value(t, street(1, 1, 10))))
	layer.waitFor("1:1 10")
	waitUntilHealthy(t, f)

	require.NoError(t, k.Stop())
	waitForError(t, f, "cannot")
	require.Equal(t, []string{"1:1 10"}, layer.shown(), "the layer must remain")
	require.True(t, f.Status().Published)
	require.NoError(t, k.Restart())
	produce(t, c, record("f", 1, "2:1", value(t, street(2, 1, 20))))
	layer.waitFor("1:1 10", "2:1 20")
	waitUntilHealthy(t, f)
}

// TestTopicUnavailablePartitions checks that every poll reads the partitions of the available
// brokers, and tries an unavailable one, in turn.
func TestTopicUnavailablePartitions(t *testing.T) {
	c := stores.StartKfake(t, kfake.SeedTopics(6, "f"))
	k := producer(t, c.ListenAddrs())
	feed, err := newTopicFeed(topicConfig("f", c.ListenAddrs()...), newFakeLayer(t), &faults{})
	require.NoError(t, err)
	defer feed.close()
	require.NoError(t, feed.poll(t.Context()))
	unavailable := []int32{0, 1, 3, 4}
	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Topic: "f", Partitions: unavailable, Err: kerr.NotLeaderForPartition, Count: -1})
	tried := map[int]int{}
	for i := range 3 * len(unavailable) {
		for _, partition := range []int32{2, 5} {
			produce(t, k, record("f", partition, "1:1", value(t, street(1, 1, 10))))
		}
		require.ErrorIs(t, feed.poll(t.Context()), kafka.NotLeaderForPartition)
		if i < len(unavailable) { // it does not know all of them yet
			continue
		}
		require.EqualValues(t, i+1, feed.partitions[2].next)
		require.EqualValues(t, i+1, feed.partitions[5].next)
		for partition, p := range feed.partitions {
			if p.failed == feed.polls {
				tried[partition]++
			}
		}
	}
	require.Equal(t, map[int]int{0: 2, 1: 2, 3: 2, 4: 2}, tried)
}

// TestTopicRecreated checks that streets missing from a recreated topic are removed.
func TestTopicRecreated(t *testing.T) {
	c := stores.StartKfake(t)
	k := producer(t, c.ListenAddrs(), kgo.AllowAutoTopicCreation())
	for i := range 5 {
		produce(t, k, record("f", 0, strconv.Itoa(i+1)+":1", value(t, street(int32(i+1), 1, 10))))
	}
	f, layer := run(t, topicConfig("f", c.ListenAddrs()...))
	layer.waitFor("1:1 10", "2:1 10", "3:1 10", "4:1 10", "5:1 10")
	k.Close()
	admin := &kafka.Transport{}
	defer admin.CloseIdleConnections()
	_, err := (&kafka.Client{Addr: kafka.TCP(c.ListenAddrs()...), Transport: admin}).DeleteTopics(t.Context(), &kafka.DeleteTopicsRequest{Topics: []string{"f"}})
	require.NoError(t, err)
	waitForError(t, f, "cannot")
	k = producer(t, c.ListenAddrs(), kgo.AllowAutoTopicCreation())
	produce(t, k, record("f", 0, "9:1", value(t, street(9, 1, 90))))
	layer.waitFor("9:1 90")
}

// TestTopicStreetInTwoPartitions checks that if a street is in two partitions, its later record is
// used, regardless of the order of the partitions.
func TestTopicStreetInTwoPartitions(t *testing.T) {
	k := stores.StartKafka(t, stores.Topic("f", 4))
	c := producer(t, k.Brokers)
	now := time.Now()
	at := func(partition int32, age time.Duration, key string, v []byte) *kgo.Record {
		r := record("f", partition, key, v)
		r.Timestamp = now.Add(-age)
		return r
	}
	for p := range int32(4) {
		for q := range int32(4) {
			if p != q {
				id := 1 + p*4 + q
				key := fmt.Sprintf("%d:1", id)
				produce(t, c, at(p, time.Minute, key, value(t, street(id, 1, 5))), at(q, time.Second, key, value(t, street(id, 1, 7))))
				key = fmt.Sprintf("%d:2", id)
				produce(t, c, at(p, time.Minute, key, value(t, street(id, 2, 5))), at(q, time.Second, key, nil))
			}
		}
	}
	_, layer := run(t, topicConfig("f", k.Brokers...))
	require.True(t, eventually(func() bool { return layer.shown() != nil }))
	require.Len(t, layer.shown(), 12)
	for _, s := range layer.shown() {
		require.Regexp(t, `^\d+:1 7$`, s)
	}
}

// TestTopicTransactions checks that the records of committed transactions are used in order, and
// the records of aborted and open transactions are not used.
func TestTopicTransactions(t *testing.T) {
	k := stores.StartKafka(t, stores.Topic("f", 1))
	one, two := producer(t, k.Brokers, kgo.TransactionalID("1")), producer(t, k.Brokers, kgo.TransactionalID("2"))
	plain := producer(t, k.Brokers)
	begin := func(c *kgo.Client) { require.NoError(t, c.BeginTransaction()) }
	end := func(c *kgo.Client, how kgo.TransactionEndTry) { require.NoError(t, c.EndTransaction(t.Context(), how)) }
	put := func(c *kgo.Client, id int32, speed float64) {
		produce(t, c, record("f", 0, fmt.Sprintf("%d:1", id), value(t, street(id, 1, speed))))
	}
	for i := range int32(3) {
		begin(one)
		put(one, i+1, 10)
		end(one, kgo.TryCommit)
	}
	begin(one)
	begin(two)
	put(one, 1, 66)
	put(two, 2, 20)
	put(plain, 3, 30)
	put(one, 2, 66)
	end(one, kgo.TryAbort)
	put(two, 4, 40)
	end(two, kgo.TryCommit)
	begin(one)
	put(one, 5, 50)
	end(one, kgo.TryCommit)
	f, layer := run(t, topicConfig("f", k.Brokers...))
	want := []string{"1:1 10", "2:1 20", "3:1 30", "4:1 40", "5:1 50"}
	layer.waitFor(want...)

	// While the feed is running.
	begin(one)
	put(one, 1, 66)
	put(plain, 6, 60)
	polls := testutil.ToFloat64(checks.Unchanged)
	require.True(t, eventually(func() bool { return testutil.ToFloat64(checks.Unchanged) >= polls+2 }))
	require.Equal(t, want, layer.shown(), "an open transaction must delay the records after it")
	end(one, kgo.TryAbort)
	want = append(want, "6:1 60")
	layer.waitFor(want...)
	begin(one)
	put(one, 7, 70)
	end(one, kgo.TryCommit)
	layer.waitFor(append(want, "7:1 70")...)
	require.Zero(t, f.Status().Skipped)
}

// TestTopicThrottled checks that no records are skipped after a response that has none because of a
// quota.
func TestTopicThrottled(t *testing.T) {
	c := stores.StartKfake(t, kfake.SeedTopics(1, "f"))
	k := producer(t, c.ListenAddrs())
	for i := range int32(20) {
		produce(t, k, record("f", 0, fmt.Sprintf("%d:1", i+1), value(t, street(i+1, 1, 10))))
	}
	fetches := 0
	c.ControlKey(int16(kmsg.Fetch), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if fetches++; fetches%2 == 0 {
			return nil, nil, false
		}
		response := r.ResponseKind().(*kmsg.FetchResponse)
		response.ThrottleMillis = 1
		return response, nil, true
	})
	f, layer := run(t, topicConfig("f", c.ListenAddrs()...))
	require.True(t, eventually(func() bool { return layer.shown() != nil }))
	require.Len(t, layer.shown(), 20)
	produce(t, k, record("f", 0, "1:1", nil))
	require.True(t, eventually(func() bool { return len(layer.shown()) == 19 }))
	require.Empty(t, f.Status().Error)
}

// TestTopicPartitionUnavailable checks that an unavailable partition does not hide the others.
func TestTopicPartitionUnavailable(t *testing.T) {
	c := stores.StartKfake(t, kfake.SeedTopics(3, "f"))
	f, layer := run(t, topicConfig("f", c.ListenAddrs()...))
	layer.waitFor()
	unavailable := atomic.Int32{}
	c.ControlKey(int16(kmsg.Fetch), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		topics := r.(*kmsg.FetchRequest).Topics
		if len(topics) == 0 || topics[0].Partitions[0].Partition != unavailable.Load() {
			return nil, nil, false
		}
		return nil, errors.New("the broker of this partition is unavailable"), true
	})
	k := producer(t, c.ListenAddrs())
	speed := 10.0
	for partition := range int32(3) {
		unavailable.Store(partition)
		waitForError(t, f, fmt.Sprintf("partition %d of topic", partition))
		speed++
		a, b := (partition+1)%3, (partition+2)%3
		produce(t, k, record("f", a, "1:1", value(t, street(1, 1, speed))), record("f", b, "2:1", value(t, street(2, 1, speed))))
		layer.waitFor(fmt.Sprint("1:1 ", speed), fmt.Sprint("2:1 ", speed))
	}
	unavailable.Store(-1)
	require.True(t, eventually(func() bool { return f.Status().Error == "" }))
}

// TestTopicOrder checks that the latest record of a street is determined by offset within a
// partition, and by timestamp between partitions.
func TestTopicOrder(t *testing.T) {
	c := stores.StartKfake(t, kfake.SeedTopics(2, "f"))
	k := producer(t, c.ListenAddrs())
	at := func(hours int, r *kgo.Record) *kgo.Record {
		r.Timestamp = time.Date(2026, 7, 1, hours, 0, 0, 0, time.UTC)
		return r
	}
	produce(t, k,
		at(5, record("f", 0, "1:1", value(t, street(1, 1, 10)))),
		at(4, record("f", 0, "1:1", value(t, street(1, 1, 11)))), // its producer's clock was set back
		at(5, record("f", 0, "2:1", value(t, street(2, 1, 20)))),
		at(6, record("f", 1, "2:1", value(t, street(2, 1, 21)))),
		at(6, record("f", 0, "3:1", value(t, street(3, 1, 30)))),
		at(5, record("f", 1, "3:1", value(t, street(3, 1, 31)))),
		at(6, record("f", 0, "4:1", nil)),
		at(5, record("f", 1, "4:1", value(t, street(4, 1, 40)))),
	)
	_, layer := run(t, topicConfig("f", c.ListenAddrs()...))
	layer.waitFor("1:1 11", "2:1 21", "3:1 30")
}

// TestTopicPartialPublication checks that while one partition cannot be read, the records of the
// others are shown without confirming the layer, and that nothing is shown before the first
// complete layer.
func TestTopicPartialPublication(t *testing.T) {
	layer := newFakeLayer(t)
	feed, err := newTopicFeed(topicConfig("f", "127.0.0.1:1"), layer, &faults{})
	require.NoError(t, err)
	defer feed.close()
	unavailable := errors.New("unavailable")
	now := time.Now()
	first, second := now.Add(-2*time.Minute), now.Add(-time.Minute)
	require.NoError(t, feed.apply(identity{1, 1}, street(1, 1, 10), latest{at: first}))
	require.Equal(t, unavailable, feed.publish(unavailable, now))
	require.Nil(t, layer.shown())

	require.NoError(t, feed.publish(nil, now))
	require.Equal(t, []string{"1:1 10"}, layer.shown())
	require.NoError(t, feed.apply(identity{2, 1}, street(2, 1, 20), latest{at: second}))
	require.Equal(t, unavailable, feed.publish(unavailable, now))
	require.Equal(t, []string{"1:1 10", "2:1 20"}, layer.shown())
	require.Equal(t, first, layer.confirmedAt())

	published := layer.published
	require.Equal(t, unavailable, feed.publish(unavailable, now))
	require.Equal(t, watch.ErrUnchanged, feed.publish(nil, now))
	require.Equal(t, published, layer.published)
	require.Equal(t, second, layer.confirmedAt())
}

// TestTopicOverlappingTransactions checks that a transaction appears as a whole although another
// one was open when it was committed, so that a part of it cannot be read yet.
func TestTopicOverlappingTransactions(t *testing.T) {
	k := stores.StartKafka(t, stores.Topic("f", 1))
	one, two := producer(t, k.Brokers, kgo.TransactionalID("1")), producer(t, k.Brokers, kgo.TransactionalID("2"))
	put := func(c *kgo.Client, id int32, speed float64) {
		produce(t, c, record("f", 0, fmt.Sprintf("%d:1", id), value(t, street(id, 1, speed))))
	}
	publish := func(speed float64, overlap func()) {
		require.NoError(t, one.BeginTransaction())
		put(one, 1, speed)
		overlap()
		put(one, 2, speed)
		require.NoError(t, one.EndTransaction(t.Context(), kgo.TryCommit))
	}
	publish(10, func() {})
	layer := newFakeLayer(t)
	feed, err := newTopicFeed(topicConfig("f", k.Brokers...), layer, &faults{})
	require.NoError(t, err)
	t.Cleanup(feed.close)
	_, err = settled(t, feed)
	require.NoError(t, err)
	publish(20, func() {
		require.NoError(t, two.BeginTransaction())
		put(two, 3, 30)
	})
	require.True(t, eventually(func() bool { // the commit may reach the partition later
		_, err = feed.check(t.Context())
		return !errors.Is(err, watch.ErrUnchanged)
	}))
	require.Equal(t, errTopicWritten, err)
	require.Equal(t, []string{"1:1 10", "2:1 10"}, layer.shown())
	require.NoError(t, two.EndTransaction(t.Context(), kgo.TryCommit))
	_, err = settled(t, feed)
	require.NoError(t, err)
	require.Equal(t, []string{"1:1 20", "2:1 20", "3:1 30"}, layer.shown())
}

// TestTopicEndMovesBack checks that a poll fails instead of waiting if the end of a partition moves
// back while it is read, as it may after a leader election.
func TestTopicEndMovesBack(t *testing.T) {
	c := stores.StartKfake(t, kfake.SeedTopics(1, "f"))
	end := int64(10)
	c.ControlKey(int16(kmsg.Fetch), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		response := r.ResponseKind().(*kmsg.FetchResponse)
		response.Topics = []kmsg.FetchResponseTopic{{Topic: "f", Partitions: []kmsg.FetchResponseTopicPartition{{HighWatermark: end, LastStableOffset: end}}}}
		end = 1
		return response, nil, true
	})
	feed, err := newTopicFeed(topicConfig("f", c.ListenAddrs()...), newFakeLayer(t), &faults{})
	require.NoError(t, err)
	defer feed.close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	_, err = feed.check(ctx)
	require.ErrorContains(t, err, "the end moved back from offset 10 to 1")
}

package forecasts

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/segmentio/kafka-go/protocol"
	fetching "github.com/segmentio/kafka-go/protocol/fetch"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"trafficd/cmd/dev/devstores/stores"
)

// TestTopicCompacted reads a topic that a real broker has compacted: offsets are missing inside
// batches, at their ends, and at the ends of segments.
func TestTopicCompacted(t *testing.T) {
	k := stores.StartKafka(t, stores.Broker(stores.Apache), stores.Topic("f", 1),
		stores.Set("log.cleanup.policy", "compact"), stores.Set("log.roll.ms", "500"), stores.Set("log.cleaner.backoff.ms", "100"),
		stores.Set("log.cleaner.min.cleanable.ratio", "0.001"), stores.Set("log.cleaner.delete.retention.ms", "0"))
	c := producer(t, k.Brokers, kgo.ProducerLinger(50*time.Millisecond), kgo.ProducerBatchCompression(kgo.NoCompression()))
	batch := func(from, to int32, speed float64) {
		var records []*kgo.Record
		for i := from; i <= to; i++ {
			records = append(records, record("f", 0, fmt.Sprintf("%d:1", i), value(t, street(i, 1, speed, 9, 9, 9, 9, 9, 9, 9))))
		}
		produce(t, c, records...)
	}
	batch(1, 300, 1)
	time.Sleep(time.Second) // the segment is rolled by the next batch
	batch(101, 300, 2)      // only the first hundred records of the first segment remain
	time.Sleep(time.Second) // as above
	batch(250, 300, 3)      // all but the last 51 records of the second segment remain
	produce(t, c, record("f", 0, "300:1", nil))
	for range 4 { // the cleaner does not touch the active segment
		time.Sleep(700 * time.Millisecond)
		batch(1000, 1000, 4)
	}
	require.True(t, eventually(func() bool { return len(k.Records(t, "f")) < 310 }), "the broker must compact the topic")

	const otherSpeeds = ",9,9,9,9,9,9,9"
	var want []string
	for i := 1; i < 300; i++ {
		speed := 1
		if i > 100 {
			speed = 2
		}
		if i >= 250 {
			speed = 3
		}
		want = append(want, fmt.Sprintf("%d:1 %d%s", i, speed, otherSpeeds))
	}
	_, layer := run(t, topicConfig("f", k.Brokers...), smallResponses) // a response may hold only the end of a batch
	require.True(t, eventually(func() bool { return layer.shown() != nil }))
	require.ElementsMatch(t, append(want, "1000:1 4"+otherSpeeds), layer.shown())
}

// TestTopicCompactedTransactions reads a topic that a real broker has compacted: it has removed the
// records of an aborted transaction, but still has its end and still lists it as aborted. The next
// transactions of the same producer must be read.
func TestTopicCompactedTransactions(t *testing.T) {
	k := stores.StartKafka(t, stores.Broker(stores.Apache), stores.Topic("f", 1),
		stores.Set("log.cleanup.policy", "compact"), stores.Set("log.roll.ms", "500"), stores.Set("log.cleaner.backoff.ms", "100"),
		stores.Set("log.cleaner.min.cleanable.ratio", "0.001"))
	c := producer(t, k.Brokers, kgo.TransactionalID("1"))
	transaction := func(how kgo.TransactionEndTry, from, to int32, speed float64) {
		t.Helper()
		require.NoError(t, c.BeginTransaction())
		for i := from; i <= to; i++ {
			produce(t, c, record("f", 0, fmt.Sprintf("%d:1", i), value(t, street(i, 1, speed))))
		}
		require.NoError(t, c.EndTransaction(t.Context(), how))
	}
	transaction(kgo.TryCommit, 1, 2, 10)
	transaction(kgo.TryAbort, 1, 4, 66)
	transaction(kgo.TryCommit, 3, 4, 20)
	aborted := func() bool { // the topic has records of the aborted transaction
		return slices.ContainsFunc(k.Records(t, "f"), func(r stores.Record) bool {
			f, _, err := parseProtobuf(r.Value, MaxSpeed)
			require.NoError(t, err)
			return f.Forecast[0].Speed == 66
		})
	}
	for aborted() {
		time.Sleep(600 * time.Millisecond) // the segment is rolled by the next batch, and the cleaner does not touch the active one
		transaction(kgo.TryCommit, 9, 9, 30)
	}
	_, layer := run(t, topicConfig("f", k.Brokers...))
	layer.waitFor("1:1 10", "2:1 10", "3:1 20", "4:1 20", "9:1 30")
}

// TestEmptyControlBatch checks that a control batch from which compaction has removed the record is
// passed over.
func TestEmptyControlBatch(t *testing.T) {
	layer := newFakeLayer(t)
	feed, err := newTopicFeed(topicConfig("f", "127.0.0.1:9092"), layer, &faults{})
	require.NoError(t, err)
	batches := []protocol.RecordReader{
		&protocol.ControlBatch{BaseOffset: 5, ProducerID: 1, Records: protocol.NewRecordReader()},
		&protocol.RecordBatch{BaseOffset: 6, Records: protocol.NewRecordReader(protocol.Record{
			Offset: 6, Key: protocol.NewBytes([]byte("1:1")), Value: protocol.NewBytes(value(t, street(1, 1, 10))),
		})},
	}
	p := &partition{open: map[int64]bool{1: true}}
	require.NoError(t, feed.takeAll(0, p, &fetching.ResponsePartition{RecordSet: protocol.RecordSet{Records: &protocol.RecordStream{Records: batches}}}))
	require.EqualValues(t, 7, p.next)
	require.Empty(t, p.open)
	require.Len(t, layer.put, 1)
}

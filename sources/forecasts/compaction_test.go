package forecasts

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"trafficd/cmd/devstores/stores"
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
	cfg := topicConfig("f", k.Brokers...)
	cfg.Kafka.FetchBytes = 16 << 10 // less than a batch, so that a response may hold only the end of a batch
	_, layer := run(t, cfg)
	require.True(t, eventually(func() bool { return layer.shown() != nil }))
	require.ElementsMatch(t, append(want, "1000:1 4"+otherSpeeds), layer.shown())
}

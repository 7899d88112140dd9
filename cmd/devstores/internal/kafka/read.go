package kafka

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// span is what a partition holds: the offsets from first up to, not including, end.
type span struct{ first, end int64 }

// ReadTopic reads everything that a topic holds now, uncommitted records too, in the order of partition and offset. Its client is
// franz-go, which the daemon does not use: an independent witness.
func ReadTopic(ctx context.Context, brokers []string, topic string) ([]*kgo.Record, error) {
	client, err := newClient(brokers, kgo.KeepControlRecords()) // they take offsets, so they have to be seen to know the end
	if err != nil {
		return nil, err
	}
	defer client.Close()
	var spans map[int32]span
	err = poll(ctx, passing, func() (err error) {
		spans, err = spansOf(ctx, client, topic)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("cannot read the topic %s: %w", topic, err)
	}
	records, err := readSpans(ctx, client, topic, spans)
	if err != nil {
		return nil, fmt.Errorf("cannot read the topic %s: %w", topic, err)
	}
	slices.SortFunc(records, func(a, b *kgo.Record) int {
		return cmp.Or(cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Offset, b.Offset))
	})
	return records, nil
}

// spansOf asks for the offsets of every partition.
func spansOf(ctx context.Context, client *kgo.Client, topic string) (map[int32]span, error) {
	partitions, err := partitionsOf(ctx, client, topic)
	if err != nil {
		return nil, err
	}
	const earliest, latest = -2, -1 // timestamps with a meaning, see the protocol's ListOffsets
	firsts, err := offsets(ctx, client, topic, partitions, earliest)
	if err != nil {
		return nil, err
	}
	ends, err := offsets(ctx, client, topic, partitions, latest)
	if err != nil {
		return nil, err
	}
	spans := make(map[int32]span, len(partitions))
	for _, p := range partitions {
		spans[p] = span{firsts[p], ends[p]}
	}
	return spans, nil
}

func offsets(ctx context.Context, client *kgo.Client, topic string, partitions []int32, timestamp int64) (map[int32]int64, error) {
	wanted := kmsg.NewListOffsetsRequestTopic()
	wanted.Topic = topic
	for _, p := range partitions {
		partition := kmsg.NewListOffsetsRequestTopicPartition()
		partition.Partition, partition.Timestamp = p, timestamp
		wanted.Partitions = append(wanted.Partitions, partition)
	}
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = -1
	req.Topics = append(req.Topics, wanted)
	answer, err := req.RequestWith(ctx, client)
	if err != nil {
		return nil, err
	}
	found := map[int32]int64{}
	for _, t := range answer.Topics {
		for _, p := range t.Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				return nil, fmt.Errorf("offsets of partition %d: %w", p.Partition, err)
			}
			found[p.Partition] = p.Offset
		}
	}
	return found, nil
}

// readSpans fetches until the end of every span has been seen.
func readSpans(ctx context.Context, client *kgo.Client, topic string, spans map[int32]span) ([]*kgo.Record, error) {
	start := map[int32]kgo.Offset{}
	open := map[int32]int64{} // partition → end
	for p, s := range spans {
		if s.first < s.end {
			start[p] = kgo.NewOffset().At(s.first)
			open[p] = s.end
		}
	}
	client.AddConsumePartitions(map[string]map[int32]kgo.Offset{topic: start})
	var records []*kgo.Record
	for len(open) > 0 {
		fetched := client.PollFetches(ctx)
		if err := fetched.Err0(); err != nil {
			return nil, fmt.Errorf("%d records read, partitions %v not at their end: %w", len(records), open, err)
		}
		for _, err := range fetched.Errors() {
			return nil, fmt.Errorf("partition %d: %w", err.Partition, err.Err)
		}
		fetched.EachRecord(func(r *kgo.Record) {
			if r.Offset >= spans[r.Partition].end {
				return // came in while we read
			}
			if r.Offset == open[r.Partition]-1 {
				delete(open, r.Partition)
			}
			if !r.Attrs.IsControl() {
				records = append(records, r)
			}
		})
	}
	return records, nil
}

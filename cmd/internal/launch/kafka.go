package launch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// AwaitBrokers returns when every broker knows all others and a controller: only then do they accept requests.
func AwaitBrokers(ctx context.Context, brokers []string) error {
	for _, address := range brokers {
		client, err := newClient([]string{address})
		if err != nil {
			return err
		}
		err = poll(ctx, anyError, func() error { return knowsAll(ctx, client, len(brokers)) })
		client.Close()
		if err != nil {
			return fmt.Errorf("cannot reach the Kafka broker at %s: %w", address, err)
		}
	}
	return nil
}

func knowsAll(ctx context.Context, client *kgo.Client, brokers int) error {
	answer, err := kmsg.NewPtrMetadataRequest().RequestWith(ctx, client.SeedBrokers()[0]) // this broker, not one it names
	if err != nil {
		return err
	}
	if len(answer.Brokers) < brokers || answer.ControllerID < 0 {
		return fmt.Errorf("knows %d of %d brokers, controller %d", len(answer.Brokers), brokers, answer.ControllerID)
	}
	return nil
}

// CreateTopic creates a topic with the cluster's default number of replicas and waits until every partition has a leader. An existing
// topic with the same number of partitions is not an error.
func CreateTopic(ctx context.Context, brokers []string, topic string, partitions int, config map[string]string) error {
	client, err := newClient(brokers)
	if err != nil {
		return err
	}
	defer client.Close()
	if err := create(ctx, client, topic, partitions, config); err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
		return fmt.Errorf("cannot create the topic %s: %w", topic, err)
	}
	var found []int32
	err = poll(ctx, anyError, func() (err error) {
		found, err = partitionsOf(ctx, client, topic)
		return err
	})
	if err != nil {
		return fmt.Errorf("cannot create the topic %s: %w", topic, err)
	}
	if len(found) != partitions {
		return fmt.Errorf("cannot create the topic %s with %d partitions: it exists with %d", topic, partitions, len(found))
	}
	return nil
}

func create(ctx context.Context, client *kgo.Client, topic string, partitions int, config map[string]string) error {
	wanted := kmsg.NewCreateTopicsRequestTopic()
	wanted.Topic, wanted.NumPartitions, wanted.ReplicationFactor = topic, int32(partitions), -1
	for name, value := range config {
		c := kmsg.NewCreateTopicsRequestTopicConfig()
		c.Name, c.Value = name, &value
		wanted.Configs = append(wanted.Configs, c)
	}
	req := kmsg.NewPtrCreateTopicsRequest()
	req.Topics = append(req.Topics, wanted)
	req.TimeoutMillis = 30_000
	answer, err := req.RequestWith(ctx, client)
	if err != nil {
		return err
	}
	for _, t := range answer.Topics {
		if err := kerr.ErrorForCode(t.ErrorCode); err != nil {
			if t.ErrorMessage != nil {
				return fmt.Errorf("%w: %s", err, *t.ErrorMessage)
			}
			return err
		}
	}
	return nil
}

// partitionsOf returns the partitions of a topic, or an error unless each has a leader.
func partitionsOf(ctx context.Context, client *kgo.Client, topic string) ([]int32, error) {
	wanted := kmsg.NewMetadataRequestTopic()
	wanted.Topic = &topic
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = append(req.Topics, wanted)
	answer, err := req.RequestWith(ctx, client)
	if err != nil {
		return nil, err
	}
	var found []int32
	for _, t := range answer.Topics {
		if err := kerr.ErrorForCode(t.ErrorCode); err != nil {
			return nil, err
		}
		for _, p := range t.Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil && !errors.Is(err, kerr.ReplicaNotAvailable) {
				return nil, fmt.Errorf("partition %d: %w", p.Partition, err)
			}
			found = append(found, p.Partition)
		}
	}
	return found, nil
}

// poll calls try until it succeeds, retry rejects the error, or ctx ends. Then the error contains both causes.
func poll(ctx context.Context, retry func(error) bool, try func() error) error {
	for {
		err := try()
		if err == nil || !retry(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w; last error: %w", context.Cause(ctx), err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// anyError retries after everything: a starting cluster returns errors of all kinds.
func anyError(error) bool { return true }

// transient reports whether the cluster may be electing leaders. An unknown topic is not transient here.
func transient(err error) bool {
	return kerr.IsRetriable(err) && !errors.Is(err, kerr.UnknownTopicOrPartition)
}

func newClient(brokers []string, opts ...kgo.Opt) (*kgo.Client, error) {
	opts = append([]kgo.Opt{kgo.SeedBrokers(brokers...), kgo.DisableClientMetrics()}, opts...)
	client, err := kgo.NewClient(opts...)
	if err != nil {
		return nil, fmt.Errorf("cannot create a Kafka client for %v: %w", brokers, err)
	}
	return client, nil
}

// span is the range of a partition's offsets; end is exclusive.
type span struct{ first, end int64 }

// Record is a record of a topic.
type Record struct{ *kgo.Record }

// Header returns the value of the record's first header of that name, or an empty string.
func (r Record) Header(key string) string {
	for _, h := range r.Headers {
		if h.Key == key {
			return string(h.Value)
		}
	}
	return ""
}

// ReadTopic returns everything that a topic holds, including uncommitted records, ordered by partition and offset. It uses
// franz-go, which the daemon does not: an independent check of what the daemon wrote.
func ReadTopic(ctx context.Context, brokers []string, topic string) ([]Record, error) {
	client, err := newClient(brokers, kgo.KeepControlRecords()) // they occupy offsets; without them the end may not be seen
	if err != nil {
		return nil, err
	}
	defer client.Close()
	var records []Record
	spans, err := spansOf(ctx, client, topic)
	if err == nil {
		records, err = readSpans(ctx, client, topic, spans)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the topic %s: %w", topic, err)
	}
	slices.SortFunc(records, func(a, b Record) int {
		return cmp.Or(cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Offset, b.Offset))
	})
	return records, nil
}

// CountRecords returns the number of offsets in use in a topic.
func CountRecords(ctx context.Context, brokers []string, topic string) (n int64, err error) {
	client, err := newClient(brokers)
	if err != nil {
		return 0, err
	}
	defer client.Close()
	spans, err := spansOf(ctx, client, topic)
	if err != nil {
		return 0, fmt.Errorf("cannot read the offsets of the topic %s: %w", topic, err)
	}
	for _, s := range spans {
		n += s.end - s.first
	}
	return n, nil
}

// spansOf returns the offsets of every partition, and waits while the cluster elects leaders.
func spansOf(ctx context.Context, client *kgo.Client, topic string) (spans map[int32]span, err error) {
	err = poll(ctx, transient, func() error {
		partitions, err := partitionsOf(ctx, client, topic)
		if err != nil {
			return err
		}
		const earliest, latest = -2, -1 // special timestamps of the protocol's ListOffsets
		firsts, err := offsets(ctx, client, topic, partitions, earliest)
		if err != nil {
			return err
		}
		ends, err := offsets(ctx, client, topic, partitions, latest)
		if err != nil {
			return err
		}
		spans = make(map[int32]span, len(partitions))
		for _, p := range partitions {
			spans[p] = span{firsts[p], ends[p]}
		}
		return nil
	})
	return spans, err
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

// readSpans fetches records until it has seen the end of every span.
func readSpans(ctx context.Context, client *kgo.Client, topic string, spans map[int32]span) ([]Record, error) {
	start := map[int32]kgo.Offset{}
	open := map[int32]int64{} // partition → end
	for p, s := range spans {
		if s.first < s.end {
			start[p] = kgo.NewOffset().At(s.first)
			open[p] = s.end
		}
	}
	client.AddConsumePartitions(map[string]map[int32]kgo.Offset{topic: start})
	var records []Record
	for len(open) > 0 {
		fetched := client.PollFetches(ctx)
		if err := fetched.Err0(); err != nil {
			return nil, fmt.Errorf("%d records read, partitions %v incomplete: %w", len(records), open, err)
		}
		for _, err := range fetched.Errors() {
			return nil, fmt.Errorf("partition %d: %w", err.Partition, err.Err)
		}
		fetched.EachRecord(func(r *kgo.Record) {
			if r.Offset >= spans[r.Partition].end {
				return // written after the offsets were read
			}
			if r.Offset == open[r.Partition]-1 {
				delete(open, r.Partition)
			}
			if !r.Attrs.IsControl() {
				records = append(records, Record{r})
			}
		})
	}
	return records, nil
}

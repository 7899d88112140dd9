package launch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"trafficd/cmd/dev/must"
)

// clusterLimit is how long to wait for a cluster that is starting or electing leaders. Apache Kafka
// takes 2–4 s, or longer if it recovers its logs on a busy machine.
const clusterLimit = 2 * time.Minute

// AwaitBrokers waits until every broker reports all brokers and a controller. A cluster is not
// ready for other requests before that.
func AwaitBrokers(ctx context.Context, brokers []string) (err error) {
	defer must.Return(&err)
	for _, address := range brokers {
		client := must.Get(newClient([]string{address}))
		err := Eventually(ctx, clusterLimit, func() error {
			response, err := kmsg.NewPtrMetadataRequest().RequestWith(ctx, client.SeedBrokers()[0]) // this broker, not one that the client chooses
			if err != nil {
				return err
			}
			if len(response.Brokers) < len(brokers) || response.ControllerID < 0 {
				return fmt.Errorf("it reports %d of %d brokers, controller %d", len(response.Brokers), len(brokers), response.ControllerID)
			}
			return nil
		})
		client.Close()
		must.Do(err, "cannot reach the Kafka broker at "+address)
	}
	return nil
}

// CreateTopic creates a topic with the cluster's default number of replicas and waits until every
// partition has a leader. If the topic exists with the same number of partitions, that is not an
// error, and its configuration is not changed.
func CreateTopic(ctx context.Context, brokers []string, topic string, partitions int, config map[string]*string) (err error) {
	defer must.Return(&err, "cannot create the topic "+topic)
	client := must.Get(newClient(brokers))
	defer client.Close()
	admin := kadm.NewClient(client)
	if _, err := admin.CreateTopic(ctx, int32(partitions), -1, config, topic); !errors.Is(err, kerr.TopicAlreadyExists) {
		must.Do(err)
	}
	found := 0
	must.Do(Eventually(ctx, clusterLimit, func() error {
		topics, err := admin.ListTopics(ctx, topic)
		if err = errors.Join(err, topics.Error()); err != nil {
			return err
		}
		found = len(topics[topic].Partitions)
		for _, p := range topics[topic].Partitions {
			if p.Leader < 0 {
				return fmt.Errorf("partition %d has no leader", p.Partition)
			}
		}
		return nil
	}))
	if found != partitions {
		return fmt.Errorf("cannot create the topic %s with %d partitions: it already exists with %d", topic, partitions, found)
	}
	return nil
}

func newClient(brokers []string, options ...kgo.Opt) (*kgo.Client, error) {
	// Control records occupy offsets. Without them, ReadTopic might not see the end of a partition.
	options = append(options, kgo.SeedBrokers(brokers...), kgo.DisableClientMetrics(), kgo.KeepControlRecords())
	client, err := kgo.NewClient(options...)
	if err != nil {
		return nil, fmt.Errorf("cannot create a Kafka client for %v: %w", brokers, err)
	}
	return client, nil
}

// Record is a record of a topic.
type Record struct{ *kgo.Record }

// Header returns the value of the record's first header with the given name, or an empty string.
func (r Record) Header(key string) string {
	for _, h := range r.Headers {
		if h.Key == key {
			return string(h.Value)
		}
	}
	return ""
}

// ReadTopic returns all records of a topic, including uncommitted ones, ordered by partition and
// offset. It uses franz-go, which the daemon does not use, as an independent check of what the
// daemon wrote. If options restrict it to committed records, it waits until open transactions end.
func ReadTopic(ctx context.Context, brokers []string, topic string, options ...kgo.Opt) (records []Record, err error) {
	defer must.Return(&err, "cannot read the topic "+topic)
	client := must.Get(newClient(brokers, options...))
	defer client.Close()
	starts, ends, err := offsets(ctx, client, topic)
	must.Do(err)
	open := map[int32]int64{} // partition that is not completely read → its end offset
	from := map[int32]kgo.Offset{}
	starts.Each(func(start kadm.ListedOffset) {
		if end, _ := ends.Lookup(topic, start.Partition); start.Offset < end.Offset {
			open[start.Partition], from[start.Partition] = end.Offset, kgo.NewOffset().At(start.Offset)
		}
	})
	client.AddConsumePartitions(map[string]map[int32]kgo.Offset{topic: from})
	for len(open) > 0 {
		fetched := client.PollFetches(ctx)
		if err := fetched.Err(); err != nil {
			return nil, fmt.Errorf("cannot read the topic %s: %d records read, partitions %v incomplete: %w", topic, len(records), open, err)
		}
		fetched.EachRecord(func(r *kgo.Record) {
			end, _ := ends.Lookup(topic, r.Partition)
			if r.Offset >= end.Offset {
				return // written after the offsets were read
			}
			if r.Offset == end.Offset-1 {
				delete(open, r.Partition)
			}
			if !r.Attrs.IsControl() {
				records = append(records, Record{r})
			}
		})
	}
	slices.SortFunc(records, func(a, b Record) int {
		return cmp.Or(cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Offset, b.Offset))
	})
	return records, nil
}

// CountRecords returns the number of offsets in use in a topic, which includes control records.
func CountRecords(ctx context.Context, brokers []string, topic string) (n int64, err error) {
	defer must.Return(&err, "cannot read the offsets of the topic "+topic)
	client := must.Get(newClient(brokers))
	defer client.Close()
	starts, ends, err := offsets(ctx, client, topic)
	must.Do(err)
	starts.Each(func(start kadm.ListedOffset) { n -= start.Offset })
	ends.Each(func(end kadm.ListedOffset) { n += end.Offset })
	return n, nil
}

// offsets returns the first offset of every partition, and the offset after its last. It waits
// while the cluster elects leaders.
func offsets(ctx context.Context, client *kgo.Client, topic string) (starts, ends kadm.ListedOffsets, err error) {
	admin := kadm.NewClient(client)
	var failed error
	err = Eventually(ctx, clusterLimit, func() (err error) {
		if starts, err = admin.ListStartOffsets(ctx, topic); err == nil {
			ends, err = admin.ListEndOffsets(ctx, topic)
		}
		failed = errors.Join(err, starts.Error(), ends.Error())
		if kerr.IsRetriable(failed) && !errors.Is(failed, kerr.UnknownTopicOrPartition) {
			return failed
		}
		return nil
	})
	return starts, ends, cmp.Or(err, failed)
}

package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// AwaitBrokers returns when every broker knows all of them and a controller: only then do they take work.
func AwaitBrokers(ctx context.Context, brokers []string) error {
	for _, address := range brokers {
		client, err := newClient([]string{address})
		if err != nil {
			return err
		}
		err = poll(ctx, always, func() error { return knowsAll(ctx, client, len(brokers)) })
		client.Close()
		if err != nil {
			return fmt.Errorf("cannot reach the Kafka broker at %s: %w", address, err)
		}
	}
	return nil
}

func knowsAll(ctx context.Context, client *kgo.Client, brokers int) error {
	answer, err := kmsg.NewPtrMetadataRequest().RequestWith(ctx, client.SeedBrokers()[0]) // this very broker, not one that it names
	if err != nil {
		return err
	}
	if len(answer.Brokers) < brokers || answer.ControllerID < 0 {
		return fmt.Errorf("it knows %d of %d brokers, controller %d", len(answer.Brokers), brokers, answer.ControllerID)
	}
	return nil
}

// CreateTopic makes a topic with the cluster's default number of replicas and waits until every partition has a leader. A topic that
// exists already with as many partitions is fine.
func CreateTopic(ctx context.Context, brokers []string, topic string, partitions int) error {
	client, err := newClient(brokers)
	if err != nil {
		return err
	}
	defer client.Close()
	if err := create(ctx, client, topic, partitions); err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
		return fmt.Errorf("cannot create the topic %s: %w", topic, err)
	}
	var found []int32
	err = poll(ctx, always, func() (err error) {
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

func create(ctx context.Context, client *kgo.Client, topic string, partitions int) error {
	wanted := kmsg.NewCreateTopicsRequestTopic()
	wanted.Topic, wanted.NumPartitions, wanted.ReplicationFactor = topic, int32(partitions), -1
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

// partitionsOf are the partitions of a topic, an error unless each has a leader.
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

// poll tries until it works, the error is not one to try again after, or ctx ends; then the error says both why it ended and what failed last.
func poll(ctx context.Context, again func(error) bool, try func() error) error {
	for {
		err := try()
		if err == nil || !again(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w, last: %w", context.Cause(ctx), err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// always tries again: a cluster that starts gives errors of all kinds.
func always(error) bool { return true }

// passing are the errors of a cluster that is electing leaders. A topic that nobody knows is none of them here.
func passing(err error) bool {
	return kerr.IsRetriable(err) && !errors.Is(err, kerr.UnknownTopicOrPartition)
}

func newClient(brokers []string, opts ...kgo.Opt) (*kgo.Client, error) {
	opts = append([]kgo.Opt{kgo.SeedBrokers(brokers...), kgo.DisableClientMetrics()}, opts...)
	client, err := kgo.NewClient(opts...)
	if err != nil {
		return nil, fmt.Errorf("cannot make a Kafka client for %v: %w", brokers, err)
	}
	return client, nil
}

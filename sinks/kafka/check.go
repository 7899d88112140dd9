package kafka

import (
	"context"
	"errors"
	"fmt"

	"github.com/segmentio/kafka-go"

	"trafficd/pipeline/dial"
)

// Check checks the files that the configuration names and, if deep is true, the brokers and the
// topic. Each joined error starts with a setting's key. Check writes no records, but requests a
// producer ID. deep requires a valid configuration. Check does not check the brokers'
// clocks, because no Kafka response contains the time.
func (c Config) Check(ctx context.Context, deep bool) error {
	t, err := c.Kafka.Check(ctx, "", deep)
	if !deep {
		return err
	}
	brokers, newErr := newCluster(c)
	if newErr != nil {
		return err // c.Kafka.Check has reported newErr
	}
	defer brokers.refresh()
	errs := []error{err}
	switch {
	case len(t.Partitions) > 0:
		errs = append(errs, c.checkTopic(t), brokers.checkPermissions(ctx))
	case err != nil:
	case c.CreateTopic.Partitions == 0:
		errs = append(errs, fmt.Errorf("topic: topic %q does not exist: create it, or set kafka.create_topic.partitions", c.Topic))
	default:
		if _, err := brokers.create(ctx, true); err != nil {
			errs = append(errs, fmt.Errorf("create_topic: %w", err))
		}
	}
	return errors.Join(errs...)
}

// checkTopic returns an error for each setting of the topic that could cause measurements to be
// lost or rejected.
func (c Config) checkTopic(t dial.Topic) error {
	errs := []error{t.CheckDurability()}
	replicas, minInSync := t.InSync()
	for _, p := range t.Partitions {
		if len(p.Isr) < minInSync && replicas >= minInSync {
			errs = append(errs, t.Errorf("has %d in-sync replicas of partition %d, fewer than min.insync.replicas %d: check the brokers",
				len(p.Isr), p.ID, minInSync))
		}
	}
	if largest := t.Number("max.message.bytes", c.BatchBytes); largest < c.BatchBytes {
		errs = append(errs, fmt.Errorf("batch_bytes is %d, but topic %q has max.message.bytes %d: lower batch_bytes or raise max.message.bytes",
			c.BatchBytes, c.Topic, largest))
	}
	return errors.Join(errs...)
}

// checkPermissions returns an error for each missing permission.
func (c *cluster) checkPermissions(ctx context.Context) error {
	err := dial.CheckPermissions(ctx, c.client, c.topic)
	if _, _, producerErr := c.newProducer(ctx); errors.Is(producerErr, kafka.ClusterAuthorizationFailed) {
		err = errors.Join(fmt.Errorf("sasl.username: %w", producerErr), err)
	}
	return err
}

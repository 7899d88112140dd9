package kafka

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/segmentio/kafka-go"

	"trafficd/pipeline/lib/dial"
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
		errs = append(errs, c.checkTopic(t), brokers.checkPermissions(ctx), brokers.checkProducerExpiry(ctx, t))
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
	if t.Config == nil && t.ConfigErr != nil {
		errs = append(errs, fmt.Errorf("topic: %w", t.ConfigErr))
	}
	if size := t.Number("retention.bytes", -1); size >= 0 {
		errs = append(errs, t.Errorf("has retention.bytes %d, which may delete records before they are read: set it to -1", size))
	}
	if createTime(t.Config) {
		for name, least := range map[string]time.Duration{
			"retention.ms": minRetention, "message.timestamp.before.max.ms": minRetention, "message.timestamp.after.max.ms": minAhead,
		} {
			if ms := t.Number(name, -1); ms >= 0 && ms < int(least.Milliseconds()) {
				errs = append(errs, t.Errorf("has %s %d, must be at least %d, because the time of a record is received_at: "+
					"raise it, or set message.timestamp.type to LogAppendTime", name, ms, least.Milliseconds()))
			}
		}
	}
	if largest := t.Number("max.message.bytes", c.BatchBytes); largest < c.BatchBytes {
		errs = append(errs, fmt.Errorf("batch_bytes is %d, but topic %q has max.message.bytes %d: lower batch_bytes or raise max.message.bytes",
			c.BatchBytes, c.Topic, largest))
	}
	return errors.Join(errs...)
}

const (
	// minRetention is the time that a local journal should be able to bridge: a long weekend.
	minRetention = 3 * 24 * time.Hour
	// minAhead is more than received_at is ever ahead of the clock (contract 4), and allows for the
	// broker's clock.
	minAhead = 2 * time.Minute
)

// createTime reports whether the time of a record in a topic with these settings is received_at,
// rather than the time at which the broker appends it.
func createTime(config map[string]string) bool {
	return config["message.timestamp.type"] != "LogAppendTime"
}

// checkAge returns an error if the topic would reject records that were received at the given time,
// or delete them within a fifth of its retention. Delivery must then wait: consumers would not get
// them. The settings are read only for rows that are late.
func (c *cluster) checkAge(ctx context.Context, receivedAt int64) error {
	age := time.Since(time.Unix(0, receivedAt))
	if age < minLate {
		return nil
	}
	t, err := dial.DescribeTopic(ctx, c.client, c.topic)
	if err != nil || !createTime(t.Config) {
		return c.fail(err)
	}
	for name, limit := range map[string]int{
		"retention.ms": t.Number("retention.ms", -1) / 5 * 4, "message.timestamp.before.max.ms": t.Number("message.timestamp.before.max.ms", -1),
	} {
		if limit > 0 && age.Milliseconds() >= int64(limit) {
			return fmt.Errorf("topic %q would soon delete or reject measurements received %v ago, because of its %s %s: "+
				"raise it, or set message.timestamp.type to LogAppendTime", c.topic, age.Round(time.Second), name, t.Config[name])
		}
	}
	return nil
}

// minLate is the age from which rows are late, so that the topic's settings matter.
const minLate = 10 * time.Second

// checkProducerExpiry returns an error if a broker forgets a producer while an attempt may still be
// repeated without a lookup. It returns nil if the user may not read the brokers' settings.
func (c *cluster) checkProducerExpiry(ctx context.Context, t dial.Topic) error {
	const name = "producer.id.expiration.ms"
	least := c.cfg.ResolveAfter + c.cfg.RequestTimeout
	r, err := c.client.DescribeConfigs(ctx, &kafka.DescribeConfigsRequest{Resources: []kafka.DescribeConfigRequestResource{{
		ResourceType: kafka.ResourceTypeBroker, ResourceName: strconv.Itoa(t.Partitions[0].Leader.ID), ConfigNames: []string{name},
	}}})
	if err != nil || len(r.Resources) != 1 {
		return nil
	}
	for _, entry := range r.Resources[0].ConfigEntries {
		if ms, err := strconv.Atoi(entry.ConfigValue); entry.ConfigName == name && err == nil && ms < int(least.Milliseconds()) {
			return fmt.Errorf("resolve_after: %s of the brokers is %d, must be at least %d, which is resolve_after and request_timeout: "+
				"lower them or raise it; otherwise records may be doubled", name, ms, least.Milliseconds())
		}
	}
	return nil
}

// checkPermissions returns an error for each missing permission.
func (c *cluster) checkPermissions(ctx context.Context) error {
	err := dial.CheckPermissions(ctx, c.client, c.topic)
	if _, _, producerErr := c.newProducer(ctx); errors.Is(producerErr, kafka.ClusterAuthorizationFailed) {
		err = errors.Join(fmt.Errorf("sasl.username: %w", producerErr), err)
	}
	return err
}

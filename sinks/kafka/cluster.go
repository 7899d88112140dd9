package kafka

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"

	"trafficd/pipeline/lib/dial"
	"trafficd/pipeline/lib/metrics"
)

// maxFetchBytes bounds the size of one response in a lookup; brokers exceed it only for a single
// larger record batch.
const maxFetchBytes = 1 << 20

// cluster sends requests to the brokers. It connects when it is first used.
type cluster struct {
	cfg       Config
	topic     string // topic of all requests
	client    *kafka.Client
	transport *dial.Transport
}

func newCluster(cfg Config) (*cluster, error) {
	transport, err := cfg.Transport()
	if err != nil {
		return nil, fmt.Errorf("kafka.%w", err)
	}
	// The client sends half of its timeout to the brokers, so that they give up first.
	client := &kafka.Client{Addr: cfg.Addr(), Timeout: cfg.RequestTimeout, Transport: transport}
	return &cluster{cfg: cfg, topic: cfg.Topic, client: client, transport: transport}, nil
}

// selectTopic changes the topic of all requests.
func (c *cluster) selectTopic(topic string) {
	if c.topic != topic {
		c.refresh() // only new connections use MetadataTopics
		c.topic, c.transport.MetadataTopics = topic, []string{topic}
	}
}

// refresh closes idle connections and discards the metadata, which names the leaders.
func (c *cluster) refresh() { c.transport.CloseIdleConnections() }

// fail adds the hint, if any, to an error and calls refresh, because leaders may have moved. It
// returns nil for a nil error.
func (c *cluster) fail(err error) error {
	if err == nil {
		return nil
	}
	c.refresh()
	return fmt.Errorf("%w%s", err, hint(err))
}

func (c *cluster) describe(ctx context.Context) (id string, partitions int, err error) {
	id, list, err := dial.Partitions(ctx, c.client, c.topic)
	return id, len(list), c.fail(err)
}

// topicID returns the ID of the topic, or zero if the brokers are too old to report one.
func (c *cluster) topicID(ctx context.Context) (dial.TopicID, error) {
	id, err := dial.FetchTopicID(ctx, c.client, c.topic)
	return id, c.fail(err)
}

// create creates the topic unless it exists, and reports whether it did. With dryRun, it only
// checks whether that is possible.
func (c *cluster) create(ctx context.Context, dryRun bool) (created bool, err error) {
	created, err = dial.CreateTopic(ctx, c.client, kafka.TopicConfig{
		Topic: c.topic, NumPartitions: c.cfg.CreateTopic.Partitions, ReplicationFactor: c.cfg.CreateTopic.ReplicationFactor,
	}, dryRun)
	return created, c.fail(err)
}

// newProducer returns a producer ID that has never been used.
func (c *cluster) newProducer(ctx context.Context) (id int64, epoch int16, err error) {
	r, err := c.client.InitProducerID(ctx, &kafka.InitProducerIDRequest{ProducerID: -1, ProducerEpoch: -1})
	if err == nil {
		err = r.Error
	}
	if err != nil {
		return 0, 0, c.fail(fmt.Errorf("cannot get a producer ID from %v: %w", c.cfg.Brokers, err))
	}
	return int64(r.Producer.ProducerID), int16(r.Producer.ProducerEpoch), nil
}

func (c *cluster) offset(ctx context.Context, partition int, which int64) (int64, error) {
	offset, err := dial.Offset(ctx, c.client, c.topic, partition, which)
	return offset, c.fail(c.explain(ctx, err))
}

// bounds returns the first offset of a partition and the offset after its last record.
func (c *cluster) bounds(ctx context.Context, partition int) (start, end int64, err error) {
	if end, err = c.offset(ctx, partition, kafka.LastOffset); err == nil {
		start, err = c.offset(ctx, partition, kafka.FirstOffset)
	}
	return start, end, err
}

// explain returns the cause if err is kafka-go's error for a topic without metadata, otherwise err.
func (c *cluster) explain(ctx context.Context, err error) error {
	if errors.Is(err, protocol.ErrNoTopic) {
		if _, _, reason := dial.Partitions(ctx, c.client, c.topic); reason != nil {
			return reason
		}
	}
	return err
}

// produce sends a record batch, preceded by its length, and waits until all in-sync replicas have
// it. base is the offset of its first record (for a duplicate, the offset from the first attempt),
// or negative if the broker does not report it. If there is no response, the caller must not reuse
// the memory of frame, because the connection may still read it.
func (c *cluster) produce(ctx context.Context, partition int, frame []byte) (base int64, err error) {
	start := time.Now()
	r, err := c.client.RawProduce(ctx, &kafka.RawProduceRequest{
		Topic: c.topic, Partition: partition, RequiredAcks: kafka.RequireAll,
		RawRecords: protocol.RawRecordSet{Reader: bytes.NewReader(frame)},
	})
	metrics.Since(produceSeconds, start)
	requestsTotal.Inc()
	bytesTotal.Add(float64(len(frame) - frameLen))
	if err != nil {
		return unknownOffset, c.explain(ctx, err)
	}
	return r.BaseOffset, r.Error
}

func (c *cluster) fetch(ctx context.Context, partition int, offset int64) (kafka.RecordReader, error) {
	r, err := c.client.Fetch(ctx, &kafka.FetchRequest{
		Topic: c.topic, Partition: partition, Offset: offset, MinBytes: 1, MaxBytes: maxFetchBytes,
	})
	if err == nil {
		err = r.Error
	}
	if err != nil {
		err = fmt.Errorf("cannot read partition %d of topic %q from offset %d: %w", partition, c.topic, offset, c.explain(ctx, err))
		return nil, c.fail(err)
	}
	return r.Records, nil
}

package kafka

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/sasl"
)

// Dial opens a connection to a broker by its advertised address.
type Dial func(ctx context.Context, network, address string) (net.Conn, error)

// fetchBytes bounds one answer of a look-up; brokers exceed it only for a
// single larger record batch.
const fetchBytes = 1 << 20

// cluster asks the brokers. It connects when it is first used.
type cluster struct {
	cfg  Config
	tls  *tls.Config
	sasl sasl.Mechanism
	dial Dial

	topic     string // whose leaders are known
	client    *kafka.Client
	transport *kafka.Transport
}

func newCluster(cfg Config, dial Dial) (*cluster, error) {
	c := &cluster{cfg: cfg, dial: dial}
	var err error
	if c.tls, err = cfg.TLS.config(); err != nil {
		return nil, err
	}
	c.sasl, err = cfg.SASL.config()
	return c, err
}

// use makes topic the one that all methods are about.
func (c *cluster) use(topic string) {
	if c.client != nil && c.topic == topic {
		return
	}
	c.close()
	c.topic = topic
	c.transport = &kafka.Transport{
		Dial:           c.dial,
		DialTimeout:    c.cfg.DialTimeout,
		MetadataTTL:    c.cfg.MetadataMaxAge,
		MetadataTopics: []string{topic}, // of all other topics nothing is needed
		ClientID:       c.cfg.ClientID,
		TLS:            c.tls,
		SASL:           c.sasl,
	}
	// The client tells the brokers half of its timeout, so that they give up first.
	c.client = &kafka.Client{Addr: kafka.TCP(c.cfg.Brokers...), Timeout: c.cfg.RequestTimeout, Transport: c.transport}
}

// refresh forgets leaders and idle connections.
func (c *cluster) refresh() { c.transport.CloseIdleConnections() }

func (c *cluster) close() {
	if c.transport != nil {
		c.transport.CloseIdleConnections()
	}
}

// describe gives the cluster's id and the topic's number of partitions.
func (c *cluster) describe(ctx context.Context) (id string, partitions int, err error) {
	m, err := c.client.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{c.topic}})
	if err == nil && len(m.Topics) == 1 {
		id, partitions, err = m.ClusterID, len(m.Topics[0].Partitions), m.Topics[0].Error
	}
	if err == nil && partitions == 0 {
		err = kafka.UnknownTopicOrPartition
	}
	if err != nil {
		return "", 0, fmt.Errorf("cannot read the partitions of topic %q from %v: %w", c.topic, c.cfg.Brokers, err)
	}
	return id, partitions, nil
}

// create makes the topic; that it exists already is no error.
func (c *cluster) create(ctx context.Context) error {
	r, err := c.client.CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{{
		Topic:             c.topic,
		NumPartitions:     c.cfg.CreateTopic.Partitions,
		ReplicationFactor: c.cfg.CreateTopic.ReplicationFactor,
	}}})
	if err == nil {
		err = r.Errors[c.topic]
	}
	if err != nil && !errors.Is(err, kafka.TopicAlreadyExists) {
		return fmt.Errorf("cannot create topic %q: %w", c.topic, err)
	}
	return nil
}

// newProducer gets a producer id that nobody has used.
func (c *cluster) newProducer(ctx context.Context) (id int64, epoch int16, err error) {
	r, err := c.client.InitProducerID(ctx, &kafka.InitProducerIDRequest{ProducerID: -1, ProducerEpoch: -1})
	if err == nil {
		err = r.Error
	}
	if err != nil {
		return 0, 0, fmt.Errorf("cannot get a producer id from %v: %w%s", c.cfg.Brokers, err, hint(err))
	}
	return int64(r.Producer.ProducerID), int16(r.Producer.ProducerEpoch), nil
}

// offset gives where a partition starts (kafka.FirstOffset) or the next offset
// that readers will see (kafka.LastOffset). It asks for one at a time: of an
// answer that is missing among several the client makes offset 0.
func (c *cluster) offset(ctx context.Context, partition int, which int64) (int64, error) {
	r, err := c.client.ListOffsets(ctx, &kafka.ListOffsetsRequest{
		Topics: map[string][]kafka.OffsetRequest{c.topic: {{Partition: partition, Timestamp: which}}},
	})
	if err != nil {
		return 0, fmt.Errorf("cannot read the offsets of partition %d of topic %q: %w", partition, c.topic, err)
	}
	answers := r.Topics[c.topic]
	if len(answers) == 0 {
		return 0, fmt.Errorf("cannot read the offsets of partition %d of topic %q: empty answer", partition, c.topic)
	}
	if err := answers[0].Error; err != nil {
		return 0, fmt.Errorf("cannot read the offsets of partition %d of topic %q: %w%s", partition, c.topic, err, hint(err))
	}
	return max(answers[0].FirstOffset, answers[0].LastOffset), nil
}

// produce sends a record batch with its length before it and waits until all
// replicas in sync have it. base is its place in the log, or that of the first
// attempt; negative if the broker does not say. Without an answer the frame is
// no longer the caller's: it must not be written to again.
func (c *cluster) produce(ctx context.Context, partition int, frame []byte) (base int64, err error) {
	start := time.Now()
	r, err := c.client.RawProduce(ctx, &kafka.RawProduceRequest{
		Topic:        c.topic,
		Partition:    partition,
		RequiredAcks: kafka.RequireAll,
		RawRecords:   protocol.RawRecordSet{Reader: bytes.NewReader(frame)},
	})
	produceSeconds.UpdateDuration(start)
	requestsTotal.Inc()
	bytesTotal.Add(len(frame) - frameLen)
	if err != nil {
		return unknown, err
	}
	return r.BaseOffset, r.Error
}

// fetch reads some record batches of a partition from an offset on.
func (c *cluster) fetch(ctx context.Context, partition int, offset int64) (kafka.RecordReader, error) {
	r, err := c.client.Fetch(ctx, &kafka.FetchRequest{
		Topic: c.topic, Partition: partition, Offset: offset, MinBytes: 1, MaxBytes: fetchBytes,
	})
	if err == nil {
		err = r.Error
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read partition %d of topic %q from offset %d: %w%s", partition, c.topic, offset, err, hint(err))
	}
	return r.Records, nil
}

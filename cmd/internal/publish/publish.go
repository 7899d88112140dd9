// Package publish writes street forecasts to the topic that the daemon reads, each publication in
// one transaction on one partition (contract 2).
package publish

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/rs/zerolog"
	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"google.golang.org/protobuf/proto"

	"trafficd/pipeline/lib/dial"
	pb "trafficd/schemas/proto/trafficd/v1"
	"trafficd/sources/forecasts"
)

const (
	// The maximum size of a record batch, below the brokers' limit. A larger record is sent alone,
	// because it may fit once compressed.
	batchRecords = 1000
	batchBytes   = 900 << 10

	// The maximum total size of the records that Digests reads. It keeps only their keys and digests.
	maxBytes = 4 << 30
)

// Publisher writes forecasts to the topic. It is not safe for concurrent use.
type Publisher struct {
	cfg       dial.Kafka
	options   Options
	transport *dial.Transport
	client    *kafka.Client
	topic     dial.TopicID // the topic that Digests has read; zero before
}

// Options holds the settings of transactions.
type Options struct {
	ID      string        // the transactional ID; empty to derive it from the topic
	Timeout time.Duration // brokers abort a transaction after this time
}

// NewPublisher returns a publisher that connects on first use. The caller must close it.
func NewPublisher(cfg dial.Kafka, o Options) (*Publisher, error) {
	transport, err := cfg.Transport()
	if err = errors.Join(cfg.Validate("kafka."), err); err != nil {
		return nil, err
	}
	o.ID = cmp.Or(o.ID, "trafficctl-forecasts-"+cfg.Topic)
	client := &kafka.Client{Addr: cfg.Addr(), Timeout: cfg.RequestTimeout, Transport: transport}
	return &Publisher{cfg: cfg, options: o, transport: transport, client: client}, nil
}

// Close closes the idle connections.
func (p *Publisher) Close() { p.transport.CloseIdleConnections() }

// Publish writes the forecasts, and a tombstone for each removed key, in one transaction on the
// topic's first partition, which is committed when Publish returns nil. It calls progress with the
// number of records written so far. It fails if the topic is not the one that Digests has read,
// which had other forecasts.
func (p *Publisher) Publish(ctx context.Context, all []*pb.StreetForecast, removed []string, progress func(int)) (err error) {
	outcome := "nothing is published"
	defer func() {
		if err != nil {
			err = fmt.Errorf("cannot write to topic %q at %v, %s: %w", p.cfg.Topic, p.cfg.Brokers, outcome, err)
		}
	}()
	records, err := encode(all, removed)
	if err != nil {
		return err
	}
	if p.topic != (dial.TopicID{}) {
		now, err := dial.FetchTopicID(ctx, p.client, p.cfg.Topic)
		if err != nil {
			return err
		}
		if now != p.topic {
			return errRecreated
		}
	}
	_, partitions, err := dial.Partitions(ctx, p.client, p.cfg.Topic)
	if err != nil {
		return err
	}
	t, err := p.begin(ctx, partitions[0])
	if err != nil {
		return err
	}
	for n := 0; n < len(records); {
		batch := firstBatch(records[n:])
		if err := t.write(ctx, n, batch); err != nil {
			// If the abort fails, the brokers abort the transaction after its timeout.
			abort, cancel := context.WithTimeout(context.WithoutCancel(ctx), min(p.cfg.RequestTimeout, 5*time.Second))
			defer cancel()
			_ = t.end(abort, false)
			return err
		}
		n += len(batch)
		progress(n)
	}
	outcome = "it is unknown whether the forecasts are published"
	return t.commit(ctx)
}

// encode returns a record for each forecast, and a tombstone for each removed key.
func encode(all []*pb.StreetForecast, removed []string) ([]protocol.Record, error) {
	records := make([]protocol.Record, 0, len(all)+len(removed))
	for _, f := range all {
		value, err := proto.Marshal(f)
		if err != nil {
			return nil, fmt.Errorf("cannot encode street %s: %w", forecasts.Key(f), err)
		}
		records = append(records, protocol.Record{Key: protocol.NewBytes(forecasts.Key(f)), Value: protocol.NewBytes(value)})
	}
	for _, key := range removed {
		records = append(records, protocol.Record{Key: protocol.NewBytes([]byte(key))})
	}
	return records, nil
}

var errRecreated = errors.New("the topic was recreated since its forecasts were read")

// firstBatch returns as many of the first records as fit into one record batch.
func firstBatch(records []protocol.Record) []protocol.Record {
	size := 0
	for i, r := range records[:min(len(records), batchRecords)] {
		size += r.Key.Len()
		if r.Value != nil {
			size += r.Value.Len()
		}
		if size > batchBytes && i > 0 {
			return records[:i]
		}
	}
	return records[:min(len(records), batchRecords)]
}

// Digest returns a digest of a forecast, for detecting changes.
func Digest(f *pb.StreetForecast) uint64 {
	record, _ := proto.MarshalOptions{Deterministic: true}.Marshal(f) // Publish reports the error
	return xxhash.Sum64(record)
}

// Digests returns the digests of the forecasts in the topic by key. Like the daemon, it ignores
// invalid records.
func (p *Publisher) Digests(ctx context.Context, timeout time.Duration) (map[string]uint64, error) {
	cfg := forecasts.DefaultConfig()
	cfg.Feed, cfg.Kafka, cfg.MaxBytes = forecasts.FeedKafka, p.cfg, maxBytes
	cfg.MaxSpeed = forecasts.HighestMaxSpeed // include the keys of records that a daemon would skip
	seen := &inventory{digests: make(map[string]uint64), complete: make(chan struct{})}
	feed, err := forecasts.New(cfg, seen, zerolog.Nop())
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if _, err = p.prepare(ctx); err == nil { // an open transaction would hide the records after it
		p.topic, err = dial.FetchTopicID(ctx, p.client, p.cfg.Topic)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read topic %q: %w", p.cfg.Topic, err)
	}
	feed.Start(ctx)
	defer feed.Close()
	select {
	case <-seen.complete:
		feed.Close() // stop it before reading digests
		return seen.digests, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("cannot read topic %q: %w; %s", p.cfg.Topic, ctx.Err(), feed.Status().Error)
	}
}

// inventory is a layer that keeps only the keys and digests of forecasts.
type inventory struct {
	digests  map[string]uint64
	first    sync.Once
	complete chan struct{} // closed once digests covers the whole topic
}

func (i *inventory) Put(f *pb.StreetForecast) { i.digests[string(forecasts.Key(f))] = Digest(f) }

func (i *inventory) Remove(street, fromnode int32) {
	delete(i.digests, string(forecasts.Key(&pb.StreetForecast{Street: street, Fromnode: fromnode})))
}

func (i *inventory) Clear() { clear(i.digests) }

func (i *inventory) Publish(time.Time) { i.first.Do(func() { close(i.complete) }) }

func (i *inventory) Confirm(time.Time) {}

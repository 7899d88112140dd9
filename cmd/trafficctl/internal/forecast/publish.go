package forecast

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"github.com/segmentio/kafka-go"
	"google.golang.org/protobuf/proto"

	pb "trafficd/schemas/proto/trafficd/v1"
	"trafficd/sources/forecasts"
)

// recordsPerCall is the number of records that are written and acknowledged together.
const recordsPerCall = 1000

// Publisher writes forecasts to the topic. It is not safe for concurrent use.
type Publisher struct {
	cfg    forecasts.KafkaConfig
	writer *kafka.Writer
}

// NewPublisher returns a publisher, which connects on first use. The caller closes it.
func NewPublisher(cfg forecasts.KafkaConfig) (*Publisher, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	transport, err := cfg.Transport()
	if err != nil {
		return nil, err
	}
	return &Publisher{cfg: cfg, writer: &kafka.Writer{
		Addr:         kafka.TCP(cfg.Brokers...),
		Topic:        cfg.Topic,
		Balancer:     kafka.Murmur2Balancer{Consistent: true}, // as other clients place keys
		RequiredAcks: kafka.RequireAll,
		BatchSize:    recordsPerCall,
		BatchTimeout: 10 * time.Millisecond,
		WriteTimeout: cfg.RequestTimeout,
		ReadTimeout:  cfg.RequestTimeout,
		Compression:  kafka.Lz4,
		Transport:    transport,
	}}, nil
}

// Close closes the connections.
func (p *Publisher) Close() error {
	err := p.writer.Close()
	p.writer.Transport.(*kafka.Transport).CloseIdleConnections()
	return err
}

// Put writes the forecasts and returns when all in-sync replicas have them. It calls done with the
// count so far. A record may be written twice if an acknowledgement was lost, which is harmless in a
// compacted topic.
func (p *Publisher) Put(ctx context.Context, all []*pb.StreetForecast, done func(int)) error {
	messages := make([]kafka.Message, len(all))
	for i, f := range all {
		value, err := proto.Marshal(f)
		if err != nil {
			return fmt.Errorf("cannot encode street %s: %w", forecasts.Key(f), err)
		}
		messages[i] = kafka.Message{Key: forecasts.Key(f), Value: value}
	}
	return p.write(ctx, messages, done)
}

// Remove writes a tombstone for each key.
func (p *Publisher) Remove(ctx context.Context, keys []string, done func(int)) error {
	messages := make([]kafka.Message, len(keys))
	for i, key := range keys {
		messages[i] = kafka.Message{Key: []byte(key)}
	}
	return p.write(ctx, messages, done)
}

func (p *Publisher) write(ctx context.Context, messages []kafka.Message, done func(int)) error {
	n := 0
	for some := range slices.Chunk(messages, recordsPerCall) {
		if err := p.writer.WriteMessages(ctx, some...); err != nil {
			return fmt.Errorf("cannot write to topic %q at %v after %d acknowledged records: %w", p.cfg.Topic, p.cfg.Brokers, n, reason(err))
		}
		n += len(some)
		done(n)
	}
	return nil
}

// reason returns the first of the client's per-record errors.
func reason(err error) error {
	var each kafka.WriteErrors
	if errors.As(err, &each) {
		for _, e := range each {
			if e != nil {
				return e
			}
		}
	}
	return err
}

// Keys returns the sorted keys of the forecasts in the topic. It reads the topic as the daemon does,
// without the keys of invalid records.
func (p *Publisher) Keys(ctx context.Context, timeout time.Duration) ([]string, error) {
	cfg := forecasts.DefaultConfig()
	cfg.Feed, cfg.Kafka, cfg.MaxBytes = forecasts.FeedKafka, p.cfg, MaxBytes
	cfg.MaxSpeed = forecasts.HighestMaxSpeed // also the keys of records that this or another daemon would skip
	seen := &inventory{keys: make(map[string]bool), whole: make(chan struct{})}
	feed, err := forecasts.New(cfg, seen, zerolog.Nop())
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	feed.Start(ctx)
	defer feed.Close()
	select {
	case <-seen.whole:
		feed.Close() // before keys is read
		return slices.Sorted(maps.Keys(seen.keys)), nil
	case <-ctx.Done():
		return nil, fmt.Errorf("cannot read topic %q: %w; %s", p.cfg.Topic, ctx.Err(), feed.Status().Error)
	}
}

// inventory is a layer that keeps only the keys.
type inventory struct {
	keys  map[string]bool
	first sync.Once
	whole chan struct{} // closed once keys covers the whole topic
}

func (i *inventory) Put(f *pb.StreetForecast) { i.keys[string(forecasts.Key(f))] = true }

func (i *inventory) Remove(street, fromnode int32) {
	delete(i.keys, string(forecasts.Key(&pb.StreetForecast{Street: street, Fromnode: fromnode})))
}

func (i *inventory) Replace(all []*pb.StreetForecast) {
	clear(i.keys)
	for _, f := range all {
		i.Put(f)
	}
}

func (i *inventory) Publish(time.Time) { i.first.Do(func() { close(i.whole) }) }

func (i *inventory) Confirm(time.Time) {}

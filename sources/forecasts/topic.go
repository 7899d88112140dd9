package forecasts

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/segmentio/kafka-go"

	pb "trafficd/schemas/proto/trafficd/v1"
	"trafficd/sources/internal/watch"
)

// topicFeed follows all partitions of a topic from their start. Until it has
// reached the end that each of them had, it only gathers; then the layer gets
// all at once, and from there on each record as it comes.
type topicFeed struct {
	cfg       KafkaConfig
	layer     Layer
	faults    *faults
	transport *kafka.Transport
	client    *kafka.Client

	next      map[int]int64       // by partition: the offset to read next
	gathered  map[identity]latest // nil once the layer has it
	changed   bool                // the layer was given something that is not published
	confirmed time.Time           // by the last poll that went well
	turn      int                 // polls so far
}

// latest is the last word of the topic about a street while it is gathered.
type latest struct {
	forecast  *pb.StreetForecast // nil: it was removed
	partition int
	at        time.Time // of the record
}

func newTopicFeed(cfg KafkaConfig, layer Layer, faults *faults) (*topicFeed, error) {
	transport, err := cfg.Transport()
	if err != nil {
		return nil, err
	}
	t := &topicFeed{cfg: cfg, layer: layer, faults: faults, transport: transport}
	t.client = &kafka.Client{Addr: kafka.TCP(cfg.Brokers...), Timeout: cfg.RequestTimeout, Transport: transport}
	t.startOver()
	return t, nil
}

func (t *topicFeed) changes() <-chan struct{} { return nil }

func (t *topicFeed) close() { t.transport.CloseIdleConnections() }

func (t *topicFeed) startOver() {
	t.next, t.gathered = make(map[int]int64), make(map[identity]latest)
	t.faults.restart()
}

func (t *topicFeed) check(ctx context.Context) (time.Time, error) {
	err := t.poll(ctx)
	switch {
	case ctx.Err() != nil:
		return t.confirmed, ctx.Err()
	case errors.Is(err, kafka.OffsetOutOfRange):
		t.startOver()
		err = fmt.Errorf("%w: the topic was made anew, or lost records that were not read yet; it is read from its start", err)
	case err == nil:
		t.confirmed = time.Now()
	}
	if err != nil {
		t.transport.CloseIdleConnections() // forgets leaders that may have moved
	}
	return t.confirmed, t.publish(err)
}

// publish shows what was read. Where some partition could not be read, what
// others said is shown nevertheless, but confirms nothing.
func (t *topicFeed) publish(err error) error {
	if err == nil && t.gathered != nil {
		t.layer.Replace(t.whole())
		t.gathered, t.changed = nil, true
	}
	switch {
	case t.gathered == nil && t.changed:
		t.layer.Publish(t.confirmed)
		t.changed = false
	case err == nil:
		t.layer.Confirm(t.confirmed)
		return watch.ErrUnchanged
	}
	return err
}

func (t *topicFeed) whole() []*pb.StreetForecast {
	all := make([]*pb.StreetForecast, 0, len(t.gathered))
	for _, l := range t.gathered {
		if l.forecast != nil {
			all = append(all, l.forecast)
		}
	}
	return all
}

// poll reads every partition up to the end that it has. It begins with another
// one each time, so that a broker that is away does not hide the others.
func (t *topicFeed) poll(ctx context.Context) error {
	partitions, err := t.partitions(ctx)
	if err != nil {
		return err
	}
	t.turn++
	for i := range partitions {
		partition := partitions[(i+t.turn)%len(partitions)]
		if err := t.drain(ctx, partition); err != nil {
			return fmt.Errorf("partition %d of topic %q: %w", partition, t.cfg.Topic, err)
		}
	}
	return nil
}

func (t *topicFeed) partitions(ctx context.Context) ([]int, error) {
	m, err := t.client.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{t.cfg.Topic}})
	found := make(map[int]bool)
	if err == nil {
		for _, topic := range m.Topics {
			err = errors.Join(err, topic.Error)
			for _, p := range topic.Partitions {
				found[p.ID] = true
			}
		}
		if err == nil && len(found) == 0 {
			err = kafka.UnknownTopicOrPartition
		}
	}
	if err != nil {
		return nil, fmt.Errorf("cannot find the partitions of topic %q at %v: %w", t.cfg.Topic, t.cfg.Brokers, err)
	}
	return slices.Sorted(maps.Keys(found)), nil
}

// drain reads a partition up to the end that it has at the beginning.
func (t *topicFeed) drain(ctx context.Context, partition int) error {
	if _, ok := t.next[partition]; !ok {
		first, err := t.first(ctx, partition)
		if err != nil {
			return err
		}
		t.next[partition] = first
	}
	for end := int64(-1); end < 0 || t.next[partition] < end; {
		high, err := t.fetch(ctx, partition)
		if err != nil {
			return err
		}
		if end < 0 {
			end = high
		}
	}
	return nil
}

func (t *topicFeed) first(ctx context.Context, partition int) (int64, error) {
	r, err := t.client.ListOffsets(ctx, &kafka.ListOffsetsRequest{
		Topics: map[string][]kafka.OffsetRequest{t.cfg.Topic: {kafka.FirstOffsetOf(partition)}},
	})
	if err != nil {
		return 0, fmt.Errorf("cannot find its start: %w", err)
	}
	for _, p := range r.Topics[t.cfg.Topic] {
		if p.Partition == partition {
			return p.FirstOffset, p.Error
		}
	}
	return 0, errors.New("cannot find its start: empty answer")
}

// fetch reads one answer from the next offset on and gives the partition's end.
func (t *topicFeed) fetch(ctx context.Context, partition int) (end int64, err error) {
	from := t.next[partition]
	r, err := t.client.Fetch(ctx, &kafka.FetchRequest{
		Topic: t.cfg.Topic, Partition: partition, Offset: from,
		MaxBytes: int64(t.cfg.FetchBytes), // without a minimum the broker does not wait
	})
	if err == nil {
		err = r.Error
	}
	if err != nil {
		return 0, fmt.Errorf("cannot read from offset %d on: %w", from, err)
	}
	for {
		record, err := r.Records.ReadRecord()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = t.take(partition, record)
		}
		if err != nil {
			return 0, fmt.Errorf("cannot read offset %d: %w", t.next[partition], err)
		}
	}
	// Nothing at this offset is the end of a batch that was compacted away, or
	// a control record: the next answer is about what follows.
	if t.next[partition] == from && from < r.HighWatermark {
		t.next[partition]++
	}
	return r.HighWatermark, nil
}

func (t *topicFeed) take(partition int, r *kafka.Record) error {
	if r.Offset < t.next[partition] { // brokers give whole batches
		return nil
	}
	key, err := kafka.ReadAll(r.Key)
	if err != nil {
		return err
	}
	value, err := kafka.ReadAll(r.Value)
	if err != nil {
		return err
	}
	t.next[partition] = r.Offset + 1
	position := fmt.Sprintf("partition %d offset %d", partition, r.Offset)
	id, forecast, remarks, err := parseRecord(key, value)
	if err != nil {
		t.faults.skip(position, err)
		return nil
	}
	t.faults.remark(position, remarks)
	t.apply(id, latest{forecast, partition, r.Time})
	return nil
}

func (t *topicFeed) apply(id identity, l latest) {
	if l.forecast == nil {
		recordsRemoved.Inc()
	} else {
		recordsTaken.Inc()
	}
	if t.gathered != nil {
		// Within a partition the order counts, between two of them only time is left.
		before, ok := t.gathered[id]
		if !ok || before.partition == l.partition || !l.at.Before(before.at) {
			t.gathered[id] = l
		}
		return
	}
	t.changed = true
	if l.forecast == nil {
		t.layer.Remove(id.street, id.fromnode)
		return
	}
	t.layer.Put(l.forecast)
}

package forecasts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/segmentio/kafka-go"

	"trafficd/pipeline/dial"
	pb "trafficd/schemas/proto/trafficd/v1"
	"trafficd/sources/internal/watch"
)

// topicFeed follows all partitions of a topic from their start. Until it has
// reached the end that each of them had, it only gathers; then the layer gets
// all at once, and from there on each record as it comes.
type topicFeed struct {
	cfg       KafkaConfig
	maxBytes  int64
	layer     Layer
	faults    *faults
	transport *kafka.Transport
	client    *kafka.Client

	topic     topicID             // that is read
	next      map[int]int64       // by partition: the offset to read next
	streets   map[identity]latest // the last word about each
	bytes     int64               // of streets, about
	removed   int                 // of streets
	caughtUp  bool                // the layer has the streets; else they are gathered
	changed   bool                // the layer was given something that is not published
	confirmed time.Time           // by the last poll that went well
	turn      int                 // polls so far
}

// latest is the last word of the topic about a street.
type latest struct {
	forecast  *pb.StreetForecast // only until the layer has it; nil: the street was removed
	removes   bool
	partition int
	at        time.Time // of the latest record in this partition
	bytes     int64     // about what it takes
}

// follows tells whether a record is to replace what was said before. Within a
// partition the order counts, between two of them only time is left. The outcome
// does not depend on which partition is read first.
func (l latest) follows(before latest) bool {
	return l.partition == before.partition ||
		cmp.Or(l.at.Compare(before.at), cmp.Compare(l.partition, before.partition)) > 0
}

func newTopicFeed(cfg KafkaConfig, maxBytes int64, layer Layer, faults *faults) (*topicFeed, error) {
	transport, err := cfg.Transport()
	if err != nil {
		return nil, fmt.Errorf("forecasts.kafka: %w", err)
	}
	t := &topicFeed{cfg: cfg, maxBytes: maxBytes, layer: layer, faults: faults, transport: transport}
	t.client = &kafka.Client{Addr: kafka.TCP(cfg.Brokers...), Timeout: cfg.RequestTimeout, Transport: transport}
	t.startOver()
	return t, nil
}

func (t *topicFeed) changes() <-chan struct{} { return nil }

func (t *topicFeed) close() { t.transport.CloseIdleConnections() }

func (t *topicFeed) startOver() {
	t.next, t.streets = make(map[int]int64), make(map[identity]latest)
	t.bytes, t.removed, t.caughtUp = 0, 0, false
	t.faults.restart()
}

func (t *topicFeed) check(ctx context.Context) (time.Time, error) {
	began := time.Now()
	err := t.poll(ctx)
	switch {
	case ctx.Err() != nil:
		return t.confirmed, ctx.Err()
	case errors.Is(err, kafka.OffsetOutOfRange), errors.Is(err, errMadeAnew):
		t.startOver()
		err = fmt.Errorf("%w: the topic was made anew, or lost records that were not read yet; it is read from its start", err)
	case err == nil:
		t.confirmed = began // what came later was perhaps not seen
	}
	if err != nil {
		t.transport.CloseIdleConnections() // forgets leaders that may have moved
	}
	return t.confirmed, t.publish(err)
}

// publish shows what was read. Where some partition could not be read, what
// others said is shown nevertheless, but confirms nothing.
func (t *topicFeed) publish(err error) error {
	if err == nil && !t.caughtUp {
		t.layer.Replace(t.handOver())
		t.caughtUp, t.changed = true, true
	}
	switch {
	case t.caughtUp && t.changed:
		t.layer.Publish(t.confirmed)
		t.changed = false
	case err == nil:
		t.layer.Confirm(t.confirmed)
		return watch.ErrUnchanged
	}
	return err
}

// handOver gives what was gathered, which belongs to the layer from then on.
func (t *topicFeed) handOver() []*pb.StreetForecast {
	all := make([]*pb.StreetForecast, 0, len(t.streets))
	for id, l := range t.streets {
		if !l.removes {
			all = append(all, l.forecast)
			l.forecast = nil
			t.streets[id] = l
		}
	}
	return all
}

var errMadeAnew = errors.New("another topic has the name now")

// poll reads every partition up to the end that it has. That all of it was of
// one topic is seen at the end: another one of the name has the same offsets.
func (t *topicFeed) poll(ctx context.Context) (err error) {
	if len(t.next) == 0 {
		if t.topic, err = t.identify(ctx); err != nil {
			return err
		}
	}
	if err := t.drainAll(ctx); err != nil {
		return err
	}
	now, err := t.identify(ctx)
	if err == nil && now != t.topic {
		err = errMadeAnew
	}
	return err
}

// drainAll begins with another partition each time, so that a broker that is
// away does not hide the others.
func (t *topicFeed) drainAll(ctx context.Context) error {
	_, partitions, err := dial.Partitions(ctx, t.client, t.cfg.Topic)
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

func (t *topicFeed) identify(ctx context.Context) (topicID, error) {
	ctx, cancel := context.WithTimeout(ctx, t.cfg.RequestTimeout)
	defer cancel()
	id, err := askTopicID(ctx, t.client, t.cfg.Topic)
	if err != nil {
		return id, fmt.Errorf("cannot find topic %q at %v: %w", t.cfg.Topic, t.cfg.Brokers, err)
	}
	return id, nil
}

// drain reads a partition up to the end that it has at the beginning.
func (t *topicFeed) drain(ctx context.Context, partition int) error {
	if _, ok := t.next[partition]; !ok {
		first, err := dial.Offset(ctx, t.client, t.cfg.Topic, partition, kafka.FirstOffset)
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

func (t *topicFeed) take(partition int, r *kafka.Record, aborted bool) error {
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
	if aborted {
		return nil
	}
	position := fmt.Sprintf("partition %d offset %d", partition, r.Offset)
	id, forecast, remarks, err := parseRecord(key, value)
	if err == nil {
		err = t.apply(id, latest{forecast, forecast == nil, partition, r.Time, streetBytes + int64(len(value))})
	}
	if err != nil {
		t.faults.skip(position, err)
		return nil
	}
	t.faults.remark(position, remarks)
	return nil
}

// streetBytes is about what a street takes in memory besides its record.
const streetBytes = 200

// apply takes the record in where it is the last word about its street.
func (t *topicFeed) apply(id identity, l latest) error {
	before, known := t.streets[id]
	if known && !l.follows(before) {
		return nil
	}
	if known && l.partition == before.partition && l.at.Before(before.at) {
		l.at = before.at // its producer's clock was set back
	}
	if !t.fits(id, l) {
		return fmt.Errorf("the topic's streets take more than %d bytes: raise forecasts.max_bytes, and start again", t.maxBytes)
	}
	t.forget(id)
	t.remember(id, l)
	if l.removes {
		recordsRemoved.Inc()
	} else {
		recordsTaken.Inc()
	}
	return nil
}

// fits makes room by forgetting streets that were removed, as brokers do after
// a day. Only an older record in another partition would still ask for them.
func (t *topicFeed) fits(id identity, l latest) bool {
	if !t.hasRoom(id, l) && t.removed > len(t.streets)/2 {
		for other, said := range t.streets {
			if said.removes {
				t.forget(other)
			}
		}
	}
	return t.hasRoom(id, l)
}

func (t *topicFeed) hasRoom(id identity, l latest) bool {
	return t.bytes-t.streets[id].bytes+l.bytes <= t.maxBytes
}

func (t *topicFeed) remember(id identity, l latest) {
	if t.caughtUp {
		t.changed = true
		if l.removes {
			t.layer.Remove(id.street, id.fromnode)
		} else {
			t.layer.Put(l.forecast)
		}
		l.forecast = nil
	}
	t.streets[id] = l
	t.bytes += l.bytes
	if l.removes {
		t.removed++
	}
}

func (t *topicFeed) forget(id identity) {
	l := t.streets[id]
	t.bytes -= l.bytes
	if l.removes {
		t.removed--
	}
	delete(t.streets, id)
}

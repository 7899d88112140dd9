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

// topicFeed reads all partitions of a topic from their start. Until it has caught up with each of
// them it only collects streets; then it hands them to the layer at once, and later records one at a
// time.
type topicFeed struct {
	cfg       KafkaConfig
	maxBytes  int64
	maxSpeed  float64
	layer     Layer
	faults    *faults
	transport *kafka.Transport
	client    *kafka.Client

	topic     topicID             // the topic being read
	next      map[int]int64       // by partition: the offset to read next
	streets   map[identity]latest // the latest record of each
	bytes     int64               // of streets, approximately
	removed   int                 // tombstones in streets
	caughtUp  bool                // the layer has the streets
	changed   bool                // the layer has unpublished updates
	newest    time.Time           // time of the newest record; of the first poll if no record has one
	confirmed time.Time           // newest at the end of the last successful poll
	turn      int                 // polls so far
}

// latest is the latest record of a street.
type latest struct {
	forecast  *pb.StreetForecast // nil once the layer has it, and for a tombstone
	removes   bool
	partition int
	at        time.Time // of the latest record in this partition
	bytes     int64     // approximate memory
}

// follows reports whether a record replaces the one before. Within a partition the order counts;
// between partitions the time does. The outcome does not depend on which partition is read first.
func (l latest) follows(before latest) bool {
	return l.partition == before.partition ||
		cmp.Or(l.at.Compare(before.at), cmp.Compare(l.partition, before.partition)) > 0
}

func newTopicFeed(all Config, layer Layer, faults *faults) (*topicFeed, error) {
	cfg := all.Kafka
	transport, err := cfg.Transport()
	if err != nil {
		return nil, fmt.Errorf("forecasts.kafka: %w", err)
	}
	t := &topicFeed{cfg: cfg, maxBytes: all.MaxBytes, maxSpeed: all.MaxSpeed, layer: layer, faults: faults, transport: transport}
	t.client = &kafka.Client{Addr: kafka.TCP(cfg.Brokers...), Timeout: cfg.RequestTimeout, Transport: transport}
	t.startOver()
	return t, nil
}

func (t *topicFeed) changes() <-chan struct{} { return nil }

func (t *topicFeed) close() { t.transport.CloseIdleConnections() }

func (t *topicFeed) startOver() {
	t.next, t.streets = make(map[int]int64), make(map[identity]latest)
	t.bytes, t.removed, t.caughtUp, t.newest = 0, 0, false, time.Time{}
	t.faults.reset()
}

func (t *topicFeed) check(ctx context.Context) (time.Time, error) {
	began := time.Now()
	err := t.poll(ctx)
	switch {
	case ctx.Err() != nil:
		return t.confirmed, ctx.Err()
	case errors.Is(err, kafka.OffsetOutOfRange), errors.Is(err, errRecreated):
		t.startOver()
		err = fmt.Errorf("%w: the topic was recreated or lost unread records; reading it from its start", err)
	case err == nil:
		if t.newest.IsZero() {
			t.newest = began
		}
		t.confirmed = t.newest
	}
	if err != nil {
		t.transport.CloseIdleConnections() // forgets leaders that may have moved
	}
	return t.confirmed, t.publish(err)
}

// publish publishes what was read. If a partition could not be read, the records of the others are
// published nevertheless, but confirm nothing.
func (t *topicFeed) publish(err error) error {
	if err == nil && !t.caughtUp {
		t.layer.Replace(t.takeAllStreets())
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

// takeAllStreets returns the collected streets and gives up ownership.
func (t *topicFeed) takeAllStreets() []*pb.StreetForecast {
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

var errRecreated = errors.New("the topic was recreated")

// poll reads every partition to its end, and then checks that the topic is still the same: a recreated
// one has the same offsets.
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
		err = errRecreated
	}
	return err
}

// drainAll starts with another partition each time, so that an unavailable broker does not hide the
// others.
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

// drain reads a partition up to its end at the time of the first fetch.
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
	if r.Offset < t.next[partition] { // brokers return whole batches
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
	id, forecast, remarks, err := parseRecord(key, value, t.maxSpeed)
	if err == nil {
		err = t.apply(id, latest{forecast, forecast == nil, partition, r.Time, streetBytes + int64(len(value))})
	}
	if err != nil {
		t.faults.skip(position, err)
		return nil
	}
	t.faults.remark(position, remarks)
	at := r.Time
	if now := time.Now(); at.After(now) { // the producer's clock is ahead
		at = now
	}
	if at.After(t.newest) {
		t.newest = at
	}
	return nil
}

// streetBytes is the approximate memory of a street without its record.
const streetBytes = 200

// apply stores the record if it is the latest of its street.
func (t *topicFeed) apply(id identity, l latest) error {
	before, known := t.streets[id]
	if known && !l.follows(before) {
		return nil
	}
	if known && l.partition == before.partition && l.at.Before(before.at) {
		l.at = before.at // its producer's clock was set back
	}
	if !t.fits(id, l) {
		return fmt.Errorf("the streets of the topic take more than %d bytes: raise forecasts.max_bytes and restart", t.maxBytes)
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

// fits makes room by forgetting tombstones, as brokers do after a day. Only an older record in another
// partition would still need them.
func (t *topicFeed) fits(id identity, l latest) bool {
	if !t.hasRoom(id, l) && t.removed > len(t.streets)/2 {
		for other, record := range t.streets {
			if record.removes {
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

package forecasts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/segmentio/kafka-go"

	"trafficd/pipeline/lib/dial"
	"trafficd/pipeline/lib/watch"
	pb "trafficd/schemas/proto/trafficd/v1"
)

const (
	// topicInterval is the time between polls of a topic. Each poll costs a request per partition,
	// and maps lag by this time.
	topicInterval = time.Second
	// fetchBytes is the maximum size of a fetch response, before decompression. Only a record batch
	// that is larger comes in a larger response.
	fetchBytes = 4 << 20
)

// topicFeed reads all partitions of a topic from the beginning. It publishes nothing until it has
// read each of them to its end.
type topicFeed struct {
	cfg        dial.Kafka
	fetchBytes int32
	maxSpeed   float64
	guarded    guardedLayer
	faults     *faults
	transport  *dial.Transport
	client     *kafka.Client

	topic      dial.TopicID // the topic being read
	partitions map[int]*partition
	streets    store // the latest record of each street
	caughtUp   bool  // all partitions were read to their end, and the streets were published
	changed    bool  // the layer has unpublished updates

	newest    time.Time // time of the newest record, or of the first poll if no record has a time
	confirmed time.Time // value of newest when the layer was last complete
	polls     int
}

// partition is the state of a partition that is being read.
type partition struct {
	next   int64          // the offset to read next
	end    int64          // the high watermark at the last fetch
	open   map[int64]bool // producers of transactions of which only the beginning has been read
	failed int            // number of the poll in which reading failed; 0 if the last one succeeded
}

// whole reports whether the transactions that have been read so far were read to their ends. At the
// high watermark there is no open transaction, even if compaction has removed its last record.
func (p *partition) whole() bool {
	if p.next >= p.end {
		clear(p.open)
	}
	return len(p.open) == 0
}

func newTopicFeed(all Config, layer Layer, faults *faults) (*topicFeed, error) {
	cfg := all.Kafka
	transport, err := cfg.Transport()
	if err != nil {
		return nil, fmt.Errorf("forecasts.kafka.%w", err)
	}
	connect := transport.Dial
	transport.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := connect(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &patientConn{c, cfg.RequestTimeout}, nil
	}
	t := &topicFeed{
		cfg: cfg, fetchBytes: fetchBytes, maxSpeed: all.MaxSpeed, guarded: guard(all, layer, "the topic"), faults: faults, transport: transport,
		client: &kafka.Client{Addr: cfg.Addr(), Timeout: cfg.RequestTimeout, Transport: transport},
	}
	t.streets.maxBytes = all.MaxBytes
	t.startOver()
	return t, nil
}

func (t *topicFeed) changes() <-chan struct{} { return nil }

func (t *topicFeed) close() { t.transport.CloseIdleConnections() }

// startOver discards all records, so that the topic is read from its beginning.
func (t *topicFeed) startOver() {
	if t.caughtUp { // the new topic is compared with the layer
		t.guarded.inUse = t.streets.present()
	}
	t.partitions = make(map[int]*partition)
	t.streets.clear()
	t.guarded.layer.Clear()
	t.caughtUp, t.changed, t.newest = false, false, time.Time{}
	t.faults.reset()
}

func (t *topicFeed) check(ctx context.Context) (time.Time, error) {
	start := time.Now()
	err := t.poll(ctx)
	switch {
	case ctx.Err() != nil:
		return t.confirmed, ctx.Err()
	case errors.Is(err, errRecreated):
		t.startOver()
		err = fmt.Errorf("%w; reading the topic from its beginning", err)
	case errors.Is(err, kafka.OffsetOutOfRange):
		t.startOver()
		err = fmt.Errorf("%w: the topic was recreated, or records were deleted before they were read; reading the topic from its beginning", err)
	case err == nil && t.newest.IsZero():
		t.newest = start
	}
	if err != nil {
		t.transport.CloseIdleConnections() // partitions may have new leaders
	}
	return t.confirmed, t.publish(err, time.Now())
}

var (
	errRecreated    = errors.New("the topic was recreated")
	errTopicWritten = fmt.Errorf("the topic is %w", watch.ErrUnsettled)
)

// poll reads every partition to its end, and then checks that the topic was not recreated, because
// offsets alone might not reveal this.
func (t *topicFeed) poll(ctx context.Context) (err error) {
	if len(t.partitions) == 0 {
		if t.topic, err = dial.FetchTopicID(ctx, t.client, t.cfg.Topic); err != nil {
			return err
		}
	}
	_, numbers, err := dial.Partitions(ctx, t.client, t.cfg.Topic)
	if err != nil {
		return err
	}
	for _, n := range numbers {
		if t.partitions[n] == nil {
			t.partitions[n] = &partition{next: -1, open: make(map[int64]bool)}
		}
	}
	// Partitions whose last read failed come last, so that an unavailable broker does not keep the
	// other brokers' partitions from being read, and costs each poll only one timeout.
	t.polls++
	slices.SortStableFunc(numbers, func(a, b int) int { return cmp.Compare(t.partitions[a].failed, t.partitions[b].failed) })
	for _, n := range numbers {
		p := t.partitions[n]
		if err := t.readToEnd(ctx, n, p); err != nil {
			p.failed = t.polls
			return fmt.Errorf("partition %d of topic %q: %w", n, t.cfg.Topic, err)
		}
		p.failed = 0
	}
	now, err := dial.FetchTopicID(ctx, t.client, t.cfg.Topic)
	if err == nil && now != t.topic {
		err = errRecreated
	}
	return err
}

// readToEnd reads a partition up to where its committed records ended at the first fetch.
func (t *topicFeed) readToEnd(ctx context.Context, n int, p *partition) (err error) {
	if p.next < 0 {
		if p.next, err = dial.Offset(ctx, t.client, t.cfg.Topic, n, kafka.FirstOffset); err != nil {
			p.next = -1
			return err
		}
	}
	for end := int64(-1); end < 0 || p.next < end; {
		committed, err := t.fetch(ctx, n, p)
		switch {
		case err != nil:
			return err
		case committed < 0: // delayed by a quota
		case end < 0:
			end = committed
		case committed <= p.next && p.next < end:
			return fmt.Errorf("the end moved back from offset %d to %d, perhaps after a leader election", end, committed)
		}
	}
	return nil
}

// later returns the later of newest and at, but uses the current time if at is in the future.
func later(newest, at time.Time) time.Time {
	if now := time.Now(); at.After(now) { // the producer's clock is ahead
		at = now
	}
	if at.After(newest) {
		return at
	}
	return newest
}

// apply stores a record and passes its forecast, which is nil for a tombstone, to the layer, unless
// a later one of the street is known.
func (t *topicFeed) apply(id identity, forecast *pb.StreetForecast, l latest) error {
	replaces, err := t.streets.put(id, l)
	if err != nil {
		t.streets.forgetTombstones()
		replaces, err = t.streets.put(id, l)
	}
	if err != nil {
		return err
	}
	t.newest = later(t.newest, l.at)
	if !replaces {
		return nil
	}
	t.changed = true
	if l.tombstone {
		recordsRemoved.Inc()
		t.guarded.layer.Remove(id.street, id.fromnode)
	} else {
		recordsTaken.Inc()
		t.guarded.layer.Put(forecast)
	}
	return nil
}

// publish publishes the updates read so far, unless a transaction has been read only in part. After
// a failed poll it publishes the partitions that were read, but returns err and does not confirm
// the layer.
func (t *topicFeed) publish(err error, now time.Time) error {
	pending := t.changed || !t.caughtUp
	switch {
	case err != nil && (!pending || !t.caughtUp):
		return err
	case !pending:
		t.confirmed = t.newest
		t.guarded.layer.Confirm(t.confirmed)
		return watch.ErrUnchanged
	case !t.whole():
		return cmp.Or(err, errTopicWritten)
	}
	if !t.caughtUp {
		if err := t.guarded.admit(t.streets.present(), now); err != nil {
			return err
		}
		t.guarded.inUse = nil // no longer needed: streets replaces it
		t.caughtUp = true
	}
	if err == nil {
		t.confirmed = t.newest
	}
	t.guarded.layer.Publish(t.confirmed)
	t.changed = false
	return err
}

// whole reports whether all transactions read so far were read to their ends. A topic that has
// nothing but an open transaction, its first, is not whole.
func (t *topicFeed) whole() bool {
	for _, p := range t.partitions {
		if !p.whole() || !t.caughtUp && !t.changed && p.next < p.end {
			return false
		}
	}
	return true
}

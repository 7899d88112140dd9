package forecasts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/segmentio/kafka-go"

	"trafficd/pipeline/lib/dial"
	"trafficd/pipeline/lib/watch"
)

// topicFeed reads all partitions of a topic from the beginning. It publishes nothing until it has
// read each of them to its end.
type topicFeed struct {
	cfg       KafkaConfig
	maxSpeed  float64
	guarded   guardedLayer
	faults    *faults
	transport *dial.Transport
	client    *kafka.Client

	topic    dial.TopicID  // the topic being read
	next     map[int]int64 // keyed by partition: the offset to read next
	ends     map[int]int64 // keyed by partition: the high watermark at the last poll
	streets  store         // the latest record of each street
	caughtUp bool          // all partitions were read to their end, and the streets were published
	changed  bool          // the layer has unpublished updates
	cut      cut
	more     chan struct{} // capacity 1: receives a value when held updates were applied after a publication

	newest    time.Time // time of the newest record that is not held, or of the first poll if no record has a time
	confirmed time.Time // value of newest when the layer was last complete
	polls     int
	failed    map[int]int // by partition whose last read failed: number of that poll
	logged    time.Time   // when an incomplete publication was last logged
}

func newTopicFeed(all Config, layer Layer, faults *faults) (*topicFeed, error) {
	cfg := all.Kafka
	transport, err := cfg.Transport()
	if err != nil {
		return nil, fmt.Errorf("forecasts.kafka.%w", err)
	}
	t := &topicFeed{
		cfg: cfg, maxSpeed: all.MaxSpeed, guarded: guard(all, layer, "the topic"), faults: faults,
		more: make(chan struct{}, 1), transport: transport, failed: make(map[int]int),
	}
	t.client = &kafka.Client{Addr: cfg.Addr(), Timeout: cfg.RequestTimeout, Transport: transport}
	t.streets.maxBytes, t.cut.held.maxBytes = all.MaxBytes, all.MaxBytes
	t.startOver()
	return t, nil
}

func (t *topicFeed) changes() <-chan struct{} { return t.more }

func (t *topicFeed) close() { t.transport.CloseIdleConnections() }

// startOver discards all records, so that the topic is read from its beginning.
func (t *topicFeed) startOver() {
	if t.caughtUp { // the new topic is compared with the layer
		t.guarded.inUse = t.streets.present()
	}
	t.next, t.ends = make(map[int]int64), make(map[int]int64)
	t.streets.clear()
	t.guarded.layer.Clear()
	t.cut.startOver()
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
	err = t.settle(err, time.Now())
	return t.confirmed, err
}

var (
	errRecreated    = errors.New("the topic was recreated")
	errTopicWritten = fmt.Errorf("the topic is %w", watch.ErrUnsettled)
)

// poll reads every partition to its end, and then checks that the topic was not recreated, because
// offsets alone might not reveal this.
func (t *topicFeed) poll(ctx context.Context) (err error) {
	if len(t.next) == 0 {
		if t.topic, err = dial.FetchTopicID(ctx, t.client, t.cfg.Topic); err != nil {
			return err
		}
	}
	_, partitions, err := dial.Partitions(ctx, t.client, t.cfg.Topic)
	if err != nil {
		return err
	}
	// Partitions whose last read failed come last, so that an unavailable broker does not keep the
	// other brokers' partitions from being read, and costs each poll only one timeout.
	t.polls++
	slices.SortStableFunc(partitions, func(a, b int) int { return cmp.Compare(t.failed[a], t.failed[b]) })
	for _, partition := range partitions {
		if err := t.readToEnd(ctx, partition); err != nil {
			t.failed[partition] = t.polls
			return fmt.Errorf("partition %d of topic %q: %w", partition, t.cfg.Topic, err)
		}
		delete(t.failed, partition)
	}
	now, err := dial.FetchTopicID(ctx, t.client, t.cfg.Topic)
	if err == nil && now != t.topic {
		err = errRecreated
	}
	return err
}

// readToEnd reads a partition up to where its committed records ended at the first fetch.
func (t *topicFeed) readToEnd(ctx context.Context, partition int) error {
	if _, ok := t.next[partition]; !ok {
		first, err := dial.Offset(ctx, t.client, t.cfg.Topic, partition, kafka.FirstOffset)
		if err != nil {
			return err
		}
		t.next[partition] = first
	}
	for end := int64(-1); end < 0 || t.next[partition] < end; {
		committed, written, err := t.fetch(ctx, partition)
		switch {
		case err != nil:
			return err
		case committed < 0: // throttled
		case end < 0:
			end, t.ends[partition] = committed, written
		case committed <= t.next[partition] && t.next[partition] < end:
			return fmt.Errorf("the end moved back from offset %d to %d, perhaps after a leader election", end, committed)
		}
	}
	return nil
}

// applyNow applies a record that is not held.
func (t *topicFeed) applyNow(id identity, l latest) error {
	t.cut.moving = true
	if err := t.apply(id, l); err != nil {
		return err
	}
	t.newest = later(t.newest, l.at)
	return nil
}

// hold keeps a record until its transaction is complete.
func (t *topicFeed) hold(id identity, l latest) error {
	if _, err := t.cut.held.put(id, l); err != nil {
		return err
	}
	t.cut.newest = later(t.cut.newest, l.at)
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

// apply stores a record and passes it to the layer, unless a later one of the street is known.
func (t *topicFeed) apply(id identity, l latest) error {
	forecast := l.forecast
	l.forecast = nil
	replaces, err := t.streets.put(id, l)
	if err != nil {
		t.streets.forgetTombstones()
		replaces, err = t.streets.put(id, l)
	}
	if err != nil || !replaces {
		return err
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

// settle publishes the updates read so far if they are complete or have waited too long, even if
// the poll failed with err. After a failed poll, it returns err and does not confirm the layer.
func (t *topicFeed) settle(err error, now time.Time) error {
	complete, transaction := t.cut.endPoll(t.next, t.ends, err != nil)
	pending := t.changed || len(t.cut.held.streets) > 0 || !t.caughtUp
	switch {
	case err != nil && (!pending || !t.caughtUp):
		return err
	case !pending:
		if complete {
			t.cut.advance()
		}
		t.confirmed = t.newest
		t.guarded.layer.Confirm(t.confirmed)
		return watch.ErrUnchanged
	case !complete && t.mustWait(transaction, now):
		return cmp.Or(err, errTopicWritten)
	}
	if !t.caughtUp {
		if err := t.guarded.admit(t.streets.present(), now); err != nil {
			t.advance() // the held records may complete the content
			return err
		}
		t.guarded.inUse = nil // no longer needed: streets replaces it
		t.caughtUp, t.changed = true, true
	}
	if err == nil {
		t.confirmed = t.newest
	}
	published := t.changed
	if published {
		t.guarded.layer.Publish(t.confirmed)
		t.changed = false
	}
	t.advance()
	if published {
		if t.changed && len(t.more) == 0 {
			t.more <- struct{}{}
		}
		return err
	}
	return cmp.Or(err, errTopicWritten)
}

// advance applies the held records.
func (t *topicFeed) advance() {
	held, newest := t.cut.advance()
	t.newest = later(t.newest, newest)
	for id, l := range held {
		if err := t.apply(id, l); err != nil {
			t.faults.skip(l.position(), err)
		}
	}
}

// mustWait reports whether incomplete updates must wait longer. If not, it counts and logs them.
func (t *topicFeed) mustWait(transaction bool, now time.Time) bool {
	limit := t.cfg.QuietWait
	if transaction {
		limit = t.cfg.TransactionWait
	}
	if t.cut.since.IsZero() {
		t.cut.since = now
	}
	waited := now.Sub(t.cut.since)
	if waited < limit {
		return true
	}
	incomplete.Inc()
	if now.Sub(t.logged) >= logInterval {
		t.logged = now
		t.faults.log.Warn().Dur("waited", waited).Msg("forecasts are shown although publications may be incomplete: " +
			"the topic was written to continuously, a transaction remained open, or a partition could not be read; " +
			"see forecasts.kafka.quiet_wait and transaction_wait")
	}
	return false
}

package kafka

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/segmentio/kafka-go"

	"trafficd/pipeline/batch"
	"trafficd/pipeline/lib/dial"
)

// delivery is a planned block that is being delivered. The sink keeps it between calls to Deliver,
// so that acknowledged partitions are not sent again.
type delivery struct {
	plan
	planned     []byte      // the encoded plan
	block       batch.Block // rows of the current call
	parts       []*part     // one per partition; a part without rows is done from the start
	endsSession bool        // the next plan must not continue with this producer
	search      int         // number of partitions to search for the rows; 0: look up only parts in doubt
}

// part is one partition's share of a block: one record batch.
type part struct {
	id       int
	rows     []row          // rows to send, as positions in the block of the current call
	found    map[rowID]bool // rows found by lookups
	producer                // for the next attempt
	offset   int64          // offset of the last record known to be acknowledged
	done     bool
	rejected error // why the last attempt was permanently rejected

	inDoubt      bool      // must be looked up before the next attempt
	unknownSince time.Time // start of the first attempt without a response since the last lookup
	nextEpoch    bool      // after the lookup, use the next epoch

	// The last attempt.
	started time.Time
	size    int   // bytes before compression
	base    int64 // offset of the first record, negative if unknown
	err     error
}

// errAgain is wrapped by the errors of conclude after which an immediate retry may succeed.
var errAgain = errors.New("the broker does not know the sequence or rejected an in-doubt record batch")

// resume returns the current delivery if it has the given plan, otherwise a new one. It divides the
// rows of this call among the parts of the delivery.
func (s *Sink) resume(ctx context.Context, planned []byte, rows batch.Block) (*delivery, error) {
	d := s.current
	if d == nil || !bytes.Equal(d.planned, planned) {
		var err error
		if d, err = s.begin(ctx, planned); err != nil {
			return nil, err
		}
	}
	if n := rows.Rows(); n == 0 || n != d.plan.rows {
		return nil, fmt.Errorf("cannot deliver %d rows with a plan for %d rows", n, d.plan.rows)
	}
	if first, last := firstAndLast(rows); first != d.first || last != d.last {
		return nil, fmt.Errorf("cannot deliver rows of batch %s with a plan for rows of batch %s", first.id, d.first.id)
	}
	d.block = rows
	if d.search > 0 {
		if err := s.searchAll(ctx, d); err != nil {
			return nil, err
		}
	}
	for i, share := range divide(rows, len(d.offsets)) {
		p := d.parts[i]
		p.rows = p.missingRows(rows, share)
		p.done = p.done || len(p.rows) == 0
	}
	s.current = d
	return d, nil
}

// begin starts the delivery of a plan. If the plan is from an earlier process, or rows are suspect,
// all parts are in doubt.
func (s *Sink) begin(ctx context.Context, planned []byte) (*delivery, error) {
	p, err := decodePlan(planned)
	if err != nil {
		return nil, fmt.Errorf("cannot decode the stored plan: %w", err)
	}
	d := &delivery{plan: p, planned: bytes.Clone(planned)}
	inherited := !bytes.Equal(planned, s.planned)
	for id, offset := range p.offsets {
		d.parts = append(d.parts, &part{
			id: id, offset: offset, inDoubt: inherited || p.suspect > 0, found: map[rowID]bool{},
			producer: producer{id: p.id, epoch: p.epoch, sequence: p.sequences[id]},
		})
	}
	if !inherited {
		s.cluster.selectTopic(p.topic)
		return d, nil
	}
	cluster, partitions, err := s.describe(ctx, p.topic)
	if err != nil {
		return nil, err
	}
	if cluster == d.cluster && partitions >= len(d.parts) {
		return d, nil
	}
	if err := s.checkMetadata(ctx, d.state, partitions); err != nil {
		return nil, err
	}
	// In a different cluster, the producer ID may belong to a different producer. The planned offsets
	// are meaningless there, and also in a recreated topic.
	s.log.Warn().Str("planned", d.cluster).Str("found", cluster).Int("planned_partitions", len(d.parts)).Int("found_partitions", partitions).
		Msg("a block was planned for a different Kafka cluster or topic; searching all partitions of the current one")
	id, epoch, err := s.cluster.newProducer(ctx)
	if err != nil {
		return nil, err
	}
	n := min(partitions, len(d.parts))
	d.cluster, d.topicID, d.parts, d.offsets = cluster, dial.TopicID{}, d.parts[:n], d.offsets[:n]
	d.endsSession, d.search = true, partitions
	for _, p := range d.parts {
		p.producer, p.inDoubt = producer{id: id, epoch: epoch}, false
	}
	return d, nil
}

// attempt sends every part that is not done, several concurrently, and waits for all of them.
func (s *Sink) attempt(ctx context.Context, d *delivery) {
	pending := d.pendingParts()
	var wg sync.WaitGroup
	var next atomic.Int32
	for w := range min(len(pending), len(s.encoders)) {
		wg.Go(func() {
			e := &s.encoders[w]
			for i := next.Add(1) - 1; int(i) < len(pending); i = next.Add(1) - 1 {
				p := pending[i]
				p.started = time.Now()
				frame, err := e.encode(p.producer, d.codec, d.block, p.rows)
				if p.size, p.err = len(e.records), err; err == nil {
					p.base, p.err = s.cluster.produce(ctx, p.id, frame)
				}
				if _, responded := errors.AsType[kafka.Error](p.err); p.err != nil && !responded {
					e.frame = nil // the connection may still read it
				}
			}
		})
	}
	wg.Wait()
}

// conclude evaluates an attempt. It returns nil if every part is done or permanently rejected.
func (s *Sink) conclude(d *delivery) error {
	var failed, again error
	failedAt := 0
	for _, p := range d.pendingParts() {
		o := outcomeOf(p.err)
		if o != acknowledged {
			errorsTotal[o].Inc()
		}
		p.rejected = nil
		switch o {
		case acknowledged:
			p.done = true
			if p.base >= 0 {
				d.endsSession = d.endsSession || p.base < p.offset // the topic was recreated: the next session has its ID
				p.offset = p.base + int64(len(p.rows)) - 1
			}
			recordsTotal.Add(float64(len(p.rows)))
		case lost:
			p.inDoubt, p.nextEpoch = true, true
		case rejected:
			if p.unknownSince.IsZero() {
				p.rejected = p.err
			} else {
				p.inDoubt = true // an earlier attempt may have been accepted
			}
		default:
			if p.unknownSince.IsZero() {
				p.unknownSince = p.started
			}
			failed, failedAt = p.err, p.id
			continue
		}
		if p.inDoubt {
			again = p.err
			s.log.Warn().Err(p.err).Str("topic", d.topic).Int("partition", p.id).
				Msg("looking up the rows in the topic after an error response from the broker")
			d.endsSession = true
		}
	}
	switch {
	case failed != nil:
		s.cluster.refresh()
		return fmt.Errorf("cannot send %d rows to topic %q, partition %d: %w%s", d.plan.rows, d.topic, failedAt, failed, hint(failed))
	case again != nil:
		return fmt.Errorf("cannot send %d rows to topic %q: %w: %w", d.plan.rows, d.topic, errAgain, again)
	}
	return nil
}

// finish ends a delivery whose parts are all done or rejected. It returns the state from which the
// next plan starts and, if a part was rejected, a *batch.PermanentError.
func (s *Sink) finish(d *delivery) ([]byte, error) {
	next := d.state
	s.current, s.planned = nil, nil
	if err := s.permanentError(d); err != nil {
		if d.plan.rows > 1 {
			next.suspect = max(next.suspect, d.plan.rows)
		}
		s.session = nil
		return next.encode(), err
	}
	next.suspect = max(0, next.suspect-d.plan.rows)
	if d.endsSession || s.session == nil || s.session.id != d.id {
		s.session = nil // doc.go, rule 3
	}
	for _, p := range d.parts {
		next.offsets[p.id] = p.offset
		if s.session != nil {
			s.session.sequences[p.id] = advance(p.sequence, len(p.rows))
		}
	}
	return next.encode(), nil
}

// permanentError returns a *batch.PermanentError for a rejected part, or nil if there is none. If
// smaller record batches may be accepted, it reduces batchBytes for later plans.
func (s *Sink) permanentError(d *delivery) error {
	for _, p := range d.parts {
		if p.rejected == nil {
			continue
		}
		tooLarge := errors.Is(p.rejected, kafka.MessageSizeTooLarge) || errors.Is(p.rejected, kafka.RecordListTooLarge)
		if tooLarge && len(p.rows) > 1 && p.size/2 < s.batchBytes {
			s.batchBytes = max(1, p.size/2)
			s.log.Warn().Str("topic", d.topic).Int("batch_bytes", s.batchBytes).
				Msg("record batch too large: using smaller ones from now on; lower kafka.batch_bytes or raise max.message.bytes of the topic")
		}
		return &batch.PermanentError{Err: fmt.Errorf("topic %q, partition %d, %d records of a block of %d rows: %w",
			d.topic, p.id, len(p.rows), d.plan.rows, p.rejected)}
	}
	return nil
}

func (d *delivery) pendingParts() (list []*part) {
	for _, p := range d.parts {
		if !p.done {
			list = append(list, p)
		}
	}
	return list
}

// missingRows returns the rows that lookups have not found in the topic. It modifies rows.
func (p *part) missingRows(block batch.Block, rows []row) []row {
	if len(p.found) == 0 {
		return rows
	}
	return slices.DeleteFunc(rows, func(at row) bool { return p.found[rowIDOf(block, at)] })
}

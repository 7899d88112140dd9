package kafka

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"trafficd/pipeline/batch"
)

// delivery is a planned block on its way. It is remembered from one Deliver to
// the next, so that partitions which have acknowledged are not sent again.
type delivery struct {
	plan
	planned []byte
	block   batch.Block // of the running call
	parts   []*part     // one for each partition; without rows it is done from the start
	spoiled bool        // the next plan must not go on with this producer
}

// part is what one partition gets of a block: one record batch.
type part struct {
	id       int
	rows     []row          // still to be sent, places in the running call's block
	found    map[name]int64 // rows that look-ups met, and their offsets; nil before the first
	producer                // of the next attempt
	offset   int64          // of the last record known to be acknowledged
	done     bool
	refused  error // the last attempt was refused for good

	doubt      bool      // has to be looked up before the next attempt
	unanswered time.Time // start of the first attempt without an answer since the last look-up
	next       bool      // goes on with the next epoch after the look-up

	started time.Time // the last attempt: when,
	size    int       // bytes before compression,
	base    int64     // place in the log,
	err     error     // what became of it
}

// errAgain is wrapped by review where another round at once is of use.
var errAgain = errors.New("the broker does not know the sequence or refused what is in doubt")

// resume gives the delivery of a plan, the remembered one if there is one.
func (s *Sink) resume(ctx context.Context, planned []byte, rows batch.Block) (*delivery, error) {
	d := s.current
	if d == nil || !bytes.Equal(d.planned, planned) {
		var err error
		if d, err = s.begin(ctx, planned); err != nil {
			return nil, err
		}
	}
	if err := d.take(rows); err != nil {
		return nil, err
	}
	s.current = d
	return d, nil
}

// begin makes the delivery of a plan. If it is inherited, everything may have
// been sent already; if its rows are suspect as well.
func (s *Sink) begin(ctx context.Context, planned []byte) (*delivery, error) {
	p, err := decodePlan(planned)
	if err != nil {
		return nil, fmt.Errorf("cannot deliver by the stored plan: %w", err)
	}
	d := &delivery{plan: p, planned: bytes.Clone(planned)}
	inherited := !bytes.Equal(planned, s.planned)
	for id, offset := range p.offsets {
		d.parts = append(d.parts, &part{
			id: id, offset: offset, doubt: inherited || p.suspect > 0,
			producer: producer{id: p.id, epoch: p.epoch, sequence: p.sequences[id]},
		})
	}
	s.cluster.use(p.topic)
	if inherited {
		err = s.adopt(ctx, d)
	}
	return d, err
}

// adopt takes over a plan that another process made. A producer id holds in
// its own cluster only: elsewhere it may be someone else's, and the offsets
// say nothing.
func (s *Sink) adopt(ctx context.Context, d *delivery) error {
	cluster, _, err := s.cluster.describe(ctx)
	if err != nil {
		s.cluster.refresh()
		return err
	}
	if cluster == d.cluster {
		return nil
	}
	s.log.Warn().Str("planned", d.cluster).Str("found", cluster).Msg("a block was planned for another Kafka cluster: it is looked up in this one from its beginning")
	id, epoch, err := s.cluster.newProducer(ctx)
	if err != nil {
		return err
	}
	d.cluster = cluster
	for _, p := range d.parts {
		p.producer = producer{id: id, epoch: epoch}
		p.offset, d.offsets[p.id] = unknown, unknown
	}
	return nil
}

// take divides the call's rows among the parts.
func (d *delivery) take(rows batch.Block) error {
	if n := rows.Rows(); n == 0 || n != d.plan.rows {
		return fmt.Errorf("cannot deliver %d rows by a plan for %d", n, d.plan.rows)
	}
	if first, last := endsOf(rows); first != d.first || last != d.last {
		return fmt.Errorf("cannot deliver rows of batch %s by a plan for rows of batch %s", first.id, d.first.id)
	}
	d.block = rows
	shares := divide(rows, len(d.offsets))
	for _, p := range d.parts {
		p.rows = p.without(rows, shares[p.id])
		p.done = p.done || len(p.rows) == 0
	}
	return nil
}

// attempt sends each part that is not done, several at a time, and waits for
// all of them.
func (s *Sink) attempt(ctx context.Context, d *delivery) {
	pending := d.pending()
	var wg sync.WaitGroup
	var taken atomic.Int32
	for w := range min(len(pending), len(s.encoders)) {
		wg.Go(func() {
			for i := taken.Add(1) - 1; int(i) < len(pending); i = taken.Add(1) - 1 {
				s.send(ctx, d, pending[i], &s.encoders[w])
			}
		})
	}
	wg.Wait()
}

func (s *Sink) send(ctx context.Context, d *delivery, p *part, e *encoder) {
	p.started = time.Now()
	frame, err := e.encode(p.producer, d.codec, d.block, p.rows)
	if p.size, p.err = len(e.records), err; err == nil {
		p.base, p.err = s.cluster.produce(ctx, p.id, frame)
	}
	if !answered(p.err) {
		e.frame = nil // a connection that was given up may still read it
	}
}

// review draws the conclusions from an attempt. It gives nil when every part
// is done or refused for good.
func (s *Sink) review(d *delivery) error {
	var failed, again error
	where := 0
	for _, p := range d.pending() {
		v := judge(p.err)
		if v != acknowledged {
			errorsTotal[v].Inc()
		}
		switch p.conclude(v); {
		case v == moved, v == retry:
			failed, where = p.err, p.id
		case p.doubt:
			again = p.err
			s.log.Warn().Err(p.err).Str("topic", d.topic).Int("partition", p.id).Msg("the broker's answer is looked up in the topic")
			d.spoiled = true
		}
	}
	switch {
	case failed != nil:
		s.cluster.refresh()
		return fmt.Errorf("cannot send %d rows to topic %q, partition %d: %w%s", d.plan.rows, d.topic, where, failed, hint(failed))
	case again != nil:
		return fmt.Errorf("cannot send %d rows to topic %q: %w: %w", d.plan.rows, d.topic, errAgain, again)
	}
	return nil
}

// conclude applies a verdict on the last attempt to the part.
func (p *part) conclude(v verdict) {
	p.refused = nil
	switch v {
	case acknowledged:
		p.done = true
		if p.base >= 0 {
			p.offset = max(p.offset, p.base+int64(len(p.rows))-1)
		}
		recordsTotal.Add(len(p.rows))
	case lost:
		p.doubt, p.next = true, true
	case refused:
		if !p.unanswered.IsZero() {
			p.doubt = true // an earlier attempt may have been taken
			return
		}
		p.refused = p.err
	default:
		if p.unanswered.IsZero() {
			p.unanswered = p.started
		}
	}
}

// settle ends a delivery whose parts are all done or refused, and gives the
// state that the next plan starts from.
func (s *Sink) settle(d *delivery) ([]byte, error) {
	next := d.state
	s.current, s.planned = nil, nil
	if err := s.apiErr(d); err != nil {
		if d.plan.rows > 1 {
			next.suspect = max(next.suspect, d.plan.rows)
		}
		s.session, s.refused = nil, next.encode()
		return bytes.Clone(s.refused), err
	}
	next.suspect = max(0, next.suspect-d.plan.rows)
	for _, p := range d.parts {
		next.offsets[p.id] = p.offset
	}
	s.refused = nil
	s.proceed(d)
	return next.encode(), nil
}

// refusal gives the error of a block with refused parts, and plans smaller
// from now on if that helps.
func (s *Sink) apiErr(d *delivery) error {
	for _, p := range d.parts {
		if p.refused == nil {
			continue
		}
		if tooLarge(p.refused) && len(p.rows) > 1 && p.size/2 < s.batchBytes {
			s.batchBytes = max(1, p.size/2)
			s.log.Warn().Str("topic", d.topic).Int("batch_bytes", s.batchBytes).
				Msg("a record batch was too large: plans are smaller from now on; lower kafka.batch_bytes or raise max.message.bytes of the topic")
		}
		return &batch.PermanentError{Err: fmt.Errorf("topic %q, partition %d, %d records of a block of %d rows: %w", d.topic, p.id, len(p.rows), d.plan.rows, p.refused)}
	}
	return nil
}

// proceed goes on in the producer's sequences, if all of the block was plainly
// acknowledged to it (doc.go, rule 3).
func (s *Sink) proceed(d *delivery) {
	if d.spoiled || s.session == nil || s.session.id != d.id {
		s.session = nil
		return
	}
	for _, p := range d.parts {
		s.session.sequences[p.id] = advance(p.sequence, len(p.rows))
	}
}

func (d *delivery) pending() (list []*part) {
	for _, p := range d.parts {
		if !p.done {
			list = append(list, p)
		}
	}
	return list
}

// without leaves out the rows that were found.
func (p *part) without(block batch.Block, rows []row) []row {
	if len(p.found) == 0 {
		return rows
	}
	rest := make([]row, 0, len(rows))
	for _, at := range rows {
		if _, ok := p.found[nameOf(block, at)]; !ok {
			rest = append(rest, at)
		}
	}
	return rest
}

// bump goes on with the next epoch, in which sequences start at 0. A block
// starts with the first epoch of its producer, so that there is always one.
func (p *part) bump() {
	if p.next && p.epoch < math.MaxInt16 {
		p.epoch, p.sequence = p.epoch+1, 0
	}
	p.next = false
}

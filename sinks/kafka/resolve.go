package kafka

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"

	"trafficd/pipeline/batch"
)

// resolve looks up every part that is in doubt. Afterwards each of its rows is
// known to be in the topic or not.
func (s *Sink) resolve(ctx context.Context, d *delivery) error {
	for _, p := range d.pending() {
		if !p.doubt && !p.outlived(d.block, s.cfg.ResolveAfter) {
			continue
		}
		d.spoiled = true
		if err := s.lookUp(ctx, d, p); err != nil {
			return err
		}
	}
	return nil
}

// outlived tells whether the broker may have forgotten an attempt without an
// answer. It counts from the time of the producer's last record, which is
// received_at: of rows that have waited in the journal for days it knows
// nothing any more as soon as it looks.
func (p *part) outlived(block batch.Block, limit time.Duration) bool {
	if p.unanswered.IsZero() {
		return false
	}
	last := block[p.rows[len(p.rows)-1].span]
	return time.Since(p.unanswered) > limit || time.Since(time.Unix(0, last.ReceivedAt)) > limit
}

// lookUp reads what the partition got after its last acknowledged record and
// takes the rows that it finds from the part.
func (s *Sink) lookUp(ctx context.Context, d *delivery, p *part) error {
	from, end, err := s.extent(ctx, p)
	if err != nil {
		return err
	}
	if p.found == nil {
		p.found = map[name]int64{}
	}
	want := make(map[name]bool, len(p.rows))
	for _, at := range p.rows {
		want[nameOf(d.block, at)] = true
	}
	if err := s.readBack(ctx, p, want, from, end); err != nil {
		return err
	}
	for _, offset := range p.found {
		p.offset = max(p.offset, offset)
	}
	found := len(p.rows) - len(want)
	s.log.Info().Str("topic", d.topic).Int("partition", p.id).Int64("from", from).Int64("to", end).
		Int("found", found).Int("missing", len(want)).Msg("rows in doubt were looked up")
	foundTotal.Add(found)
	missingTotal.Add(len(want))
	recordsTotal.Add(found)
	p.resolved(d.block)
	return nil
}

// resolved ends the doubt: what is still there to send is certainly missing.
func (p *part) resolved(block batch.Block) {
	p.rows = p.without(block, p.rows)
	p.done = len(p.rows) == 0
	p.doubt, p.unanswered = false, time.Time{}
	p.bump()
}

// extent gives the offsets that a look-up has to read: from ≤ offset < end. A
// last offset outside the log means that the topic was created anew, or that
// retention has passed it: then all that is there is read.
func (s *Sink) extent(ctx context.Context, p *part) (from, end int64, err error) {
	if end, err = s.cluster.offset(ctx, p.id, kafka.LastOffset); err != nil {
		return 0, 0, err
	}
	start, err := s.cluster.offset(ctx, p.id, kafka.FirstOffset)
	if from = p.offset + 1; from < start || from > end {
		from = start
	}
	return from, end, err
}

// readBack moves every wanted row that it meets to p.found, with its offset.
// It holds one answer of the broker at a time.
func (s *Sink) readBack(ctx context.Context, p *part, want map[name]bool, from, end int64) error {
	for from < end && len(want) > 0 {
		records, err := s.cluster.fetch(ctx, p.id, from)
		if err != nil {
			return err
		}
		next, err := scan(records, from, func(n name, offset int64) {
			if want[n] {
				delete(want, n)
				p.found[n] = offset
			}
		})
		if err == nil && next == from {
			err = errors.New("the broker sent no record, though there should be some")
		}
		if err != nil {
			return fmt.Errorf("cannot look up rows in partition %d of topic %q at offset %d: %w", p.id, s.cluster.topic, from, err)
		}
		from = next
	}
	return nil
}

// scan calls visit for the records of an answer that bear a name, and gives
// the offset after the last one, from itself if there is none.
func scan(records kafka.RecordReader, from int64, visit func(name, int64)) (next int64, err error) {
	stream, ok := records.(*protocol.RecordStream)
	if !ok || len(stream.Records) == 0 {
		return from, nil
	}
	next = from + 1 // at least: a control record is not shown, nor is what compaction removed
	for {
		r, err := stream.ReadRecord()
		if errors.Is(err, io.EOF) {
			return next, nil
		}
		if err != nil {
			return from, err
		}
		next = max(next, r.Offset+1)
		if n, ok := nameIn(r.Headers); ok {
			visit(n, r.Offset)
		}
		release(r)
	}
}

// release gives the record's memory back to kafka-go.
func release(r *kafka.Record) {
	if r.Key != nil {
		_ = r.Key.Close() // cannot fail: it is memory
	}
	if r.Value != nil {
		_ = r.Value.Close()
	}
}

// nameIn reads a row's name from its headers; records of other producers may
// have none.
func nameIn(headers []kafka.Header) (n name, ok bool) {
	id, index := false, false
	for _, h := range headers {
		switch h.Key {
		case headerBatch:
			n.id, id = parseID(h.Value)
		case headerIndex:
			v, err := strconv.ParseUint(string(h.Value), 10, 32)
			n.index, index = uint32(v), err == nil
		}
	}
	return n, id && index
}

// parseID reads what appendID wrote.
func parseID(text []byte) (id batch.ID, ok bool) {
	if len(text) != idLen {
		return id, false
	}
	digits := make([]byte, 0, 2*len(id))
	for i, c := range text {
		switch i {
		case 8, 13, 18, 23:
			if c != '-' {
				return id, false
			}
		default:
			digits = append(digits, c)
		}
	}
	_, err := hex.Decode(id[:], digits)
	return id, err == nil
}

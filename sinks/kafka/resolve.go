package kafka

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"

	"trafficd/pipeline/batch"
)

// resolve looks up every part that is in doubt or whose attempt without a response is too old, and
// removes the rows that are in the topic from the part.
func (s *Sink) resolve(ctx context.Context, d *delivery) error {
	for _, p := range d.pendingParts() {
		// A broker expires a producer by the timestamp of its last record, which is received_at. If
		// the rows have been in the journal for days, the broker's next check removes the producer.
		last := time.Unix(0, d.block[p.rows[len(p.rows)-1].span].ReceivedAt)
		expired := !p.unknownSince.IsZero() && (time.Since(p.unknownSince) > s.cfg.ResolveAfter || time.Since(last) > s.cfg.ResolveAfter)
		if !p.inDoubt && !expired {
			continue
		}
		d.endsSession = true
		if err := s.lookUp(ctx, d, p); err != nil {
			return err
		}
	}
	return nil
}

// lookUp reads the partition after its last acknowledged record, and removes the rows that it finds
// from the part. The remaining rows are not in the topic.
func (s *Sink) lookUp(ctx context.Context, d *delivery, p *part) error {
	start, end, err := s.cluster.bounds(ctx, p.id)
	if err != nil {
		return err
	}
	id, err := s.cluster.topicID(ctx)
	if err != nil {
		return err
	}
	from := p.offset + 1
	if from < start || from > end || d.recreated(id) { // the topic was recreated, or retention has deleted records
		from = start
	}
	want := make(map[rowID]bool, len(p.rows))
	for _, at := range p.rows {
		want[rowIDOf(d.block, at)] = true
	}
	if err := s.readBack(ctx, p, want, from, end); err != nil {
		return err
	}
	found := len(p.rows) - len(want)
	s.log.Info().Str("topic", d.topic).Int("partition", p.id).Int64("from", from).Int64("to", end).
		Int("found", found).Int("missing", len(want)).Msg("looked up in-doubt rows")
	foundTotal.Add(float64(found))
	missingTotal.Add(float64(len(want)))
	recordsTotal.Add(float64(found))

	p.rows = p.missingRows(d.block, p.rows)
	p.done = len(p.rows) == 0
	p.inDoubt, p.unknownSince = false, time.Time{}
	// Sequences start at 0 in each epoch. Each block starts with the first epoch of its producer, so
	// epochs do not run out.
	if p.nextEpoch && p.epoch < math.MaxInt16 {
		p.epoch, p.sequence = p.epoch+1, 0
	}
	p.nextEpoch = false
	return nil
}

// searchAll searches the whole topic for the block's rows. All parts share the set of found rows.
func (s *Sink) searchAll(ctx context.Context, d *delivery) error {
	want, found := map[rowID]bool{}, map[rowID]bool{}
	for _, at := range divide(d.block, 1)[0] {
		want[rowIDOf(d.block, at)] = true
	}
	for id := range d.search {
		start, end, err := s.cluster.bounds(ctx, id)
		if err != nil {
			return err
		}
		if err := s.readBack(ctx, &part{id: id, found: found}, want, start, end); err != nil {
			return err
		}
		if id < len(d.parts) {
			d.parts[id].offset, d.offsets[id] = end-1, end-1
		}
	}
	d.search = 0
	s.log.Info().Str("topic", d.topic).Int("found", len(found)).Int("missing", len(want)).
		Msg("looked up in-doubt rows in all partitions")
	foundTotal.Add(float64(len(found)))
	missingTotal.Add(float64(len(want)))
	recordsTotal.Add(float64(len(found)))
	for _, p := range d.parts {
		p.found = found
	}
	return nil
}

// readBack reads a range of offsets and moves every row that it finds from want to p.found. It sets
// p.offset to the offset of the last row found. It keeps one response in memory at a time.
func (s *Sink) readBack(ctx context.Context, p *part, want map[rowID]bool, from, end int64) error {
	for from < end && len(want) > 0 {
		records, err := s.cluster.fetch(ctx, p.id, from)
		if err != nil {
			return err
		}
		next, err := scan(records, from, func(id rowID, offset int64) {
			if want[id] {
				delete(want, id)
				p.found[id] = true
				p.offset = offset
			}
		})
		if err == nil && next == from {
			err = errors.New("the broker returned no records, although this is not the end of the partition")
		}
		if err != nil {
			return fmt.Errorf("cannot look up rows in partition %d of topic %q at offset %d: %w", p.id, s.cluster.topic, from, err)
		}
		from = next
	}
	return nil
}

// scan calls visit for each row in the records of a response. It returns the offset after the last
// record, or from if there is none.
func scan(records kafka.RecordReader, from int64, visit func(rowID, int64)) (next int64, err error) {
	stream, ok := records.(*protocol.RecordStream)
	if !ok || len(stream.Records) == 0 {
		return from, nil
	}
	next = from + 1 // kafka-go skips control records and compacted ones
	for {
		r, err := stream.ReadRecord()
		if errors.Is(err, io.EOF) {
			return next, nil
		}
		if err != nil {
			return from, err
		}
		next = max(next, r.Offset+1)
		if id, ok := rowIDIn(r.Headers); ok {
			visit(id, r.Offset)
		}
		for _, b := range []kafka.Bytes{r.Key, r.Value} { // return the memory to kafka-go
			if b != nil {
				_ = b.Close() // cannot fail: it is memory
			}
		}
	}
}

// rowIDIn returns the ID of a row from the headers of its record. ok is false for other records.
func rowIDIn(headers []kafka.Header) (id rowID, ok bool) {
	hasBatch, hasIndex := false, false
	for _, h := range headers {
		switch h.Key {
		case headerBatch:
			u, err := uuid.ParseBytes(h.Value)
			id.id, hasBatch = batch.ID(u), err == nil && len(h.Value) == idLen
		case headerIndex:
			v, err := strconv.ParseUint(string(h.Value), 10, 32)
			id.index, hasIndex = uint32(v), err == nil
		}
	}
	return id, hasBatch && hasIndex
}

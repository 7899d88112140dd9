package kafkalog

import (
	"context"
	"fmt"
	"iter"

	"github.com/rs/zerolog"
	"github.com/segmentio/kafka-go"

	"trafficd/pipeline/lib/dial"
	"trafficd/pipeline/lib/durable"
)

// View reads a log that replicas may be using. It does not create the topic, write records or
// commit offsets. It is not safe for concurrent use.
type View struct {
	Partitions []ViewedPartition

	log *Log
	ctx context.Context // context passed to OpenView
}

// ViewedPartition is a partition at the time of OpenView.
type ViewedPartition struct {
	First, Next uint64 // number of the oldest frame, and one more than the number of the newest
	Cursors     []durable.CursorInfo
}

// OpenView reads the bounds of all partitions and the cursors of the consumers. The view reads
// until ctx is done. The caller must close it.
func OpenView(ctx context.Context, cfg Config, consumers []string) (*View, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	l, err := newLog(cfg, consumers, 0, zerolog.Nop())
	if err != nil {
		return nil, err
	}
	v := &View{log: l, ctx: ctx}
	if err := v.read(); err != nil {
		v.Close()
		return nil, fmt.Errorf("cannot read the log: %w", err)
	}
	return v, nil
}

func (v *View) read() error {
	l := v.log
	_, partitions, err := dial.Partitions(v.ctx, l.client, l.cfg.Topic)
	if err != nil {
		return err
	}
	l.writers = make([]*writer, len(partitions)) // only the length is used
	committed := map[string][]kafka.OffsetFetchPartition{}
	for _, consumer := range l.consumers {
		if committed[consumer], err = l.committed(v.ctx, consumer); err != nil {
			return err
		}
	}
	for i := range partitions {
		first, end, err := l.bounds(v.ctx, i)
		if err != nil {
			return err
		}
		p := ViewedPartition{First: frameAt(first), Next: frameAt(end)}
		for _, consumer := range l.consumers {
			at := committed[consumer][i]
			c := durable.CursorInfo{Name: consumer, Seq: frameAt(max(at.CommittedOffset, first))}
			_, c.State, c.Err = decodeCursor(at.Metadata)
			p.Cursors = append(p.Cursors, c)
		}
		v.Partitions = append(v.Partitions, p)
	}
	return nil
}

// Frames yields the frames of a partition as they are in the log, from the given one up to the
// newest at the time of OpenView. A frame with a *durable.RecordError or a *VersionError is a
// record that cannot be read. The iteration ends after any other error.
func (v *View) Frames(partition int, from uint64) iter.Seq2[durable.Frame, error] {
	return func(yield func(durable.Frame, error) bool) {
		p := v.Partitions[partition]
		f := fetcher{p: &Partition{ID: partition, log: v.log, ctx: v.ctx, hard: v.ctx}, next: max(from, p.First)}
		for f.next < p.Next || len(f.fetched) > 0 {
			rec, err := f.pop(v.ctx)
			if err != nil {
				yield(durable.Frame{}, err)
				return
			}
			_, err = f.p.check(rec)
			frame := durable.Frame{Seq: rec.frame, Data: rec.data, Segment: fmt.Sprintf("partition %d", partition), Offset: offsetOf(rec.frame)}
			if rec.frame >= p.Next || !yield(frame, err) {
				return
			}
		}
	}
}

// Close closes the connections.
func (v *View) Close() {
	v.log.stop()
	v.log.transport.CloseIdleConnections()
}

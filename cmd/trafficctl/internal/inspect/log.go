package inspect

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"trafficd/pipeline/batch"
	"trafficd/pipeline/journal"
	"trafficd/pipeline/kafkalog"
	"trafficd/pipeline/lib/durable"
)

// Journal is a journal to inspect: a Directory or a Log.
type Journal interface {
	// Inspect lists segments and cursors.
	Inspect() (*journal.Inspection, error)
	// Verify reads and checks everything.
	Verify() (*Verdict, error)
	// Consumers returns the consumers. gaps are the unconsumed frames that cannot be read; they are
	// not counted.
	Consumers() (consumers []Consumer, gaps []*Gap, err error)
	// Frames returns the frames with numbers in [from, to]. After a *Gap, the sequence continues with
	// the next intact frame.
	Frames(from, to uint64) iter.Seq2[durable.Frame, error]
	// Bytes returns the total size of the frames or, if unconsumed, of those not consumed by all
	// consumers, or 0 if it is unknown.
	Bytes(unconsumed bool) int64
	// OnRead sets a function that is called with the number of bytes read, to show progress. Bytes
	// that are read twice count twice.
	OnRead(count func(n int64))
	Close()
}

// Log is a snapshot of a journal in Kafka, taken by OpenLog. Each partition appears as a segment,
// with frames numbered from 1, and has a cursor for each consumer. The log may contain several
// copies of a batch; only the first one is delivered.
type Log struct {
	view *kafkalog.View
	read func(n int64)
}

var _, _ Journal = (*Directory)(nil), (*Log)(nil)

// OpenLog takes a snapshot of the log. ctx also applies to later reads. The caller closes the log.
func OpenLog(ctx context.Context, cfg kafkalog.Config, consumers []string) (*Log, error) {
	view, err := kafkalog.OpenView(ctx, cfg, consumers)
	if err != nil {
		return nil, err
	}
	return &Log{view, func(int64) {}}, nil
}

// Close implements Journal.
func (l *Log) Close() { l.view.Close() }

// OnRead implements Journal.
func (l *Log) OnRead(count func(n int64)) { l.read = count }

// Bytes implements Journal.
func (l *Log) Bytes(bool) int64 { return 0 }

// Inspect implements Journal.
func (l *Log) Inspect() (*journal.Inspection, error) {
	in := &journal.Inspection{}
	for i, p := range l.view.Partitions {
		in.Segments = append(in.Segments, journal.SegmentInfo{
			Name: fmt.Sprintf("partition %d", i), First: p.First, Last: p.Next - 1, Frames: int(p.Next - p.First),
		})
		for _, c := range p.Cursors {
			c.Name = fmt.Sprintf("%s, partition %d", c.Name, i)
			in.Cursors = append(in.Cursors, c)
		}
	}
	return in, nil
}

// Verify implements Journal.
func (l *Log) Verify() (*Verdict, error) {
	in, _ := l.Inspect()
	var b batch.Batch
	for i := range in.Segments {
		var unreadable []error
		for frame, err := range l.view.Frames(i, 0) {
			gap, err := gapOf(frame, err, &b)
			if err != nil {
				return nil, err
			}
			l.read(int64(len(frame.Data)))
			if gap != nil {
				unreadable = append(unreadable, gap.Err)
			}
		}
		in.Segments[i].Err = errors.Join(unreadable...)
	}
	return &Verdict{Inspection: in}, nil
}

// Consumers implements Journal.
func (l *Log) Consumers() (consumers []Consumer, gaps []*Gap, err error) {
	var b batch.Batch
	for i, p := range l.view.Partitions {
		from, first := p.Next, len(consumers)
		for _, cursor := range p.Cursors {
			cursor.Name = fmt.Sprintf("%s, partition %d", cursor.Name, i)
			consumers = append(consumers, newConsumer(cursor, p.First, p.Next))
			from = min(from, cursor.Seq)
		}
		for frame, err := range l.view.Frames(i, from) {
			gap, err := gapOf(frame, err, &b)
			if err != nil {
				return consumers, nil, fmt.Errorf("cannot count undelivered rows in partition %d: %w", i, err)
			}
			l.read(int64(len(frame.Data)))
			if gap != nil {
				gaps = append(gaps, gap)
				continue
			}
			for c := range consumers[first:] {
				consumers[first+c].add(frame.Seq, &b)
			}
		}
	}
	return consumers, gaps, nil
}

// gapOf decodes a frame that a view yielded with err. It returns a gap if the record cannot be
// read, and err if it ends the iteration.
func gapOf(frame durable.Frame, err error, b *batch.Batch) (*Gap, error) {
	version, isVersion := errors.AsType[*kafkalog.VersionError](err)
	record, isRecord := errors.AsType[*durable.RecordError](err)
	switch {
	case isVersion:
		err = fmt.Errorf("%w: use the trafficctl of that version", version)
	case isRecord:
		err = record
	case err != nil:
		return nil, err
	default:
		if err = batch.DecodeFrame(frame.Data, b, nil); err == nil {
			return nil, nil
		}
		err = fmt.Errorf("%s, offset %d: %w", frame.Segment, frame.Offset, err)
	}
	return &Gap{From: frame.Seq, To: frame.Seq, Err: err}, nil
}

// Frames implements Journal. It returns the frames ordered by partition. A record that cannot be
// read is a *Gap.
func (l *Log) Frames(from, to uint64) iter.Seq2[durable.Frame, error] {
	return func(yield func(durable.Frame, error) bool) {
		var b batch.Batch
		for i := range l.view.Partitions {
			for frame, err := range l.view.Frames(i, from) {
				gap, err := gapOf(frame, err, &b)
				if err == nil && frame.Seq > to {
					break
				}
				if gap != nil {
					frame, err = durable.Frame{}, gap
				}
				if !yield(frame, err) || err != nil && gap == nil {
					return
				}
			}
		}
	}
}

package kafkalog

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/segmentio/kafka-go"

	"trafficd/pipeline/batch"
	"trafficd/pipeline/lib/durable"
	"trafficd/pipeline/lib/metrics"
)

// maxRequestBytes is the maximum total size of frames that share a produce request.
const maxRequestBytes = 1 << 20

// writer writes the frames of one partition.
type writer struct {
	l         *Log
	partition int
	wake      chan struct{} // capacity 1
	copied    []byte        // copy of the frames in the current request

	// Guarded by Log.mu.
	waiting []queued
	writing bool  // frames returned by take are not settled yet
	failing error // error of the last attempt or probe, nil if it succeeded
	full    error // wraps durable.ErrFull while a consumer is too far behind, nil otherwise
}

type queued struct {
	*durable.Entry
	batch.Header
	since time.Time // when the frame was queued
}

func (w *writer) signal() {
	select {
	case w.wake <- struct{}{}:
	default: // a wake-up is already pending
	}
}

// run writes frames until the log is closed and no frames are waiting.
func (w *writer) run() {
	for {
		frames, closed := w.receive()
		if len(frames) > 0 {
			w.complete(frames, w.write(frames))
		} else if closed {
			return
		} else {
			<-w.wake
		}
	}
}

// receive returns the frames of the next request, and whether the log is closed.
func (w *writer) receive() (frames []queued, closed bool) {
	w.l.mu.Lock()
	defer w.l.mu.Unlock()
	n, size := 0, 0
	for n < len(w.waiting) && (n == 0 || size+len(w.waiting[n].Data) <= min(maxRequestBytes, w.l.cfg.MaxFrameBytes)) {
		size += len(w.waiting[n].Data)
		n++
	}
	frames = append(frames, w.waiting[:n]...)
	w.waiting = slices.Delete(w.waiting, 0, n)
	w.writing = n > 0
	return frames, w.l.closed
}

func (w *writer) complete(frames []queued, err error) {
	w.l.mu.Lock()
	for _, f := range frames {
		w.l.bytes -= int64(len(f.Data))
	}
	w.writing = false
	w.l.mu.Unlock()
	for _, f := range frames {
		f.Settle(err)
	}
}

// write returns nil when all in-sync replicas have the frames. Otherwise it returns
// durable.ErrTooLarge if a single frame is too large for the topic, durable.ErrVoided if no attempt
// can have stored the frames, or durable.ErrUnknown.
func (w *writer) write(frames []queued) error {
	failed := durable.ErrVoided
	deadline := frames[0].since.Add(w.l.cfg.produceTimeout())
	for wait := 20 * time.Millisecond; time.Now().Before(deadline) && w.l.hard.Err() == nil; wait = min(2*wait, time.Second) {
		sent, err := w.produce(frames, deadline)
		tooLarge := errors.Is(err, kafka.MessageSizeTooLarge) || errors.Is(err, kafka.RecordListTooLarge)
		if tooLarge && len(frames) == 1 && failed == durable.ErrVoided {
			errorsTotal.Inc()
			w.l.log.Warn().Err(err).Int("partition", w.partition).Int("bytes", len(frames[0].Data)).
				Msg("rejecting a batch that is too large for the log's topic: raise max.message.bytes or lower max_frame_bytes")
			return durable.ErrTooLarge // other frames of the partition can still be written
		}
		w.l.mu.Lock()
		w.report(err)
		w.l.mu.Unlock()
		if err == nil {
			return nil
		}
		errorsTotal.Inc()
		if !notStored(err) {
			if sent {
				failed = durable.ErrUnknown
			}
			w.l.transport.CloseIdleConnections() // also discards the metadata, which may name a former leader
		}
		w.l.log.Debug().Err(err).Int("partition", w.partition).Int("frames", len(frames)).Msg("cannot write to the log; retrying")
		select {
		case <-w.l.hard.Done():
		case <-time.After(wait):
		}
	}
	return failed
}

// produce sends the frames once. sent reports whether the leader may get them despite an error.
func (w *writer) produce(frames []queued, deadline time.Time) (sent bool, err error) {
	ctx, cancel := context.WithDeadline(w.l.hard, deadline)
	defer cancel()
	records := make([]kafka.Record, len(frames))
	w.copied = w.copied[:0] // a copy, because an abandoned connection may still read it after the frames are settled
	for _, f := range frames {
		w.copied = append(w.copied, f.Data...)
	}
	values := w.copied
	for i, f := range frames {
		value := values[:len(f.Data)]
		values = values[len(f.Data):]
		records[i] = kafka.Record{
			Time: time.Unix(0, batch.FrameReceivedAt(f.Data)), Key: kafka.NewBytes([]byte(f.ProductInstance)), Value: kafka.NewBytes(value),
			Headers: []kafka.Header{{Key: frameHeader, Value: headerOf(value)}},
		}
	}
	start := time.Now()
	reader := &recordReader{RecordReader: kafka.NewRecordReader(records...)}
	// Snappy takes about half the CPU of lz4 (BenchmarkEncode in sinks/kafka).
	r, err := w.l.client.Produce(ctx, &kafka.ProduceRequest{
		Topic: w.l.cfg.Topic, Partition: w.partition, RequiredAcks: kafka.RequireAll, Compression: kafka.Snappy, Records: reader,
	})
	if err != nil {
		w.copied = nil
		// A connection that has not begun to encode cannot send the frames after a timeout, but can after
		// a cancellation.
		return reader.begun.Load() || errors.Is(err, context.Canceled), err
	}
	if err = r.Error; err == nil {
		metrics.Since(produceSeconds, start)
		framesTotal.Add(float64(len(frames)))
	}
	return true, err
}

// recordReader notes whether a connection has begun to encode the records, which it does before it
// sends their first byte.
type recordReader struct {
	kafka.RecordReader
	begun atomic.Bool
}

func (r *recordReader) ReadRecord() (*kafka.Record, error) {
	r.begun.Store(true)
	return r.RecordReader.ReadRecord()
}

// report records the outcome of an attempt or a probe, and logs the first failure and the recovery.
// The caller must hold Log.mu.
func (w *writer) report(err error) {
	if (err == nil) != (w.failing == nil) {
		if err != nil {
			w.l.log.Warn().Err(err).Int("partition", w.partition).Msg("cannot write to the log in Kafka")
		} else {
			w.l.log.Info().Int("partition", w.partition).Msg("writing to the log in Kafka has recovered")
		}
	}
	w.failing = err
}

// notStored reports whether the leader's response proves that none of the frames is or will be in
// the log. With other errors, such as NotEnoughReplicasAfterAppend and RequestTimedOut, it may have
// appended them. A leader that has appended them, but is replaced while it waits for the followers,
// returns NotLeaderForPartition or, if the partition was moved away, UnknownTopicOrPartition.
func notStored(err error) bool {
	code, _ := errors.AsType[kafka.Error](err)
	switch code {
	case kafka.MessageSizeTooLarge, kafka.RecordListTooLarge, kafka.NotEnoughReplicas, kafka.TopicAuthorizationFailed,
		kafka.ClusterAuthorizationFailed, kafka.InvalidRecord, kafka.InvalidTimestamp, kafka.UnsupportedCompressionType:
		return true
	}
	return false
}

var (
	framesTotal = metrics.NewCounter("trafficd_kafkalog_frames_total",
		"Frames written to the log in Kafka and acknowledged by all in-sync replicas.")
	produceSeconds = metrics.NewSeconds("trafficd_kafkalog_produce_seconds",
		"Duration of an acknowledged produce request to the log, in seconds.")
	errorsTotal  = metrics.NewCounter("trafficd_kafkalog_errors_total", "Failed produce requests to the log.")
	deletedTotal = metrics.NewCounters("trafficd_kafkalog_deleted_frames_total",
		"Frames of the log that the topic's retention deleted before they were delivered to the sink.", "sink")
	repeatsTotal = metrics.NewCounter("trafficd_kafkalog_repeated_frames_total",
		"Frames of the log that were dropped because an earlier frame has the same rows of the same batch.")
)

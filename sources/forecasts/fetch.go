package forecasts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	fetching "github.com/segmentio/kafka-go/protocol/fetch"
)

// This file builds fetch requests itself, because kafka-go's Client.Fetch reports neither aborted
// transactions nor throttling by a quota.

const readCommitted = 1

// fetch reads one response, starting at the next offset. It returns the end offsets of the
// committed records and of all records; both are negative if the broker throttled the request.
func (t *topicFeed) fetch(ctx context.Context, partition int) (committed, written int64, err error) {
	from := t.next[partition]
	p, delay, err := t.fetchPartition(ctx, partition, from)
	if err != nil {
		return 0, 0, fmt.Errorf("cannot read from offset %d: %w", from, err)
	}
	if p == nil {
		select {
		case <-ctx.Done():
			return 0, 0, ctx.Err()
		case <-time.After(delay):
			return -1, -1, nil
		}
	}
	if err := t.takeAll(partition, p); err != nil {
		return 0, 0, fmt.Errorf("cannot read offset %d: %w", t.next[partition], err)
	}
	committed, written = p.HighWatermark, p.HighWatermark
	if p.LastStableOffset >= 0 {
		committed = min(committed, p.LastStableOffset)
	}
	// If the response has no record at or after this offset, compaction has removed the end of the
	// batch. Continue with the next offset.
	if t.next[partition] == from && from < committed {
		t.next[partition]++
	}
	return committed, written, nil
}

// fetchPartition returns the response for one partition, or nil and the delay imposed by a quota.
func (t *topicFeed) fetchPartition(ctx context.Context, partition int, from int64) (*fetching.ResponsePartition, time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, t.cfg.RequestTimeout)
	defer cancel()
	message, err := t.transport.RoundTrip(ctx, t.client.Addr, &fetching.Request{
		ReplicaID:      -1,
		MaxBytes:       int32(t.cfg.FetchBytes), // MinBytes is 0, so that the broker does not wait
		IsolationLevel: readCommitted,
		SessionID:      -1,
		SessionEpoch:   -1,
		Topics: []fetching.RequestTopic{{Topic: t.cfg.Topic, Partitions: []fetching.RequestPartition{{
			Partition:          int32(partition),
			CurrentLeaderEpoch: -1,
			FetchOffset:        from,
			LogStartOffset:     -1,
			PartitionMaxBytes:  int32(t.cfg.FetchBytes),
		}}}},
	})
	if err != nil {
		return nil, 0, err
	}
	response := message.(*fetching.Response)
	switch {
	case len(response.Topics) == 0 && response.ThrottleTimeMs > 0:
		return nil, time.Duration(response.ThrottleTimeMs) * time.Millisecond, nil
	case response.ErrorCode != 0:
		return nil, 0, kafka.Error(response.ErrorCode)
	case len(response.Topics) != 1 || len(response.Topics[0].Partitions) != 1:
		return nil, 0, errors.New("the broker's response does not contain exactly one partition")
	}
	p := &response.Topics[0].Partitions[0]
	if p.ErrorCode != 0 {
		return nil, 0, kafka.Error(p.ErrorCode)
	}
	return p, 0, nil
}

// takeAll applies or holds the records of a response, and discards those of aborted transactions.
// The broker reports the producer and the first offset of each aborted transaction, which ends with
// the producer's next control record.
func (t *topicFeed) takeAll(partition int, p *fetching.ResponsePartition) error {
	batches := []protocol.RecordReader{p.RecordSet.Records}
	if stream, ok := p.RecordSet.Records.(*protocol.RecordStream); ok {
		batches = stream.Records
	}
	pending := p.AbortedTransactions // those that start later
	slices.SortFunc(pending, func(a, b fetching.ResponseTransaction) int { return cmp.Compare(a.FirstOffset, b.FirstOffset) })
	aborted := map[int64]bool{} // producers whose aborted transaction has started and not ended
	begin := func(offset int64) {
		for len(pending) > 0 && pending[0].FirstOffset <= offset {
			aborted[pending[0].ProducerID] = true
			pending = pending[1:]
		}
	}
	for _, batch := range batches {
		switch b := batch.(type) {
		case *protocol.ControlBatch:
			begin(b.BaseOffset)
			const abort = 0
			r, err := b.ReadControlRecord()
			switch {
			case errors.Is(err, io.EOF): // compaction has removed all records of the transaction, and then this one
			case err != nil:
				return err
			case r.Type == abort:
				delete(aborted, b.ProducerID)
			}
			t.next[partition] = max(t.next[partition], b.BaseOffset+1) // a control batch has one record
		case *protocol.RecordBatch:
			begin(b.BaseOffset)
			t.next[partition] = max(t.next[partition], b.BaseOffset)
			apply := t.applyNow
			switch transactional := b.Attributes.Transactional(); {
			case transactional && aborted[b.ProducerID]:
				apply = nil
			case transactional && t.cut.holds(b.ProducerID, b.ProducerEpoch):
				apply = t.hold
			}
			if err := t.takeBatch(partition, b, apply); err != nil {
				return err
			}
		default: // a format older than transactions, or no records
			if err := t.takeBatch(partition, b, t.applyNow); err != nil {
				return err
			}
		}
	}
	return nil
}

// takeBatch reads the records and passes them to apply. If apply is nil, it discards them.
func (t *topicFeed) takeBatch(partition int, records protocol.RecordReader, apply func(identity, latest) error) error {
	for records != nil {
		record, err := records.ReadRecord()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = t.take(partition, record, apply)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// take parses a record and passes it to apply.
func (t *topicFeed) take(partition int, r *kafka.Record, apply func(identity, latest) error) error {
	if r.Offset < t.next[partition] { // brokers return whole batches, which may begin before the requested offset
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
	if apply == nil { // aborted
		return nil
	}
	id, forecast, remarks, err := parseRecord(key, value, t.maxSpeed)
	l := latest{forecast, forecast == nil, partition, r.Offset, r.Time, streetBytes + int64(len(value))}
	if err == nil {
		err = apply(id, l)
	}
	if err != nil {
		t.faults.skip(l.position(), err)
		return nil
	}
	t.faults.addRemarks(l.position(), remarks)
	return nil
}

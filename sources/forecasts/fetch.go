package forecasts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	fetching "github.com/segmentio/kafka-go/protocol/fetch"
)

// This file builds fetch requests itself, because kafka-go's Client.Fetch reports neither aborted
// transactions nor throttling by a quota.

const readCommitted = 1

// patientConn is a connection on which reading fails only if nothing arrives for limit. A response
// has no other time limit, so that a large one also arrives from a slow broker or over a slow link.
type patientConn struct {
	net.Conn
	limit time.Duration
}

func (c *patientConn) Read(b []byte) (int, error) {
	if err := c.SetReadDeadline(time.Now().Add(c.limit)); err != nil {
		return 0, err
	}
	return c.Conn.Read(b)
}

// fetch reads one response, starting at the next offset. It returns the end offset of the committed
// records, or -1 if the broker delayed the response because of a quota.
func (t *topicFeed) fetch(ctx context.Context, n int, p *partition) (committed int64, err error) {
	from := p.next
	message, err := t.transport.RoundTrip(ctx, t.client.Addr, &fetching.Request{
		ReplicaID:      -1,
		MaxBytes:       t.fetchBytes, // MinBytes is 0, so that the broker does not wait
		IsolationLevel: readCommitted,
		SessionID:      -1,
		SessionEpoch:   -1,
		Topics: []fetching.RequestTopic{{Topic: t.cfg.Topic, Partitions: []fetching.RequestPartition{{
			Partition:          int32(n),
			CurrentLeaderEpoch: -1,
			FetchOffset:        from,
			LogStartOffset:     -1,
			PartitionMaxBytes:  t.fetchBytes,
		}}}},
	})
	if err != nil {
		return 0, fmt.Errorf("cannot read from offset %d: %w", from, err)
	}
	r := message.(*fetching.Response)
	switch {
	case len(r.Topics) == 0 && r.ThrottleTimeMs > 0:
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(time.Duration(r.ThrottleTimeMs) * time.Millisecond):
			return -1, nil
		}
	case r.ErrorCode != 0:
		err = kafka.Error(r.ErrorCode)
	case len(r.Topics) != 1 || len(r.Topics[0].Partitions) != 1:
		err = errors.New("the broker's response does not contain exactly one partition")
	case r.Topics[0].Partitions[0].ErrorCode != 0:
		err = kafka.Error(r.Topics[0].Partitions[0].ErrorCode)
	}
	if err != nil {
		return 0, fmt.Errorf("cannot read from offset %d: %w", from, err)
	}
	response := &r.Topics[0].Partitions[0]
	if err := t.takeAll(n, p, response); err != nil {
		return 0, fmt.Errorf("cannot read offset %d: %w", p.next, err)
	}
	committed, p.end = response.HighWatermark, response.HighWatermark
	if response.LastStableOffset >= 0 {
		committed = min(committed, response.LastStableOffset)
	}
	// If the response has no record at or after this offset, compaction has removed the end of the
	// batch. Continue with the next offset.
	if p.next == from && from < committed {
		p.next++
	}
	return committed, nil
}

// takeAll uses the records of a response, except those of aborted transactions. The broker reports
// the producer and the first offset of each aborted transaction, which ends with the producer's
// next control record.
func (t *topicFeed) takeAll(n int, p *partition, response *fetching.ResponsePartition) error {
	batches := []protocol.RecordReader{response.RecordSet.Records}
	if stream, ok := response.RecordSet.Records.(*protocol.RecordStream); ok {
		batches = stream.Records
	}
	pending := response.AbortedTransactions // those that start later
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
		case *protocol.ControlBatch: // it ends the transaction of its producer, even if compaction has removed its record
			begin(b.BaseOffset)
			delete(aborted, b.ProducerID)
			delete(p.open, b.ProducerID)
			p.next = max(p.next, b.BaseOffset+1) // a control batch has one record
		case *protocol.RecordBatch:
			begin(b.BaseOffset)
			p.next = max(p.next, b.BaseOffset)
			transactional := b.Attributes.Transactional()
			used, err := t.takeBatch(n, p, b, transactional && aborted[b.ProducerID])
			if err != nil {
				return err
			}
			if used && transactional {
				p.open[b.ProducerID] = true
			}
		default: // a format older than transactions, or no records
			if _, err := t.takeBatch(n, p, b, false); err != nil {
				return err
			}
		}
	}
	return nil
}

// takeBatch uses the records of a batch, unless its transaction was aborted, and reports whether
// there are any.
func (t *topicFeed) takeBatch(n int, p *partition, records protocol.RecordReader, aborted bool) (used bool, err error) {
	for records != nil {
		record, err := records.ReadRecord()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return used, err
		}
		if record.Offset < p.next { // brokers return whole batches, which may begin before the requested offset
			continue
		}
		key, err := kafka.ReadAll(record.Key)
		if err != nil {
			return used, err
		}
		value, err := kafka.ReadAll(record.Value)
		if err != nil {
			return used, err
		}
		p.next = record.Offset + 1
		if !aborted {
			used = true
			t.readRecord(n, record, key, value)
		}
	}
	return used, nil
}

// readRecord parses a record and applies it, or skips it if it is invalid.
func (t *topicFeed) readRecord(n int, r *kafka.Record, key, value []byte) {
	l := latest{partition: n, offset: r.Offset, at: r.Time, bytes: streetBytes + int64(len(value)), tombstone: value == nil}
	var remarks Remarks
	err := attempt(func() error {
		id, forecast, found, err := parseRecord(key, value, t.maxSpeed)
		if remarks = found; err == nil {
			err = t.apply(id, forecast, l)
		}
		return err
	})
	if err != nil {
		t.faults.skip(l.position(), err)
		return
	}
	t.faults.addRemarks(l.position(), remarks)
}

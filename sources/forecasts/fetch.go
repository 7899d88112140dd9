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

// The client's own Fetch tells neither which transactions were aborted nor that
// a quota holds the answer back, so that request and answer are those of the protocol.

// fetch reads one answer from the next offset on and gives the partition's end:
// that of what is committed. It is negative where the broker holds back.
func (t *topicFeed) fetch(ctx context.Context, partition int) (end int64, err error) {
	answer, err := t.ask(ctx, partition)
	if err == nil && len(answer.Topics) == 0 && answer.ThrottleTimeMs > 0 {
		return -1, wait(ctx, time.Duration(answer.ThrottleTimeMs)*time.Millisecond)
	}
	var p *fetching.ResponsePartition
	if err == nil {
		p, err = onlyPartition(answer)
	}
	from := t.next[partition]
	if err != nil {
		return 0, fmt.Errorf("cannot read from offset %d on: %w", from, err)
	}
	if err := t.takeAll(partition, p); err != nil {
		return 0, fmt.Errorf("cannot read offset %d: %w", t.next[partition], err)
	}
	end = p.HighWatermark
	if p.LastStableOffset >= 0 {
		end = min(end, p.LastStableOffset)
	}
	// Nothing at this offset is the end of a batch that was compacted away: the next
	// answer is about what follows.
	if t.next[partition] == from && from < end {
		t.next[partition]++
	}
	return end, nil
}

const readCommitted = 1

func (t *topicFeed) ask(ctx context.Context, partition int) (*fetching.Response, error) {
	ctx, cancel := context.WithTimeout(ctx, t.cfg.RequestTimeout)
	defer cancel()
	answer, err := t.transport.RoundTrip(ctx, t.client.Addr, &fetching.Request{
		ReplicaID:      -1,
		MaxBytes:       int32(t.cfg.FetchBytes), // without a minimum the broker does not wait
		IsolationLevel: readCommitted,
		SessionID:      -1,
		SessionEpoch:   -1,
		Topics: []fetching.RequestTopic{{Topic: t.cfg.Topic, Partitions: []fetching.RequestPartition{{
			Partition:          int32(partition),
			CurrentLeaderEpoch: -1,
			FetchOffset:        t.next[partition],
			LogStartOffset:     -1,
			PartitionMaxBytes:  int32(t.cfg.FetchBytes),
		}}}},
	})
	if err != nil {
		return nil, err
	}
	return answer.(*fetching.Response), nil
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

func onlyPartition(answer *fetching.Response) (*fetching.ResponsePartition, error) {
	switch {
	case answer.ErrorCode != 0:
		return nil, kafka.Error(answer.ErrorCode)
	case len(answer.Topics) != 1 || len(answer.Topics[0].Partitions) != 1:
		return nil, errors.New("the answer is not about one partition")
	}
	p := &answer.Topics[0].Partitions[0]
	if p.ErrorCode != 0 {
		return nil, kafka.Error(p.ErrorCode)
	}
	return p, nil
}

// takeAll takes the records of an answer, but for those of aborted transactions.
func (t *topicFeed) takeAll(partition int, p *fetching.ResponsePartition) error {
	stream, ok := p.RecordSet.Records.(*protocol.RecordStream)
	if !ok {
		return t.takeBatch(partition, p.RecordSet.Records, false)
	}
	transactions := newAborted(p.AbortedTransactions)
	for _, batch := range stream.Records {
		switch b := batch.(type) {
		case *protocol.ControlBatch:
			if err := transactions.end(b); err != nil {
				return err
			}
			t.next[partition] = max(t.next[partition], b.BaseOffset+1) // it has one record
		case *protocol.RecordBatch:
			t.next[partition] = max(t.next[partition], b.BaseOffset)
			if err := t.takeBatch(partition, b, transactions.include(b)); err != nil {
				return err
			}
		default: // from before there were transactions
			if err := t.takeBatch(partition, b, false); err != nil {
				return err
			}
		}
	}
	return nil
}

// takeBatch goes along the records; none are taken where they were aborted.
func (t *topicFeed) takeBatch(partition int, records protocol.RecordReader, aborted bool) error {
	for records != nil {
		record, err := records.ReadRecord()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = t.take(partition, record, aborted)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// aborted knows which records of an answer belong to aborted transactions. Of each
// the broker names producer and first offset; it ends with the producer's next
// control record.
type aborted struct {
	named []fetching.ResponseTransaction // not begun yet, in order
	under map[int64]bool                 // producers within one
}

func newAborted(named []fetching.ResponseTransaction) *aborted {
	slices.SortFunc(named, func(a, b fetching.ResponseTransaction) int { return cmp.Compare(a.FirstOffset, b.FirstOffset) })
	return &aborted{named, make(map[int64]bool)}
}

func (a *aborted) include(b *protocol.RecordBatch) bool {
	for len(a.named) > 0 && a.named[0].FirstOffset <= b.BaseOffset {
		a.under[a.named[0].ProducerID] = true
		a.named = a.named[1:]
	}
	return b.Attributes.Transactional() && a.under[b.ProducerID]
}

func (a *aborted) end(b *protocol.ControlBatch) error {
	const abort = 0
	r, err := b.ReadControlRecord()
	if err == nil && r.Type == abort {
		delete(a.under, b.ProducerID)
	}
	return err
}

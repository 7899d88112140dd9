package publish

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/compress"
	"github.com/segmentio/kafka-go/protocol"

	"trafficd/pipeline/lib/dial"
)

// transaction is a Kafka transaction on one partition: its records become visible atomically.
// kafka-go provides the requests, but no transactional producer.
type transaction struct {
	*Publisher
	partition int
	producer  kafka.ProducerSession
}

// prepare returns a transaction, after aborting any that a publisher with the same transactional ID
// left open.
func (p *Publisher) prepare(ctx context.Context) (*transaction, error) {
	t := &transaction{Publisher: p}
	return t, p.retry(ctx, "begin a transaction", func(ctx context.Context) error {
		r, err := p.client.InitProducerID(ctx, &kafka.InitProducerIDRequest{
			TransactionalID: p.options.ID, TransactionTimeoutMs: int(p.options.Timeout.Milliseconds()), ProducerID: -1, ProducerEpoch: -1,
		})
		if err == nil {
			t.producer, err = *r.Producer, r.Error
		}
		return err
	})
}

// CheckPermissions returns what is missing of the permissions on the topic and on the transactional
// ID. Errors start with the key of a setting: of the topic's connection, or transactional_id. It
// does not affect other publishers: no transaction has the producer -1, but brokers check
// permissions first.
func (p *Publisher) CheckPermissions(ctx context.Context) (topic, id error) {
	topic = dial.CheckPermissions(ctx, p.client, p.cfg.Topic)
	t := &transaction{Publisher: p, producer: kafka.ProducerSession{ProducerID: -1, ProducerEpoch: -1}}
	if err := t.end(ctx, false); errors.Is(err, kafka.TransactionalIDAuthorizationFailed) {
		id = fmt.Errorf("transactional_id: cannot write with the transactional ID %q: %w; grant Write on it", p.options.ID, err)
	}
	return topic, id
}

func (p *Publisher) begin(ctx context.Context, partition int) (*transaction, error) {
	t, err := p.prepare(ctx)
	if err != nil {
		return nil, err
	}
	t.partition = partition
	err = p.retry(ctx, "add the partition to the transaction", func(ctx context.Context) error {
		r, err := p.client.AddPartitionsToTxn(ctx, &kafka.AddPartitionsToTxnRequest{
			TransactionalID: p.options.ID, ProducerID: t.producer.ProducerID, ProducerEpoch: t.producer.ProducerEpoch,
			Topics: map[string][]kafka.AddPartitionToTxn{p.cfg.Topic: {{Partition: partition}}},
		})
		if err == nil {
			for _, added := range r.Topics[p.cfg.Topic] {
				err = errors.Join(err, added.Error)
			}
		}
		return err
	})
	return t, err
}

// write writes a record batch and returns when all in-sync replicas have it. sequence is the number
// of records already written; brokers use it to detect duplicates.
func (t *transaction) write(ctx context.Context, sequence int, records []protocol.Record) error {
	frame, err := t.encode(sequence, records)
	if err != nil {
		return fmt.Errorf("cannot encode records: %w", err)
	}
	return t.retry(ctx, fmt.Sprintf("write to partition %d", t.partition), func(ctx context.Context) error {
		r, err := t.client.RawProduce(ctx, &kafka.RawProduceRequest{
			Topic: t.cfg.Topic, Partition: t.partition, RequiredAcks: kafka.RequireAll, TransactionalID: t.options.ID,
			RawRecords: protocol.RawRecordSet{Reader: bytes.NewReader(frame)},
		})
		if err == nil {
			err = r.Error
		}
		return err
	})
}

// encode returns a record batch, preceded by its length, as RawProduce sends it. kafka-go leaves
// the producer fields zero, so encode sets them.
func (t *transaction) encode(sequence int, records []protocol.Record) ([]byte, error) {
	const ( // offsets after the length
		crc          = 17
		attributes   = crc + 4
		producer     = attributes + 2 + 4 + 8 + 8
		epoch        = producer + 8
		baseSequence = epoch + 2
	)
	set := protocol.RecordSet{
		Version: 2, Attributes: protocol.Attributes(compress.Lz4) | protocol.Transactional, Records: protocol.NewRecordReader(records...),
	}
	var b bytes.Buffer
	if _, err := set.WriteTo(&b); err != nil {
		return nil, err
	}
	batch := b.Bytes()[4:]
	binary.BigEndian.PutUint64(batch[producer:], uint64(t.producer.ProducerID))
	binary.BigEndian.PutUint16(batch[epoch:], uint16(t.producer.ProducerEpoch))
	binary.BigEndian.PutUint32(batch[baseSequence:], uint32(sequence))
	binary.BigEndian.PutUint32(batch[crc:], crc32.Checksum(batch[attributes:], crc32.MakeTable(crc32.Castagnoli)))
	return b.Bytes(), nil
}

func (t *transaction) commit(ctx context.Context) error {
	return t.retry(ctx, "commit the transaction", func(ctx context.Context) error { return t.end(ctx, true) })
}

func (t *transaction) end(ctx context.Context, commit bool) error {
	r, err := t.client.EndTxn(ctx, &kafka.EndTxnRequest{
		TransactionalID: t.options.ID, ProducerID: t.producer.ProducerID, ProducerEpoch: t.producer.ProducerEpoch, Committed: commit,
	})
	if err == nil {
		err = r.Error
	}
	return err
}

// Fenced reports whether a publication failed because another publisher with the same transactional
// ID has aborted its transaction, or because the transaction timed out.
func Fenced(err error) bool {
	return errors.Is(err, kafka.InvalidProducerEpoch) || errors.Is(err, kafka.ProducerFenced) || errors.Is(err, kafka.InvalidTransactionState)
}

// minRetryDelay is the delay before the first retry. Brokers usually take longer than this to end a
// transaction.
const minRetryDelay = 5 * time.Millisecond

// retry repeats a request until it succeeds, it fails permanently, or the request timeout expires.
func (p *Publisher) retry(ctx context.Context, what string, try func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.RequestTimeout)
	defer cancel()
	for wait := minRetryDelay; ; wait = min(2*wait, time.Second) {
		err := try(ctx)
		if err == nil {
			return nil
		}
		hint := ""
		switch {
		case Fenced(err):
			hint = fmt.Sprintf("; another publisher with the transactional ID %q took over, or the transaction timed out",
				p.options.ID)
		case errors.Is(err, kafka.TransactionalIDAuthorizationFailed):
			hint = fmt.Sprintf("; the user needs Write permission on the transactional ID %q", p.options.ID)
		}
		err = fmt.Errorf("cannot %s: %w%s", what, err, hint)
		if code, ok := errors.AsType[kafka.Error](err); ok && !code.Temporary() && code != kafka.ConcurrentTransactions {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(wait):
		}
	}
}

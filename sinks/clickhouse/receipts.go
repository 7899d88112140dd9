package clickhouse

import (
	"context"
	"fmt"
	"time"

	ch "github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/google/uuid"
	"github.com/rs/zerolog"

	"trafficd/pipeline/batch"
	"trafficd/pipeline/lib/receipts"
)

// Receipts is the table of receipts. It is a receipts.Store.
type Receipts struct{ sink *Sink }

// receiptsTimeout bounds a read or a write, because clients wait for the former.
const receiptsTimeout = 5 * time.Second

// NewReceipts returns the table of a valid configuration, whose sinks create it. The caller must
// close it.
func NewReceipts(c Config, log zerolog.Logger) (*Receipts, error) {
	c.Migrate, c.DeriveInterval, c.WriteTimeout = false, 0, min(c.WriteTimeout, receiptsTimeout)
	sink, err := New(c, log)
	if err != nil {
		return nil, err
	}
	return &Receipts{sink}, nil
}

// PutReceipts implements receipts.Store.
func (t *Receipts) PutReceipts(ctx context.Context, list []receipts.Receipt) error {
	if err := t.sink.ready(ctx); err != nil {
		return err
	}
	statement := "INSERT INTO " + t.sink.config.layout().Receipts() +
		" (batch_id, received_at, sink, first_row, client, accepted, delivered, dead_lettered, at)"
	if err := t.sink.insertRows(ctx, statement, func(b driver.Batch) error {
		for _, r := range list {
			if err := b.Append(uuid.UUID(r.Batch), time.Unix(0, r.ReceivedAt), r.Sink, r.First, r.Client, r.Accepted, r.Delivered, r.Dead,
				time.UnixMilli(r.At)); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		return fmt.Errorf("cannot insert receipts: %w", hinted(err))
	}
	return nil
}

// Receipts implements receipts.Store.
func (t *Receipts) Receipts(ctx context.Context, id batch.ID, client string) (list []receipts.Receipt, err error) {
	ctx, cancel := context.WithTimeout(ctx, receiptsTimeout)
	defer cancel()
	if err := t.sink.ready(ctx); err != nil {
		return nil, err
	}
	h, err := t.sink.hosts.pick()
	if err != nil {
		return nil, err
	}
	ctx = ch.Context(ctx, ch.WithSettings(ch.Settings{"max_threads": 1}))
	rows, err := h.conn.Query(ctx, fmt.Sprintf("SELECT received_at, sink, first_row, accepted, delivered, dead_lettered, at FROM %s FINAL "+
		"WHERE batch_id = '%s' AND client = ?", t.sink.config.layout().Receipts(), id), client)
	if err != nil {
		return nil, fmt.Errorf("cannot read receipts: %w", hinted(err))
	}
	defer rows.Close()
	for rows.Next() {
		r := receipts.Receipt{Batch: id, Client: client}
		var received, at time.Time
		if err := rows.Scan(&received, &r.Sink, &r.First, &r.Accepted, &r.Delivered, &r.Dead, &at); err != nil {
			return nil, err
		}
		r.ReceivedAt, r.At = received.UnixNano(), at.UnixMilli()
		list = append(list, r)
	}
	return list, rows.Err()
}

// Close closes all connections.
func (t *Receipts) Close() error { return t.sink.Close() }

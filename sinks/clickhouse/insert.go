package clickhouse

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"time"

	ch "github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/column"
	"github.com/google/uuid"

	"trafficd/pipeline/batch"
	"trafficd/pipeline/metrics"
)

// columnNames is the order in which scratch.fill fills them.
var columnNames = []string{
	"product_instance", "detector_code", "measure_type_code",
	"timestamp_from", "timestamp_to", "value", "quality",
	"batch_id", "batch_index", "received_at",
}

// insert sends rows as one INSERT of one block. It returns when the server has them on disk, or had
// received them before under this token. sent reports whether the rows may have been applied in
// spite of an error.
func (s *Sink) insert(ctx context.Context, h *host, memory *scratch, rows batch.Block, token string, copies int) (sent bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.config.WriteTimeout)
	defer cancel()
	start := time.Now()
	settings := s.settings(token)
	maps.Copy(settings, s.hosts.quorumSettings(copies))
	b, err := h.conn.PrepareBatch(ch.Context(ctx, ch.WithSettings(settings)), s.statement)
	if err != nil {
		return false, fmt.Errorf("cannot start an insert into %s: %w", s.table, hinted(err))
	}
	if err := memory.fill(b.Columns(), rows); err != nil {
		_ = b.Abort() // closes the connection; err says more
		return false, fmt.Errorf("cannot insert into %s: %w", s.table, hinted(err))
	}
	if err := b.Send(); err != nil {
		err = fmt.Errorf("cannot insert %d rows into %s: %w", rows.Rows(), s.table, hinted(err))
		if classify(err) == classRefused {
			err = &batch.PermanentError{Err: err}
		}
		return true, err
	}
	metrics.Since(insertSeconds, start)
	return true, nil
}

// settings make an INSERT one block with one token, whatever the server's profile says.
func (s *Sink) settings(token string) ch.Settings {
	set := ch.Settings{
		// The token identifies the block's content. The server deduplicates every month of the block
		// separately, so that a retry completes a block that was interrupted between two months.
		"insert_deduplicate":                                 1,
		"insert_deduplication_token":                         token,
		"deduplicate_blocks_in_dependent_materialized_views": 1,
		// Asynchronous inserts, the default of newer servers, mix blocks of several clients and are
		// acknowledged under other rules.
		"async_insert": 0,
		// Rows are stored as sent, so that they can be counted and looked up by (batch_id,
		// batch_index) until a merge replaces some.
		"optimize_on_insert": 0,
		// Blocks are neither merged nor split on the way to the table: 0 passes them on unchanged, and
		// the upper bound is above ours.
		"min_insert_block_size_rows":      0,
		"min_insert_block_size_bytes":     0,
		"max_insert_block_size":           1 << 20,
		"max_insert_threads":              1,
		"max_partitions_per_insert_block": maxMonths,
		// The server builds the dictionaries of text columns: the client would look up every row in a
		// map.
		"low_cardinality_allow_in_native_format": 0,
	}
	if s.config.Cluster != "" {
		maps.Copy(set, ch.Settings{
			// Acknowledged is what the shards have acknowledged. A replica that does not answer is passed over.
			"distributed_foreground_insert":              1,
			"insert_distributed_one_random_shard":        0,
			"skip_unavailable_shards":                    0,
			"connect_timeout_with_failover_ms":           1000,
			"handshake_timeout_ms":                       3000,
			"send_timeout":                               max(1, int(s.config.WriteTimeout.Seconds())),
			"receive_timeout":                            max(1, int(s.config.WriteTimeout.Seconds())),
			"insert_allow_materialized_columns":          0,
			"use_hedged_requests":                        0,
			"distributed_insert_skip_read_only_replicas": 1,
		})
	}
	return set
}

// scratch is memory that is reused from insert to insert, so that rows need no allocations of ours.
// It grows to the largest block, about 70 bytes a row; the client holds the block once more while
// it is sent.
type scratch struct {
	text    []byte
	times   []time.Time // of one column after the other
	values  []float64
	quality []*float64
	ids     []uuid.UUID
	indexes []uint32
}

// fill appends the rows to the columns of an insert, which copy them. Of texts it appends pointers,
// which need no allocation where values would.
func (c *scratch) fill(columns []column.Interface, rows batch.Block) error {
	if err := checkTypes(columns); err != nil {
		return err
	}
	c.values, c.quality, c.ids, c.indexes = c.values[:0], c.quality[:0], c.ids[:0], c.indexes[:0]
	for _, s := range rows {
		c.values = append(c.values, s.Value[s.From:s.To]...)
		c.indexes = append(c.indexes, s.Index[s.From:s.To]...)
		for row := s.From; row < s.To; row++ {
			err := columns[0].AppendRow(&s.ProductInstance)
			c.text = s.Code(row)
			err = cmp.Or(err, columns[1].AppendRow(&c.text))
			c.text = s.TypeCode(int(s.Type[row]))
			if err = cmp.Or(err, columns[2].AppendRow(&c.text)); err != nil {
				return err
			}
			c.ids = append(c.ids, uuid.UUID(s.ID))
			quality := &s.Quality[row]
			if math.IsNaN(*quality) {
				quality = nil // NULL
			}
			c.quality = append(c.quality, quality)
		}
	}
	for i, values := range []any{c.values, c.quality, c.ids, c.indexes} {
		if _, err := columns[5+i].Append(values); err != nil {
			return err
		}
	}
	c.text = nil
	clear(c.quality) // it points into batches that the caller owns
	for i, column := range []int{3, 4, 9} {
		c.times = c.times[:0]
		for _, s := range rows {
			for row := s.From; row < s.To; row++ {
				ns := [...]int64{s.Batch.From[row], s.Batch.To[row], s.ReceivedAt}[i]
				c.times = append(c.times, time.Unix(0, ns))
			}
		}
		if _, err := columns[column].Append(c.times); err != nil {
			return err
		}
	}
	return nil
}

// columnTypes are the types that the server must expect, in the order of columnNames.
// LowCardinality is removed by low_cardinality_allow_in_native_format.
var columnTypes = []column.Type{
	"String", "String", "String",
	"DateTime64(9, 'UTC')", "DateTime64(9, 'UTC')", "Float64", "Nullable(Float64)",
	"UUID", "UInt32", "DateTime64(9, 'UTC')",
}

// checkTypes reports a table that was altered: another precision or type would change values
// silently.
func checkTypes(columns []column.Interface) error {
	if len(columns) != len(columnTypes) {
		return fmt.Errorf("%w: %d columns, want %d", errSchema, len(columns), len(columnTypes))
	}
	for i, want := range columnTypes {
		if got := columns[i].Type(); got != want {
			return fmt.Errorf("%w: %s is %s in the table, want %s", errSchema, columnNames[i], got, want)
		}
	}
	return nil
}

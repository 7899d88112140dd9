package clickhouse

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	ch "github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/column"
	"github.com/google/uuid"

	"trafficd/pipeline/batch"
)

// columnNames is the order in which rowColumns binds them.
var columnNames = []string{
	"product_instance", "detector_code", "measure_type_code",
	"timestamp_from", "timestamp_to", "value", "quality",
	"batch_id", "batch_index", "received_at",
}

// insert sends rows as one INSERT of one block, and returns when the server
// has them on its disk, or had them already under this token. sent tells
// whether an error leaves the fate of the rows open.
func (s *Sink) insert(ctx context.Context, rows batch.Block, token string) (sent bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.config.WriteTimeout)
	defer cancel()
	start := time.Now()
	b, err := s.conn.PrepareBatch(ch.Context(ctx, ch.WithSettings(s.settings(token))), s.statement)
	if err != nil {
		return false, fmt.Errorf("cannot start an insert into %s: %w", s.table, hinted(err))
	}
	if err := s.scratch.fill(b.Columns(), rows); err != nil {
		_ = b.Abort() // closes the connection; err says more
		return false, fmt.Errorf("cannot insert into %s: %w", s.table, hinted(err))
	}
	if err := b.Send(); err != nil {
		return true, fmt.Errorf("cannot insert %d rows into %s: %w", rows.Rows(), s.table, hinted(err))
	}
	insertSeconds.UpdateDuration(start)
	return true, nil
}

// settings make one INSERT one block with one token, whatever the server's
// profile says.
func (s *Sink) settings(token string) ch.Settings {
	set := ch.Settings{
		// The token stands for the block's content; every month of the block is
		// deduplicated by it on its own, so that a block that was cut off between
		// two months is completed by its repeat.
		"insert_deduplicate":                                 1,
		"insert_deduplication_token":                         token,
		"deduplicate_blocks_in_dependent_materialized_views": 1,
		// Asynchronous inserts mix blocks of several clients and are
		// acknowledged by other rules; newer servers have them on by default.
		"async_insert": 0,
		// Rows are stored as they were sent, so that they can be counted and
		// found again by (batch_id, batch_index) until a merge replaces some.
		"optimize_on_insert": 0,
		// No joining and no cutting on the way to the table: 0 passes a block on
		// as it comes, and the upper bound lies above our own.
		"min_insert_block_size_rows":      0,
		"min_insert_block_size_bytes":     0,
		"max_insert_block_size":           2 * maxBlockRows,
		"max_insert_threads":              1,
		"max_partitions_per_insert_block": maxPartitions,
		// Text travels as it is and the server makes its dictionaries: the client
		// would look every row up in a map.
		"low_cardinality_allow_in_native_format": 0,
	}
	if s.config.Quorum > 0 {
		set["insert_quorum"] = s.config.Quorum
		set["insert_quorum_timeout"] = s.config.WriteTimeout.Milliseconds()
	}
	return set
}

func insertStatement(table string) string {
	return "INSERT INTO " + table + " (" + strings.Join(columnNames, ", ") + ")"
}

// scratch is memory that one insert after the other uses, so that rows cost no
// allocation of ours. It grows to the largest block, about 70 bytes a row; the
// client holds the block once more while it is sent.
type scratch struct {
	text    []byte
	times   []time.Time
	values  []float64
	quality []*float64
	ids     []uuid.UUID
	indexes []uint32
}

// fill appends the rows to the columns of an insert. The columns copy all.
func (c *scratch) fill(columns []column.Interface, rows batch.Block) error {
	if err := checkTypes(columns); err != nil {
		return err
	}
	if err := c.fillText(columns[0], columns[1], columns[2], rows); err != nil {
		return err
	}
	c.gather(rows)
	if err := c.fillTimes(columns, rows); err != nil {
		return err
	}
	for i, values := range []any{c.values, c.quality, c.ids, c.indexes} {
		if _, err := columns[5+i].Append(values); err != nil {
			return err
		}
	}
	clear(c.quality) // it points into batches that go back to their owner
	return nil
}

// fillText appends pointers, which cost no allocation where values would.
func (c *scratch) fillText(instance, code, typ column.Interface, rows batch.Block) error {
	for _, s := range rows {
		for row := s.From; row < s.To; row++ {
			if err := instance.AppendRow(&s.ProductInstance); err != nil {
				return err
			}
			c.text = s.Code(row)
			if err := code.AppendRow(&c.text); err != nil {
				return err
			}
			c.text = s.TypeCode(int(s.Type[row]))
			if err := typ.AppendRow(&c.text); err != nil {
				return err
			}
		}
	}
	c.text = nil
	return nil
}

// gather joins the spans' numbers, so that each column takes them in one go.
func (c *scratch) gather(rows batch.Block) {
	c.values, c.quality, c.ids, c.indexes = c.values[:0], c.quality[:0], c.ids[:0], c.indexes[:0]
	for _, s := range rows {
		c.values = append(c.values, s.Value[s.From:s.To]...)
		c.indexes = append(c.indexes, s.Index[s.From:s.To]...)
		for row := s.From; row < s.To; row++ {
			c.ids = append(c.ids, uuid.UUID(s.ID))
			quality := &s.Quality[row]
			if math.IsNaN(*quality) {
				quality = nil // NULL
			}
			c.quality = append(c.quality, quality)
		}
	}
}

// fillTimes uses one scratch for the three columns, one after the other.
func (c *scratch) fillTimes(columns []column.Interface, rows batch.Block) error {
	for _, t := range []struct {
		column int
		of     func(s batch.Span, row int) int64
	}{
		{3, func(s batch.Span, row int) int64 { return s.Batch.From[row] }},
		{4, func(s batch.Span, row int) int64 { return s.Batch.To[row] }},
		{9, func(s batch.Span, _ int) int64 { return s.ReceivedAt }},
	} {
		c.times = c.times[:0]
		for _, s := range rows {
			for row := s.From; row < s.To; row++ {
				c.times = append(c.times, time.Unix(0, t.of(s, row)))
			}
		}
		if _, err := columns[t.column].Append(c.times); err != nil {
			return err
		}
	}
	return nil
}

// columnTypes is what the server has to ask for, in the order of columnNames;
// LowCardinality is gone by our setting.
var columnTypes = []column.Type{
	"String", "String", "String",
	"DateTime64(9, 'UTC')", "DateTime64(9, 'UTC')", "Float64", "Nullable(Float64)",
	"UUID", "UInt32", "DateTime64(9, 'UTC')",
}

// checkTypes finds a table that somebody altered: another precision or type
// would change values in silence.
func checkTypes(columns []column.Interface) error {
	if len(columns) != len(columnTypes) {
		return fmt.Errorf("%w: %d columns, %d wanted", errSchema, len(columns), len(columnTypes))
	}
	for i, want := range columnTypes {
		if got := columns[i].Type(); got != want {
			return fmt.Errorf("%w: %s is %s in the table, %s wanted", errSchema, columnNames[i], got, want)
		}
	}
	return nil
}

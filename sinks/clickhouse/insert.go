package clickhouse

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"strings"
	"time"

	native "github.com/ClickHouse/ch-go"
	"github.com/ClickHouse/ch-go/proto"
	ch "github.com/ClickHouse/clickhouse-go/v2"

	"trafficd/pipeline/batch"
	"trafficd/pipeline/lib/metrics"
)

// columns are the columns of the table that the sink fills, in the order of the INSERT. typ is the
// type that the server must expect: the setting low_cardinality_allow_in_native_format removes
// LowCardinality. append appends the values of a span as the native protocol encodes them.
var columns = []struct {
	name   string
	typ    proto.ColumnType
	append func(dst []byte, s batch.Span) []byte
}{
	{"product_instance", "String", func(dst []byte, s batch.Span) []byte {
		for range s.To - s.From {
			dst = batch.AppendCounted(dst, s.ProductInstance)
		}
		return dst
	}},
	{"detector_code", "String", func(dst []byte, s batch.Span) []byte {
		for row := s.From; row < s.To; row++ {
			dst = batch.AppendCounted(dst, s.Code(row))
		}
		return dst
	}},
	{"measure_type_code", "String", func(dst []byte, s batch.Span) []byte {
		for _, t := range s.Type[s.From:s.To] {
			dst = batch.AppendCounted(dst, s.TypeCode(int(t)))
		}
		return dst
	}},
	{"timestamp_from", time64, func(dst []byte, s batch.Span) []byte { return appendInts(dst, s.Batch.From[s.From:s.To]) }},
	{"timestamp_to", time64, func(dst []byte, s batch.Span) []byte { return appendInts(dst, s.Batch.To[s.From:s.To]) }},
	{"value", "Float64", func(dst []byte, s batch.Span) []byte { return batch.AppendFloats(dst, s.Value[s.From:s.To]) }},
	{"quality", nullable, func(dst []byte, s batch.Span) []byte { return batch.AppendFloats(dst, s.Quality[s.From:s.To]) }},
	{"batch_id", "UUID", func(dst []byte, s batch.Span) []byte { // two little-endian halves
		high, low := binary.BigEndian.Uint64(s.ID[:8]), binary.BigEndian.Uint64(s.ID[8:])
		for range s.To - s.From {
			dst = binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(dst, high), low)
		}
		return dst
	}},
	{"batch_index", "UInt32", func(dst []byte, s batch.Span) []byte {
		for _, index := range s.Index[s.From:s.To] {
			dst = binary.LittleEndian.AppendUint32(dst, index)
		}
		return dst
	}},
	{"received_at", time64, func(dst []byte, s batch.Span) []byte {
		for range s.To - s.From {
			dst = binary.LittleEndian.AppendUint64(dst, uint64(s.ReceivedAt))
		}
		return dst
	}},
}

const (
	time64   = "DateTime64(9, 'UTC')"
	nullable = "Nullable(Float64)"
)

func appendInts(dst []byte, values []int64) []byte {
	for _, v := range values {
		dst = binary.LittleEndian.AppendUint64(dst, uint64(v))
	}
	return dst
}

// insertInto returns an INSERT statement for columns.
func insertInto(table string) string {
	var names []string
	for _, c := range columns {
		names = append(names, c.name)
	}
	return fmt.Sprintf("INSERT INTO %s (%s) VALUES", table, strings.Join(names, ", "))
}

// insert sends rows in one INSERT, as one block. It returns nil once the server has written them to
// disk, or has ignored them because it knows the token. sent reports whether the rows may be in the
// table despite an error.
func (s *Sink) insert(ctx context.Context, h *host, rows batch.Block, token string, replicas int) (sent bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.config.WriteTimeout)
	defer cancel()
	start := time.Now()
	settings := s.settings(token)
	maps.Copy(settings, s.hosts.quorumSettings(replicas))
	sent, err = h.insert(ctx, s.statement, settings, rows)
	switch {
	case err == nil:
		metrics.Since(insertSeconds, start)
	case !sent:
		err = fmt.Errorf("cannot start an insert into %s: %w", s.table, hinted(err))
	default:
		err = fmt.Errorf("cannot insert %d rows into %s: %w", rows.Rows(), s.table, hinted(err))
		if classify(err) == classRejected {
			err = &batch.PermanentError{Err: err}
		}
	}
	return sent, err
}

// insertGroup inserts a group without the rows that violate a rule of the table, and returns these;
// see doc.go, "Permanent rejections". If it cannot find them, it returns the error of the INSERT.
// sent reports whether rows may be in the table.
func (s *Sink) insertGroup(ctx context.Context, h *host, group batch.Block, token string, replicas int) (
	sent bool, refused []batch.RejectedRows, err error,
) {
	sent, err = s.insert(ctx, h, group, token, replicas)
	if !errors.As(err, new(*batch.PermanentError)) {
		return sent, nil, err
	}
	if refused = s.findRefused(ctx, h, group); refused == nil {
		return sent, nil, err
	}
	if others, _ := cutRefused(group, refused); len(others) > 0 {
		if _, err := s.insert(ctx, h, others, token, replicas); err != nil {
			return sent, nil, err
		}
	}
	return sent, refused, nil
}

// settings returns the settings that make the server treat an INSERT as one block with the given
// token, regardless of the user's settings profile.
func (s *Sink) settings(token string) ch.Settings {
	set := ch.Settings{
		// The server deduplicates each month separately, so a retry completes a block that was
		// interrupted between two months.
		"insert_deduplicate":                                 1,
		"insert_deduplication_token":                         token,
		"deduplicate_blocks_in_dependent_materialized_views": 1,
		// Asynchronous inserts, the default of newer servers, combine blocks of several clients and
		// are acknowledged under different rules.
		"async_insert": 0,
		// Store rows as sent, so that lookups find them until a merge replaces some.
		"optimize_on_insert": 0,
		// Do not merge or split blocks on the way to the table: a minimum of 0 never merges them, and
		// a max_insert_block_size above BlockRows never splits them.
		"min_insert_block_size_rows":      0,
		"min_insert_block_size_bytes":     0,
		"max_insert_block_size":           1 << 20,
		"max_insert_threads":              1,
		"max_partitions_per_insert_block": maxMonths,
		// Let the server build the dictionaries of text columns: the client would need a map lookup
		// for every row.
		"low_cardinality_allow_in_native_format": 0,
		// Limit how long an attempt can outlive its connection (see doc.go, "The deduplication window").
		"max_execution_time":    int(s.config.WriteTimeout.Seconds()) + 5,
		"timeout_overflow_mode": "throw",
	}
	if s.config.Cluster != "" {
		maps.Copy(set, ch.Settings{
			// Wait for the shards' acknowledgements. Skip replicas that do not respond.
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

// checkType returns an error if the column has a different type in the table, because the server
// would silently convert the values.
func checkType(i int, got proto.ColumnType) error {
	if want := columns[i].typ; got != want {
		return fmt.Errorf("%w: %s is %s in the table, must be %s", errSchema, columns[i].name, got, want)
	}
	return nil
}

// insertion is the data of one INSERT. It is sent with ch-go, on which clickhouse-go is built:
// clickhouse-go would copy the rows into its own columns first (`bench deliver` compares both).
type insertion struct {
	rows    batch.Block
	checked int         // number of columns whose type was checked; Rows returns 0 until all are
	encoded bool        // whether rows may have been sent
	abort   func(error) // ends the attempt if a column has a different type in the table
}

// column encodes one column of an insertion straight from the batches into the buffer of the
// connection. It implements proto.ColInput and proto.Inferable.
type column struct {
	at int // index in columns
	*insertion
}

func (c column) Type() proto.ColumnType      { return columns[c.at].typ }
func (c column) WriteColumn(w *proto.Writer) { w.ChainBuffer(c.EncodeColumn) }

// Infer checks the type of the column in the table. It is called before any rows are sent.
func (c column) Infer(got proto.ColumnType) error {
	err := checkType(c.at, got)
	if err != nil {
		c.abort(err)
	}
	c.checked++
	return err
}

func (c column) Rows() int {
	if c.checked < len(columns) {
		return 0
	}
	return c.rows.Rows()
}

func (c column) EncodeColumn(b *proto.Buffer) {
	if c.checked < len(columns) {
		return
	}
	c.encoded = true
	if columns[c.at].typ == nullable { // the NULL flags come first; the server ignores the value where one is set
		for _, s := range c.rows {
			for _, q := range s.Quality[s.From:s.To] {
				b.PutBool(math.IsNaN(q))
			}
		}
	}
	for _, s := range c.rows {
		b.Buf = columns[c.at].append(b.Buf, s)
	}
}

// query returns the INSERT that sends the rows.
func (d *insertion) query(statement string, settings ch.Settings) native.Query {
	// New servers ignore insert_deduplicate if this is set. Old ones ignore this, because it is not
	// important.
	query := native.Query{Body: statement, Settings: []native.Setting{{Key: "deduplicate_insert", Value: "enable"}}}
	for key, value := range settings {
		query.Settings = append(query.Settings, native.Setting{Key: key, Value: fmt.Sprint(value), Important: true})
	}
	for at, c := range columns {
		query.Input = append(query.Input, proto.InputColumn{Name: c.name, Data: column{at, d}})
	}
	return query
}

// send sends the INSERT. It returns soon after ctx is done.
func (d *insertion) send(ctx context.Context, conn *native.Client, query native.Query) error {
	ctx, d.abort = context.WithCancelCause(ctx)
	defer d.abort(nil)
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() }) // Do itself would continue to wait
	d.checked = 0
	err := conn.Do(ctx, query)
	switch {
	case !stop() && err != nil:
		return context.Cause(ctx)
	case err == nil && !d.encoded: // the server did not ask for the columns, so the client sent none
		return errors.New("the server ended the insert but did not read the rows")
	}
	return err
}

// insert sends rows as one block over an idle connection, or over a new one if there is none or the
// idle ones fail before any rows are sent. sent reports whether the rows may be in the table
// despite an error.
func (h *host) insert(ctx context.Context, statement string, settings ch.Settings, rows batch.Block) (sent bool, err error) {
	data := &insertion{rows: rows}
	query := data.query(statement, settings)
	for idle := true; idle; {
		var conn *native.Client
		select {
		case conn = <-h.inserts:
		default:
			idle = false
			if conn, err = h.connect(ctx); err != nil {
				return false, asException(err)
			}
		}
		if err = data.send(ctx, conn, query); err == nil {
			select {
			case h.inserts <- conn:
				return true, nil
			default: // enough idle connections
			}
		}
		_ = conn.Close() // err is more informative
		if data.encoded || err == nil || native.IsException(err) || errors.Is(err, errSchema) || ctx.Err() != nil {
			break
		}
	}
	return data.encoded, asException(err)
}

// asException converts an error response of the server to the type that clickhouse-go uses for all
// other statements. It returns other errors unchanged.
func asException(err error) error {
	if e, ok := native.AsException(err); ok {
		return &ch.Exception{Code: int32(e.Code), Name: e.Name, Message: e.Message, StackTrace: e.Stack}
	}
	return err
}

// Package chfake is a fake server of ClickHouse's native protocol with the archive's table.
package chfake

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ClickHouse/ch-go/compress"
	"github.com/ClickHouse/ch-go/proto"
	"github.com/google/uuid"

	"trafficd/pipeline/batch"
	"trafficd/pipeline/sinktest"
)

// fakeRevision is the protocol of the fake server: the last one without an addendum to the
// handshake and without sparse columns.
const fakeRevision = 54453

// Server is a server of ClickHouse's native protocol with the archive's table. Like the real
// one, it stores the rows of an INSERT month by month, and ignores those of a month whose
// deduplication token it knows. It answers only the sink's statements, and ignores the conditions
// of lookups: the sink must ignore rows of other blocks anyway.
type Server struct {
	log func(...any)

	mu     sync.Mutex
	tokens map[string]bool // token/month
	rows   []Row
	refuse func(statement string, rows []sinktest.Row) *proto.Exception
	lost   int // number of INSERTs whose acknowledgement is still to be lost
	torn   int // number of INSERTs that are still to be interrupted after their first month
}

// Row is a row of the table.
type Row struct {
	sinktest.Row
	Instance string
	Quality  float64 // NaN for NULL
	Received int64   // received_at in Unix nanoseconds
}

// columns are the columns of the table, in the order of the sink's INSERT.
var columns = []struct{ name, typ string }{
	{"product_instance", "String"},
	{"detector_code", "String"},
	{"measure_type_code", "String"},
	{"timestamp_from", "DateTime64(9, 'UTC')"},
	{"timestamp_to", "DateTime64(9, 'UTC')"},
	{"value", "Float64"},
	{"quality", "Nullable(Float64)"},
	{"batch_id", "UUID"},
	{"batch_index", "UInt32"},
	{"received_at", "DateTime64(9, 'UTC')"},
}

// New returns a server with an empty table. It logs protocol errors with log.
func New(log func(...any)) *Server {
	return &Server{log: log, tokens: map[string]bool{}}
}

// Serve answers connections until the listener is closed and all connections have ended.
func (f *Server) Serve(l net.Listener) {
	var conns sync.WaitGroup
	defer conns.Wait()
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		conns.Go(func() {
			defer conn.Close()
			if err := f.serve(conn); !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
				f.log("fake server:", err)
			}
		})
	}
}

// serve answers the statements of one connection, until that ends with an error.
func (f *Server) serve(conn net.Conn) error {
	c := &fakeConn{Reader: proto.NewReader(conn), to: conn}
	for {
		code, err := c.UVarInt()
		if err != nil {
			return err
		}
		switch proto.ClientCode(code) {
		case proto.ClientCodeHello:
			err = c.hello()
		case proto.ClientCodePing:
			proto.ServerCodePong.Encode(&c.out)
		case proto.ClientCodeQuery:
			err = f.query(c)
		default:
			return fmt.Errorf("unexpected packet %d", code)
		}
		if err == nil {
			err = c.flush()
		}
		if err != nil {
			return err
		}
	}
}

func (f *Server) query(c *fakeConn) error {
	var q proto.Query
	if err := q.DecodeAware(c.Reader, fakeRevision); err != nil {
		return err
	}
	c.compressed = q.Compression == proto.CompressionEnabled
	if _, err := c.block(nil); err != nil { // the end of external tables
		return err
	}
	token := ""
	for _, s := range q.Settings {
		if s.Key == "insert_deduplication_token" {
			token = s.Value
		}
	}
	if refused := f.refused(q.Body, nil); refused != nil {
		return c.refuse(refused)
	}
	if strings.HasPrefix(q.Body, "INSERT") && strings.Contains(q.Body, columns[0].name) {
		return f.insert(c, q.Body, token)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case strings.HasPrefix(q.Body, "SELECT batch_id"): // a lookup
		ids, indexes, times := proto.ColUUID{}, proto.ColUInt32{}, proto.ColInt64{}
		for _, row := range f.rows {
			ids, indexes, times = append(ids, uuid.UUID(row.Batch)), append(indexes, row.Index), append(times, row.Received)
		}
		c.data(proto.InputColumn{Name: "batch_id", Data: &ids}, proto.InputColumn{Name: "batch_index", Data: &indexes},
			proto.InputColumn{Name: "at", Data: &times})
	case strings.HasPrefix(q.Body, "SELECT ifNull(total_rows"), strings.HasPrefix(q.Body, "SELECT count() > 0"):
		some := proto.ColUInt8{0}
		if len(f.rows) > 0 {
			some[0] = 1
		}
		c.data(proto.InputColumn{Name: "some", Data: &some})
	case strings.HasPrefix(q.Body, "INSERT"): // records a block for the derived tables
	default:
		return c.refuse(&proto.Exception{Code: proto.ErrUnknownTable, Name: "UNKNOWN_TABLE", Message: q.Body})
	}
	proto.ServerCodeEndOfStream.Encode(&c.out)
	return nil
}

// insert reads the rows of an INSERT and stores them.
func (f *Server) insert(c *fakeConn, statement, token string) error {
	c.header()
	if err := c.flush(); err != nil {
		return err
	}
	var rows []Row
	for {
		var columns insertedColumns
		n, err := c.block(columns.results())
		if err != nil {
			return err
		}
		if n == 0 {
			break
		}
		for i := range n {
			rows = append(rows, columns.row(i))
		}
	}
	if refused := f.refused(statement, measurements(rows)); refused != nil {
		return c.refuse(refused)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	known, first := map[string]bool{}, ""
	for _, row := range rows {
		month := time.Unix(0, row.From).UTC().Format("200601")
		if first == "" {
			first = month
		}
		if f.torn > 0 && month != first {
			continue
		}
		part := token + "/" + month
		if _, seen := known[part]; !seen {
			known[part], f.tokens[part] = f.tokens[part], true
		}
		if !known[part] {
			f.rows = append(f.rows, row)
		}
	}
	if len(rows) > 0 && f.torn > 0 {
		f.torn--
		return io.EOF
	}
	if len(rows) > 0 && f.lost > 0 {
		f.lost--
		return io.EOF
	}
	proto.ServerCodeEndOfStream.Encode(&c.out)
	return nil
}

// LoseNext loses the acknowledgements of the next n INSERTs with rows.
func (f *Server) LoseNext(n int) { f.change(func() { f.lost = n }) }

// TearNext interrupts the next n INSERTs with rows after their first month.
func (f *Server) TearNext(n int) { f.change(func() { f.torn = n }) }

// DropRows deletes all rows, but keeps the tokens.
func (f *Server) DropRows() { f.change(func() { f.rows = nil }) }

// ForgetTokens ends the deduplication window of all tokens.
func (f *Server) ForgetTokens() { f.change(func() { clear(f.tokens) }) }

// RefuseIf sets when the server refuses a statement, and why.
func (f *Server) RefuseIf(refuse func(statement string, rows []sinktest.Row) *proto.Exception) {
	f.change(func() { f.refuse = refuse })
}

func (f *Server) change(do func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	do()
}

// refused returns why the server refuses a statement, before it has read rows, or with the rows of
// an INSERT.
func (f *Server) refused(statement string, rows []sinktest.Row) *proto.Exception {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.refuse == nil {
		return nil
	}
	return f.refuse(statement, rows)
}

// Rows returns the rows in the table.
func (f *Server) Rows() []Row {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.rows)
}

// Measurements returns the measurements in the table.
func (f *Server) Measurements() []sinktest.Row { return measurements(f.Rows()) }

func measurements(rows []Row) []sinktest.Row {
	list := []sinktest.Row{} // not nil, unlike before the rows of an INSERT are read
	for _, r := range rows {
		list = append(list, r.Row)
	}
	return list
}

// insertedColumns receives the columns of an INSERT.
type insertedColumns struct {
	instance, code, typ proto.ColStr
	from, to, received  proto.ColDateTime64
	value               proto.ColFloat64
	quality             *proto.ColNullable[float64]
	id                  proto.ColUUID
	index               proto.ColUInt32
}

func (c *insertedColumns) results() proto.Results {
	c.quality = proto.NewColNullable[float64](new(proto.ColFloat64))
	all := []proto.ColResult{&c.instance, &c.code, &c.typ, &c.from, &c.to, &c.value, c.quality, &c.id, &c.index, &c.received}
	results := make(proto.Results, len(all))
	for i, column := range all {
		results[i] = proto.ResultColumn{Name: columns[i].name, Data: column}
	}
	return results
}

func (c *insertedColumns) row(i int) Row {
	quality := math.NaN()
	if q := c.quality.Row(i); q.Set {
		quality = q.Value
	}
	return Row{
		Row: sinktest.Row{
			Batch: batch.ID(c.id.Row(i)), Index: c.index.Row(i), Detector: c.code.Row(i), Type: c.typ.Row(i),
			From: c.from.Row(i).UnixNano(), To: c.to.Row(i).UnixNano(), Value: c.value.Row(i),
		},
		Instance: c.instance.Row(i), Quality: quality, Received: c.received.Row(i).UnixNano(),
	}
}

// fakeConn is a client's connection.
type fakeConn struct {
	*proto.Reader
	to         io.Writer
	out        proto.Buffer
	compressed bool // blocks of this statement
}

func (c *fakeConn) flush() error {
	_, err := c.to.Write(c.out.Buf)
	c.out.Reset()
	return err
}

func (c *fakeConn) hello() error {
	var client proto.ClientHello
	if err := client.Decode(c.Reader); err != nil {
		return err
	}
	server := proto.ServerHello{Name: "fake", Major: 26, Revision: fakeRevision, Timezone: "UTC"}
	server.EncodeAware(&c.out, fakeRevision)
	return nil
}

// block reads a block and returns its number of rows.
func (c *fakeConn) block(columns proto.Results) (rows int, err error) {
	if code, err := c.UVarInt(); err != nil || proto.ClientCode(code) != proto.ClientCodeData {
		return 0, errors.Join(err, fmt.Errorf("unexpected packet %d instead of rows", code))
	}
	if err := new(proto.ClientData).DecodeAware(c.Reader, fakeRevision); err != nil {
		return 0, err
	}
	if c.compressed {
		c.EnableCompression()
		defer c.DisableCompression()
	}
	var b proto.Block
	err = b.DecodeBlock(c.Reader, fakeRevision, columns)
	return b.Rows, err
}

// header answers an INSERT with the types of the columns.
func (c *fakeConn) header() {
	c.encode(func(out *proto.Buffer) {
		proto.Block{Columns: len(columns)}.EncodeAware(out, fakeRevision)
		for _, column := range columns {
			out.PutString(column.name)
			out.PutString(column.typ)
		}
	})
}

// data answers a SELECT.
func (c *fakeConn) data(columns ...proto.InputColumn) {
	c.encode(func(out *proto.Buffer) {
		b := proto.Block{Columns: len(columns), Rows: columns[0].Data.Rows()}
		_ = b.EncodeBlock(out, fakeRevision, columns) // fails only if the columns have different lengths
	})
}

func (c *fakeConn) encode(block func(out *proto.Buffer)) {
	proto.ServerCodeData.Encode(&c.out)
	c.out.PutString("") // the table
	if !c.compressed {
		block(&c.out)
		return
	}
	var raw proto.Buffer
	block(&raw)
	w := compress.NewWriter(compress.LevelZero, compress.LZ4)
	_ = w.Compress(raw.Buf) // LZ4 of a buffer does not fail
	c.out.Buf = append(c.out.Buf, bytes.Clone(w.Data)...)
}

func (c *fakeConn) refuse(e *proto.Exception) error {
	proto.ServerCodeException.Encode(&c.out)
	e.EncodeAware(&c.out, fakeRevision)
	return nil
}

package kafka

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"trafficd/cmd/dev/devstores/stores"
	"trafficd/pipeline/batch"
	trafficdv1 "trafficd/schemas/proto/trafficd/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rowsOf returns a batch of n random rows of the given number of detectors, with gaps in the index.
func rowsOf(rng *rand.Rand, n, detectors int) *batch.Batch {
	b := &batch.Batch{
		ID: batch.ID(uuid.Must(uuid.NewV7())), ProductInstance: "Dresden-Süd",
		ReceivedAt: time.Now().UnixNano() - rng.Int64N(1e9),
	}
	for i := range n {
		addRow(b, rng, fmt.Sprintf("DET-%05d", rng.IntN(detectors)))
		b.Index[i] = uint32(2*i + rng.IntN(2))
	}
	return b
}

// addRow appends a random row of a detector.
func addRow(b *batch.Batch, rng *rand.Rand, code string) {
	if b.Types() == 0 {
		for _, name := range []string{"SPEED", "COUNT.cars", "q"} {
			b.TypeText = append(b.TypeText, name...)
			b.TypeEnd = append(b.TypeEnd, uint32(len(b.TypeText)))
		}
	}
	b.Codes = append(b.Codes, code...)
	b.CodeEnd = append(b.CodeEnd, uint32(len(b.Codes)))
	b.Type = append(b.Type, uint32(rng.IntN(b.Types())))
	from := rng.Int64N(2 * 365 * 86400 * 1e9)
	if rng.IntN(2) == 0 {
		from -= from % 1e9 // whole seconds
	}
	b.From = append(b.From, from)
	b.To = append(b.To, from+rng.Int64N(3600*1e9))
	b.Value = append(b.Value, []float64{0, math.Copysign(0, -1), rng.NormFloat64() * 100}[rng.IntN(3)])
	b.Quality = append(b.Quality, []float64{math.NaN(), 0, rng.Float64()}[rng.IntN(3)])
	b.Index = append(b.Index, uint32(b.Rows()-1))
}

// random returns a generator that always yields the same numbers.
func random() *rand.Rand { return rand.New(rand.NewPCG(1, 2)) }

// block returns a block of whole batches.
func block(batches ...*batch.Batch) batch.Block {
	var all batch.Block
	for i, b := range batches {
		all = append(all, batch.Span{Batch: b, Frame: uint64(i), To: b.Rows()})
	}
	return all
}

// rest returns the block without its first n rows.
func rest(b batch.Block, n int) batch.Block {
	var tail batch.Block
	for _, s := range b {
		skip := min(n, s.To-s.From)
		n -= skip
		if s.From += skip; s.From < s.To {
			tail = append(tail, s)
		}
	}
	return tail
}

func testConfig(topic string, brokers ...string) Config {
	c := DefaultConfig()
	c.Brokers, c.Topic = brokers, topic
	// Long, for busy machines. The maximum age of metadata is also the timeout of a metadata
	// request.
	c.DialTimeout, c.RequestTimeout, c.MetadataMaxAge = time.Minute, time.Minute, time.Minute
	return c
}

func newSink(t testing.TB, cfg Config) *Sink {
	t.Helper()
	s, err := New(cfg, zerolog.New(zerolog.NewTestWriter(t)))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// deliveryLoop replaces the delivery loop and its durable state in tests.
type deliveryLoop struct {
	t       testing.TB
	state   []byte
	plan    []byte
	n       int
	rows    batch.Block // not yet delivered
	dead    []rowID     // rows that were rejected on their own
	limit   int         // maximum number of rows offered; 0: all
	retries int
}

func (l *deliveryLoop) add(b batch.Block) { l.rows = append(l.rows, b...) }

// run delivers everything through the sink, as the delivery loop does.
func (l *deliveryLoop) run(s *Sink) {
	l.t.Helper()
	deadline := time.Now().Add(3 * time.Minute)
	for l.rows.Rows() > 0 {
		if err := l.step(s); err != nil {
			l.t.Log("retry:", err)
			l.retries++
			require.True(l.t, time.Now().Before(deadline), "not delivered in time: %v", err)
			time.Sleep(20 * time.Millisecond)
		}
	}
}

// step calls Plan, unless there is a plan, and Deliver.
func (l *deliveryLoop) step(s *Sink) error {
	if l.plan == nil {
		offered := l.rows
		if l.limit > 0 {
			offered = offered.Head(l.limit)
		}
		n, plan, err := s.Plan(l.t.Context(), l.state, offered)
		if err != nil {
			return err
		}
		l.n, l.plan = n, plan
	}
	state, err := s.Deliver(l.t.Context(), l.plan, l.rows.Head(l.n))
	var permanent *batch.PermanentError
	switch {
	case err == nil:
		l.rows = rest(l.rows, l.n)
		l.limit = 0
	case !errors.As(err, &permanent):
		return err
	case l.n == 1:
		l.dead = append(l.dead, rowIDOf(l.rows, row{row: uint32(l.rows[0].From)}))
		l.rows = rest(l.rows, 1)
		l.limit = 0
	default:
		l.limit = l.n / 2
	}
	l.plan, l.state = nil, state
	return nil
}

// requireOnce checks that the topic contains exactly the rows of the block except the excluded
// ones, each once and equal in every column, and that the rows of each detector are in order.
func requireOnce(t testing.TB, brokers []string, topic string, rows batch.Block, excluded ...rowID) {
	t.Helper()
	records, err := stores.ReadTopic(t.Context(), brokers, topic)
	require.NoError(t, err)
	requireRecords(t, records, rows, excluded...)
}

// requireRecords is requireOnce for records that have already been read.
func requireRecords(t testing.TB, records []stores.Record, rows batch.Block, excluded ...rowID) {
	t.Helper()
	byDetector := map[string][]stores.Record{}
	for _, r := range records {
		byDetector[string(r.Key)] = append(byDetector[string(r.Key)], r)
	}
	found := 0
	for i, s := range rows {
		for r := s.From; r < s.To; r++ {
			if slices.Contains(excluded, rowIDOf(rows, row{span: uint32(i), row: uint32(r)})) {
				continue
			}
			code := string(s.Code(r))
			require.NotEmpty(t, byDetector[code], "row %d of batch %d is missing", r, i)
			requireRecord(t, byDetector[code][0], s.Batch, r)
			byDetector[code] = byDetector[code][1:]
			found++
		}
	}
	require.Equal(t, found, len(records), "duplicate or unexpected records") // Len would print them all
}

func requireRecord(t testing.TB, got stores.Record, b *batch.Batch, r int) {
	t.Helper()
	require.Equal(t, b.ID.String(), got.Header("batch-id"))
	require.Equal(t, strconv.Itoa(int(b.Index[r])), got.Header("index"))
	require.Equal(t, b.ProductInstance, got.Header("product-instance"))
	require.Len(t, got.Headers, 3)
	require.Equal(t, b.ReceivedAt/1e6, got.Timestamp.UnixMilli())
	var m trafficdv1.Measurement
	require.NoError(t, proto.Unmarshal(got.Value, &m))
	requireMeasurement(t, &m, b, r)
}

func requireMeasurement(t testing.TB, m *trafficdv1.Measurement, b *batch.Batch, r int) {
	t.Helper()
	require.Equal(t, b.ProductInstance, m.GetProductInstance())
	require.Equal(t, string(b.Code(r)), m.GetDetectorCode())
	require.Equal(t, string(b.TypeCode(int(b.Type[r]))), m.GetMeasureTypeCode())
	require.Equal(t, b.From[r], m.GetTimestampFrom().AsTime().UnixNano())
	require.Equal(t, b.To[r], m.GetTimestampTo().AsTime().UnixNano())
	require.Equal(t, math.Float64bits(b.Value[r]), math.Float64bits(m.GetValue()))
	require.Equal(t, b.HasQuality(r), m.Quality != nil)
	if b.HasQuality(r) {
		require.Equal(t, b.Quality[r], m.GetQuality())
	}
}

// connectionCutter cuts connections after the broker has processed a large request and before the
// client reads the response.
type connectionCutter struct {
	cuts atomic.Int32 // number of connections still to be cut
}

// sink returns a sink whose connections are cut.
func (cutter *connectionCutter) sink(t testing.TB, cfg Config) *Sink {
	t.Helper()
	sink := newSink(t, cfg)
	transport := sink.cluster.transport
	dial := transport.Dial
	transport.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &cuttable{Conn: c, cutter: cutter}, nil
	}
	return sink
}

type cuttable struct {
	net.Conn
	cutter *connectionCutter
	large  atomic.Bool // whether a large request was written
}

func (c *cuttable) Write(p []byte) (int, error) {
	c.large.Store(c.large.Load() || len(p) > 600)
	return c.Conn.Write(p)
}

func (c *cuttable) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err == nil && c.large.Load() && c.cutter.cuts.Add(-1) >= 0 {
		_ = c.Conn.Close()
		return 0, net.ErrClosed
	}
	return n, err
}

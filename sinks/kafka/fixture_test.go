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

	"trafficd/cmd/devstores/stores"
	"trafficd/pipeline/batch"
	trafficdv1 "trafficd/schemas/proto/trafficd/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rowsOf returns a batch of n rows of some detectors, with gaps in its index.
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
	// For busy machines. The maximum age of metadata is also the timeout of a metadata request.
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

// journal replaces the delivery loop and its durable state in tests.
type journal struct {
	t        testing.TB
	state    []byte
	plan     []byte
	n        int
	rows     batch.Block // not yet delivered
	dead     []name      // rows that were rejected on their own
	limit    int         // largest number of rows offered; 0: all
	retries  int
	careless bool // loses the state that comes with a rejection
}

func (j *journal) add(b batch.Block) { j.rows = append(j.rows, b...) }

// run delivers everything through the sink, as the delivery loop does.
func (j *journal) run(s *Sink) {
	j.t.Helper()
	deadline := time.Now().Add(3 * time.Minute)
	for j.rows.Rows() > 0 {
		if err := j.step(s); err != nil {
			j.t.Log("retry:", err)
			j.retries++
			require.True(j.t, time.Now().Before(deadline), "not delivered in time: %v", err)
			time.Sleep(20 * time.Millisecond)
		}
	}
}

// step calls Plan, unless there is a plan, and Deliver.
func (j *journal) step(s *Sink) error {
	if j.plan == nil {
		offered := j.rows
		if j.limit > 0 {
			offered = offered.Head(j.limit)
		}
		n, plan, err := s.Plan(j.t.Context(), j.state, offered)
		if err != nil {
			return err
		}
		j.n, j.plan = n, plan
	}
	state, err := s.Deliver(j.t.Context(), j.plan, j.rows.Head(j.n))
	var permanent *batch.PermanentError
	switch {
	case err == nil:
		j.rows = rest(j.rows, j.n)
		j.limit = 0
	case !errors.As(err, &permanent):
		return err
	case j.n == 1:
		j.dead = append(j.dead, nameOf(j.rows, row{row: uint32(j.rows[0].From)}))
		j.rows = rest(j.rows, 1)
		j.limit = 0
	default:
		j.limit = j.n / 2
	}
	if j.plan = nil; err == nil || !j.careless {
		j.state = state
	}
	return nil
}

// requireOnce checks that the topic has exactly the block's rows without the excluded ones: each
// once, equal in every column, and those of one detector in order.
func requireOnce(t testing.TB, brokers []string, topic string, rows batch.Block, excluded ...name) {
	t.Helper()
	records, err := stores.ReadTopic(t.Context(), brokers, topic)
	require.NoError(t, err)
	requireRecords(t, records, rows, excluded...)
}

func requireRecords(t testing.TB, records []stores.Record, rows batch.Block, excluded ...name) {
	t.Helper()
	byDetector := map[string][]stores.Record{}
	for _, r := range records {
		byDetector[string(r.Key)] = append(byDetector[string(r.Key)], r)
	}
	seen := 0
	for i, s := range rows {
		for r := s.From; r < s.To; r++ {
			if slices.Contains(excluded, nameOf(rows, row{span: uint32(i), row: uint32(r)})) {
				continue
			}
			code := string(s.Code(r))
			require.NotEmpty(t, byDetector[code], "row %d of batch %d is missing", r, i)
			requireRecord(t, byDetector[code][0], s.Batch, r)
			byDetector[code] = byDetector[code][1:]
			seen++
		}
	}
	require.Equal(t, seen, len(records), "duplicate or unexpected records") // Len would print them all
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

// scissors cut connections after the broker has processed a large request, and before the client
// reads the response.
type scissors struct{ cuts atomic.Int32 }

// sink returns a sink whose connections are cut.
func (s *scissors) sink(t testing.TB, cfg Config) *Sink {
	t.Helper()
	sink := newSink(t, cfg)
	transport := sink.cluster.transport
	dial := transport.Dial
	transport.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &cuttable{Conn: c, scissors: s}, nil
	}
	return sink
}

type cuttable struct {
	net.Conn
	scissors *scissors
	large    atomic.Bool
}

func (c *cuttable) Write(p []byte) (int, error) {
	c.large.Store(c.large.Load() || len(p) > 600)
	return c.Conn.Write(p)
}

func (c *cuttable) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err == nil && c.large.Load() && c.scissors.cuts.Add(-1) >= 0 {
		_ = c.Conn.Close()
		return 0, net.ErrClosed
	}
	return n, err
}

package batch

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace"

	"trafficd/schemas/contract"
)

// random returns a random batch and its response.
func random(r *rand.Rand) (*Batch, *Response) {
	b := &Batch{ProductInstance: "stadt-ü", Client: "client", ReceivedAt: r.Int64()}
	for i := range b.ID {
		b.ID[i] = byte(r.Uint32())
	}
	for range 1 + r.IntN(4) {
		b.TypeText = fmt.Appendf(b.TypeText, "type%d", r.IntN(1000))
		b.TypeEnd = append(b.TypeEnd, uint32(len(b.TypeText)))
	}
	index := uint32(0)
	if r.IntN(2) == 0 {
		b.Trace = traceOf(r)
	}
	withQuality := r.IntN(2) == 0
	shared := columns(r.Uint32())
	for row := range r.IntN(50) {
		length := r.IntN(300)
		if row > 0 && shared&codeLengths != 0 {
			length = len(b.Code(0))
		}
		b.Codes = append(b.Codes, bytes.Repeat([]byte{byte(r.Uint32())}, length)...)
		b.CodeEnd = append(b.CodeEnd, uint32(len(b.Codes)))
		b.Type = append(b.Type, uint32(r.IntN(b.Types())))
		from := r.Int64N(math.MaxInt64 / 2)
		b.From, b.To = append(b.From, from), append(b.To, from+r.Int64N(1e15))
		b.Value = append(b.Value, math.Float64frombits(r.Uint64()&^(1<<62)))
		q := math.NaN()
		if withQuality && r.IntN(3) > 0 {
			q = r.Float64()
		}
		b.Quality = append(b.Quality, q)
		if row == 0 || shared&indexes == 0 {
			index += uint32(r.IntN(3))
		}
		b.Index = append(b.Index, index)
		index++
		if shared&typesOfRows != 0 {
			b.Type[row] = b.Type[0]
		}
		if shared&intervals != 0 {
			b.From[row], b.To[row] = b.From[0], b.To[0]
		}
		if shared&qualities != 0 {
			b.Quality[row] = b.Quality[0]
		}
	}
	a := &Response{}
	if r.IntN(2) == 0 {
		a.Key, a.Client, a.BodyHash, a.Items, a.Duplicates = "key", "client", r.Uint64(), r.IntN(1000), r.IntN(1000)
		for i := range r.IntN(5) {
			a.Add(i*7, contract.BatchLimitExceeded+contract.Code(r.IntN(int(contract.CodeCount-contract.BatchLimitExceeded))), contract.Field(r.IntN(int(contract.FieldCount))), bytes.Repeat([]byte("é"), r.IntN(60)))
		}
	}
	return b, a
}

func traceOf(r *rand.Rand) trace.SpanContext {
	return trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{byte(r.Uint32()), 1}, SpanID: trace.SpanID{byte(r.Uint32()), 2}, TraceFlags: trace.FlagsSampled, Remote: true,
	})
}

// TestFrameOfUnsampledRequest checks that a frame has the trace only of a sampled request.
func TestFrameOfUnsampledRequest(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	b, a := random(r)
	sampled := traceOf(r)
	b.Trace = trace.SpanContext{}
	plain := AppendFrame(nil, b, a)
	b.Trace = sampled.WithTraceFlags(0)
	require.Equal(t, plain, AppendFrame(nil, b, a))

	b.Trace = sampled
	traced := AppendFrame(nil, b, a)
	require.Len(t, traced, len(plain)+16+8)
	for frame, want := range map[string]trace.SpanContext{string(plain): {}, string(traced): sampled} {
		h, err := FrameHeader([]byte(frame))
		require.NoError(t, err)
		require.Equal(t, Header{ReceivedAt: b.ReceivedAt, ID: b.ID, ProductInstance: b.ProductInstance, Client: b.Client, Trace: want}, h)
	}
}

func TestFrameRoundTrip(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	got, response := new(Batch), new(Response)
	for range 500 {
		b, a := random(r)
		frame := AppendFrame([]byte("before"), b, a)[len("before"):]
		require.NoError(t, DecodeFrame(frame, got, response))
		require.Equal(t, fmt.Sprintf("%+v", *b), fmt.Sprintf("%+v", *got))
		require.Equal(t, fmt.Sprintf("%+v", *a), fmt.Sprintf("%+v", *response))
		id, err := FrameKey(frame)
		require.NoError(t, err)
		require.Equal(t, Response{Key: a.Key, Client: a.Client, BodyHash: a.BodyHash}, id)
		require.Equal(t, b.ReceivedAt, FrameReceivedAt(frame))
		StampFrame(frame, 77)
		require.NoError(t, DecodeFrame(frame, got, nil))
		require.EqualValues(t, 77, got.ReceivedAt)

		short := FrameWithoutRows(frame)
		require.NoError(t, DecodeFrame(short, got, response))
		require.Zero(t, got.Rows())
		require.Equal(t, b.ID, got.ID)
		require.Equal(t, fmt.Sprintf("%+v", *a), fmt.Sprintf("%+v", *response))
	}
}

// TestUnknownCode checks that a response with numbers that a newer version has stored can be read.
func TestUnknownCode(t *testing.T) {
	var a Response
	a.Key, a.Items = "k", 1
	a.Add(3, contract.UnknownDetector, contract.FieldDetectorCode, nil)
	frame := AppendFrame(nil, new(Batch), &a)
	newer := bytes.Replace(frame, compressor.EncodeAll([]byte{3, 23, 1, 0}, nil), compressor.EncodeAll([]byte{3, 200, 99, 0}, nil), 1)
	require.NotEqual(t, frame, newer)
	var b Batch
	require.NoError(t, DecodeFrame(newer, &b, &a))
	require.Equal(t, []Rejection{{Index: 3, Code: contract.UnknownCode, Field: contract.FieldItem}}, a.List)
}

// TestFrameDoesNotGrow checks that the memory for a typical frame is allocated once.
func TestFrameDoesNotGrow(t *testing.T) {
	var b Batch
	for row := range 1000 {
		b.Codes = fmt.Appendf(b.Codes, "DET-%06d", row)
		b.CodeEnd, b.Type, b.Index = append(b.CodeEnd, uint32(len(b.Codes))), append(b.Type, 0), append(b.Index, uint32(row))
		b.From, b.To = append(b.From, 300e9), append(b.To, 600e9)
		b.Value, b.Quality = append(b.Value, float64(row)), append(b.Quality, 1)
	}
	b.TypeText, b.TypeEnd = []byte("speed"), []uint32{5}
	frame := AppendFrame(nil, &b, nil)
	require.Less(t, cap(frame), len(frame)*11/10)
}

func TestTruncatedFrames(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	var got Batch
	for range 20 {
		b, a := random(r)
		frame := AppendFrame(nil, b, a)
		for n := range frame {
			require.ErrorIs(t, DecodeFrame(frame[:n:n], &got, nil), ErrFrame)
		}
		require.ErrorIs(t, DecodeFrame(append(frame, 0), &got, nil), ErrFrame)
	}
	require.ErrorContains(t, DecodeFrame([]byte{9}, &got, nil), "version 9")
}

// TestOverflowInFrame checks that a length or an index that overflows is an error.
func TestOverflowInFrame(t *testing.T) {
	b := &Batch{}
	b.Codes, b.CodeEnd = []byte("abcdeABCDEF"), []uint32{5, 11}
	b.TypeText, b.TypeEnd, b.Type = []byte("t"), []uint32{1}, []uint32{0, 0}
	b.From, b.To, b.Value, b.Quality = make([]int64, 2), make([]int64, 2), make([]float64, 2), make([]float64, 2)
	b.Index = []uint32{3, 8}
	frame := AppendFrame(nil, b, nil)
	require.NoError(t, DecodeFrame(frame, new(Batch), nil))
	f := func(before, after []byte) {
		t.Helper()
		require.Equal(t, 1, bytes.Count(frame, before))
		require.ErrorIs(t, DecodeFrame(bytes.Replace(frame, before, after, 1), new(Batch), nil), ErrFrame)
	}
	most := binary.AppendUvarint(nil, math.MaxUint64)
	f([]byte("\x05\x06abc"), slices.Concat([]byte{5}, most, []byte("abc")))
	f([]byte("DEF\x00\x03\x04"), slices.Concat([]byte("DEF\x00\x03"), most))
}

func TestDecodeFrameReusesItsMemory(t *testing.T) {
	b, _ := random(rand.New(rand.NewPCG(5, 6)))
	b.ProductInstance, b.Client = "", "" // strings are copied
	frame, got := AppendFrame(nil, b, nil), new(Batch)
	require.Zero(t, testing.AllocsPerRun(50, func() {
		if err := DecodeFrame(frame, got, nil); err != nil {
			t.Fatal(err)
		}
	}))
}

// FuzzFrame checks that a decodable frame survives encoding and decoding again.
func FuzzFrame(f *testing.F) {
	r := rand.New(rand.NewPCG(7, 8))
	for range 20 {
		f.Add(AppendFrame(nil, first(random(r)), nil))
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		var b, again Batch
		var a, response Response
		if err := DecodeFrame(frame, &b, &a); err != nil {
			require.ErrorIs(t, err, ErrFrame)
			return
		}
		require.NoError(t, DecodeFrame(AppendFrame(nil, &b, &a), &again, &response))
		require.Equal(t, fmt.Sprintf("%+v %+v", b, a), fmt.Sprintf("%+v %+v", again, response))
	})
}

func first(b *Batch, _ *Response) *Batch { return b }

func TestDerivedID(t *testing.T) {
	id := DerivedID("client", "key", 7)
	require.Equal(t, id, DerivedID("client", "key", 7))
	require.Equal(t, "c59ba1c6-81ee-8ced-8c01-723bc67e10d6", id.String(), "replicas of different versions must agree")
	require.True(t, id.Derived())
	seen := map[ID]bool{id: true}
	for _, other := range []ID{
		DerivedID("clien", "tkey", 7), DerivedID("clientk", "ey", 7),
		DerivedID("client", "key", 8), DerivedID("client", "kez", 7),
	} {
		require.False(t, seen[other])
		seen[other] = true
	}
}

func TestAcceptDropsRejectedRows(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	for range 200 {
		b, _ := random(r)
		it := &Items{Columns: b.Columns, Count: b.Rows()}
		var rejected Rejections
		var want []string
		row := func(c *Columns, i int) string {
			return fmt.Sprintf("%x %d %d %d %v %v", c.Code(i), c.Type[i], c.From[i], c.To[i], c.Value[i], c.Quality[i])
		}
		for i := range it.Rows() {
			if r.IntN(3) == 0 {
				rejected.Add(i, contract.InvalidValue, contract.FieldValue, nil)
			} else {
				want = append(want, fmt.Sprint(i, row(&it.Columns, i)))
			}
		}
		rejected.Add(it.Rows()+5, contract.BatchLimitExceeded, contract.FieldItem, nil)
		var got Batch
		got.Accept(it, &rejected)
		var rows []string
		for i := range got.Rows() {
			rows = append(rows, fmt.Sprint(got.Index[i], row(&got.Columns, i)))
		}
		require.Equal(t, want, rows)
		require.Len(t, got.Index, got.Rows())
	}
}

func TestBlockHeadAndEnd(t *testing.T) {
	batchOf := func(n int) *Batch { return &Batch{Columns: Columns{CodeEnd: make([]uint32, n)}} }
	b := Block{{Batch: batchOf(5), Frame: 3, From: 2, To: 5}, {Batch: batchOf(4), Frame: 7, From: 0, To: 4}}
	require.Equal(t, 7, b.Rows())
	f := func(n int, rows int, end Position) {
		t.Helper()
		h := b.Head(n)
		require.Equal(t, rows, h.Rows())
		require.Equal(t, end, h.End())
		require.Equal(t, 7, b.Rows(), "b is unchanged")
	}
	f(1, 1, Position{3, 3})
	f(3, 3, Position{Frame: 4})
	f(4, 4, Position{7, 1})
	f(7, 7, Position{Frame: 8})
	f(9, 7, Position{Frame: 8})
	require.Empty(t, b.Head(0))
	require.True(t, Position{3, 9}.Before(Position{4, 0}))
	require.True(t, Position{3, 1}.Before(Position{3, 2}))
	require.False(t, Position{3, 2}.Before(Position{3, 2}))
}

func TestDetectors(t *testing.T) {
	long := string(bytes.Repeat([]byte("x"), MaxCodeLen+1))
	d, skipped := NewDetectors([]string{"b", "a", "b", "", long, long[1:]})
	require.Equal(t, 2, skipped)
	require.Equal(t, 3, d.Len())
	for ord, code := range []string{"b", "a", long[1:]} {
		got, ok := d.Find([]byte(code))
		require.True(t, ok)
		require.Equal(t, ord, got)
		require.Equal(t, code, string(d.Code(ord)))
	}
	require.False(t, d.Has([]byte("c")))
	require.False(t, d.Has(nil))
	require.False(t, d.Has([]byte(long)))
	empty, _ := NewDetectors(nil)
	require.False(t, empty.Has([]byte("a")))
}

func TestIDString(t *testing.T) {
	require.Equal(t, "01020304-0506-0708-090a-0b0c0d0e0f10", ID{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}.String())
}

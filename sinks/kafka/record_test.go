package kafka

import (
	"bytes"
	"encoding/binary"
	"io"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/compress"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"trafficd/pipeline/batch"
	trafficdv1 "trafficd/schemas/proto/trafficd/v1"
)

func TestMeasurementIsProtobuf(t *testing.T) {
	b := rowsOf(random(), 2000, 50)
	b.From[0], b.To[0] = 0, 0
	b.From[1], b.To[1] = -1, 999_999_999 // a row that validation rejects, but that the type allows
	for r := range b.Rows() {
		got := appendMeasurement(nil, b, r)
		var m trafficdv1.Measurement
		require.NoError(t, proto.Unmarshal(got, &m))
		requireMeasurement(t, &m, b, r)
		want, err := proto.MarshalOptions{Deterministic: true}.Marshal(measurementOf(b, r))
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
}

// measurementOf returns row r as the generated type.
func measurementOf(b *batch.Batch, r int) *trafficdv1.Measurement {
	stamp := func(ns int64) *timestamppb.Timestamp {
		seconds, nanos := split(ns)
		return &timestamppb.Timestamp{Seconds: seconds, Nanos: int32(nanos)}
	}
	m := &trafficdv1.Measurement{
		ProductInstance: b.ProductInstance, DetectorCode: string(b.Code(r)), MeasureTypeCode: string(b.TypeCode(int(b.Type[r]))),
		TimestampFrom: stamp(b.From[r]), TimestampTo: stamp(b.To[r]), Value: b.Value[r],
	}
	if b.HasQuality(r) {
		m.Quality = &b.Quality[r]
	}
	return m
}

// TestRecordSize checks that no record is larger than recordSize returns, or much smaller.
func TestRecordSize(t *testing.T) {
	b := rowsOf(random(), 500, 50)
	f := func(timestampDelta, offsetDelta int64, slack int) {
		t.Helper()
		for r := range b.Rows() {
			var e encoder
			e.appendRecord(b, r, timestampDelta, offsetDelta)
			require.LessOrEqual(t, len(e.records), recordSize(b, r))
			require.LessOrEqual(t, recordSize(b, r)-len(e.records), slack)
		}
	}
	f(0, 0, 40)
	f(1<<33, 1<<19, 40)
	for r := range b.Rows() {
		b.From[r], b.To[r] = b.From[r]/1e9*1e9, b.To[r]/1e9*1e9
	}
	f(0, 0, 30)
	b.Trace = sampled()
	f(0, 0, 30)
	b.Index[0], b.ProductInstance = 999_999, ""
	f(-1<<33, 1<<19, 40)
}

func sampled() trace.SpanContext {
	return trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled})
}

func TestTraceparent(t *testing.T) {
	require.Equal(t, "00-01000000000000000000000000000000-0200000000000000-01", string(appendTrace(nil, sampled())))
}

func TestEncodeAllocatesNothingPerRecord(t *testing.T) {
	rows := block(rowsOf(random(), 5000, 100))
	share := divide(rows, 1)[0]
	f := func(codec compress.Compression, n int, limit float64) {
		t.Helper()
		var e encoder
		got := testing.AllocsPerRun(20, func() {
			if _, err := e.encode(producer{id: 7}, codec, rows, share[:n]); err != nil {
				t.Fatal(err)
			}
		})
		require.LessOrEqual(t, got, limit, "%s, %d records", codec, n)
	}
	f(compress.None, 1, 0)
	f(compress.None, 5000, 0)
	f(compress.Lz4, 5000, 100) // the compressor allocates, once per record batch; more if a pool has dropped it
	f(compress.Zstd, 5000, 100)
}

func TestEncode(t *testing.T) {
	rng := random()
	rows := block(rowsOf(rng, 300, 40), rowsOf(rng, 1, 1), rowsOf(rng, 200, 40))
	for name, codec := range codecs {
		for p, share := range divide(rows, 3) {
			var e encoder
			frame, err := e.encode(producer{id: 1<<40 + 5, epoch: 3, sequence: math.MaxInt32}, codec, rows, share)
			require.NoError(t, err, "%s, partition %d", name, p)
			requireBatch(t, frame, producer{id: 1<<40 + 5, epoch: 3, sequence: math.MaxInt32}, codec, rows, share)
		}
	}
}

func FuzzEncode(f *testing.F) {
	f.Add(uint64(1), uint16(1), byte(0), int64(0), int16(0), int32(0))
	f.Add(uint64(2), uint16(300), byte(3), int64(9), int16(4), int32(math.MaxInt32))
	f.Add(uint64(3), uint16(64), byte(4), int64(math.MaxInt64), int16(math.MaxInt16), int32(1))
	f.Fuzz(func(t *testing.T, seed uint64, n uint16, codec byte, id int64, epoch int16, sequence int32) {
		rng := rand.New(rand.NewPCG(seed, 0))
		var batches []*batch.Batch
		for left := int(n)%700 + 1; left > 0; {
			b := rowsOf(rng, rng.IntN(left)+1, 20)
			b.ReceivedAt = rng.Int64N(math.MaxInt64) // in any order
			left -= b.Rows()
			batches = append(batches, b)
		}
		rows, p, c := block(batches...), producer{id: id, epoch: epoch, sequence: sequence}, compress.Compression(codec%5)
		for _, share := range divide(rows, 2) {
			if len(share) == 0 {
				continue
			}
			var e encoder
			frame, err := e.encode(p, c, rows, share)
			require.NoError(t, err)
			requireBatch(t, frame, p, c, rows, share)
		}
	})
}

// requireBatch decodes a record batch with franz-go.
func requireBatch(t testing.TB, frame []byte, p producer, codec compress.Compression, rows batch.Block, share []row) {
	t.Helper()
	require.Equal(t, len(frame)-4, int(binary.BigEndian.Uint32(frame)))
	var b kmsg.RecordBatch
	require.NoError(t, b.ReadFrom(frame[4:])) // checks only lengths
	require.Equal(t, len(frame)-4-12, int(b.Length))
	require.Equal(t, int8(2), b.Magic)
	require.Equal(t, int16(codec), b.Attributes)
	require.Equal(t, crc(frame[4+21:]), uint32(b.CRC))
	require.Equal(t, p, producer{id: b.ProducerID, epoch: b.ProducerEpoch, sequence: b.FirstSequence})
	require.Equal(t, len(share), int(b.NumRecords))
	require.Equal(t, len(share)-1, int(b.LastOffsetDelta))
	latest := b.FirstTimestamp
	raw := decompress(t, codec, b.Records)
	for i, at := range share {
		size, n := binary.Varint(raw)
		var r kmsg.Record
		require.NoError(t, r.ReadFrom(raw[:n+int(size)]))
		raw = raw[n+int(size):]
		owner := rows[at.span].Batch
		require.Equal(t, i, int(r.OffsetDelta))
		require.Equal(t, milliseconds(owner), b.FirstTimestamp+r.TimestampDelta64)
		latest = max(latest, milliseconds(owner))
		require.Equal(t, owner.Code(int(at.row)), r.Key)
		require.Equal(t, appendMeasurement(nil, owner, int(at.row)), r.Value)
		require.Equal(t, owner.ID.String(), string(r.Headers[1].Value))
	}
	require.Empty(t, raw)
	require.Equal(t, latest, b.MaxTimestamp)
}

func decompress(t testing.TB, codec compress.Compression, b []byte) []byte {
	if codec == compress.None {
		return b
	}
	r := codec.Codec().NewReader(bytes.NewReader(b))
	defer r.Close()
	raw, err := io.ReadAll(r)
	require.NoError(t, err)
	return raw
}

// crc is a slow reference implementation of CRC-32C.
func crc(b []byte) uint32 {
	c := ^uint32(0)
	for _, x := range b {
		c ^= uint32(x)
		for range 8 {
			c = c>>1 ^ 0x82f63b78&-(c&1)
		}
	}
	return ^c
}

func TestAdvance(t *testing.T) {
	f := func(sequence int32, n int, want int32) {
		t.Helper()
		require.Equal(t, want, advance(sequence, n))
	}
	f(0, 0, 0)
	f(0, 14_000, 14_000)
	f(math.MaxInt32, 1, 0)
	f(math.MaxInt32-9, 20, 10)
}

func TestRowID(t *testing.T) {
	id := rowsOf(random(), 1, 1).ID
	parse := func(text string) (rowID, bool) {
		return rowIDIn([]kafka.Header{{Key: headerIndex, Value: []byte("7")}, {Key: headerBatch, Value: []byte(text)}})
	}
	got, ok := parse(id.String())
	require.True(t, ok)
	require.Equal(t, rowID{id, 7}, got)
	f := func(text string) {
		t.Helper()
		_, ok := parse(text)
		require.False(t, ok, text)
	}
	f("{" + id.String() + "}")
	f("")
	f(id.String()[:35])
	f(id.String() + "0")
	f("g" + id.String()[1:])
	f("00000000_0000-0000-0000-000000000000")
}

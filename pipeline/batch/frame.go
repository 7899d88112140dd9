package batch

import (
	"encoding/binary"
	"errors"
	"math"
	"slices"

	"github.com/cespare/xxhash/v2"
	"github.com/klauspost/compress/zstd"
	"go.opentelemetry.io/otel/trace"

	"trafficd/schemas/contract"
)

// ErrFrame is wrapped by all errors about invalid frames.
var ErrFrame = errors.New("invalid frame")

// A frame is what the journal stores for a request: header, response, columns.
//
//	version     1 byte
//	received_at 8 bytes little endian, nanoseconds   (at a fixed offset, for StampFrame)
//	batch ID    16 bytes
//	trace ID 16 bytes and span ID 8 bytes, empty unless the request is sampled (uvarint length, bytes)
//	product instance, client, idempotency key        (uvarint length, bytes)
//	if the key is not empty: body hash 8 bytes, items, duplicates, number of rejections, the
//	                         rejections compressed with zstd (uvarint length, bytes)
//	rows, types                                      (uvarint)
//	type texts                                       (uvarint length, bytes)
//	the set of shared columns                        1 byte
//	code lengths (uvarint), code bytes, type of each row (uvarint), indexes skipped before each row (uvarint)
//	for each row, how much From and To-From increase from the previous row  (varint)
//	values, qualities                                8 bytes each
//
// A shared column stores only the first row's entry: the other rows have the same value or, for
// indexes, consecutive values. In real batches most deltas take one byte.
const (
	FrameVersion = 1 // first byte of every frame; increase it when the format changes
	stampAt      = 1
	traceBytes   = 16 + 8
	noRows       = "\x00\x00\x00" // no rows, no types, no shared columns
)

// columns is a set of shared columns.
type columns byte

const (
	codeLengths columns = 1 << iota
	typesOfRows
	indexes
	intervals
	qualities
)

// entries returns the number of entries that a frame stores for column c.
func (s columns) entries(c columns, rows int) int {
	if s&c != 0 {
		return min(rows, 1)
	}
	return rows
}

// shared returns the set of columns that the frame of b can share.
func shared(b *Batch) (s columns) {
	rows := b.Rows()
	if rows == 0 {
		return 0
	}
	length, end := b.CodeEnd[0], uint32(0)
	if !slices.ContainsFunc(b.CodeEnd, func(e uint32) bool { end += length; return e != end }) {
		s |= codeLengths
	}
	if !slices.ContainsFunc(b.Type, func(t uint32) bool { return t != b.Type[0] }) {
		s |= typesOfRows
	}
	if b.Index[rows-1]-b.Index[0] == uint32(rows-1) {
		s |= indexes
	}
	if !slices.ContainsFunc(b.From, func(t int64) bool { return t != b.From[0] }) &&
		!slices.ContainsFunc(b.To, func(t int64) bool { return t != b.To[0] }) {
		s |= intervals
	}
	if first := math.Float64bits(b.Quality[0]); !slices.ContainsFunc(b.Quality, func(q float64) bool { return math.Float64bits(q) != first }) {
		s |= qualities
	}
	return s
}

// Response is the part of a 207 that the idempotency store keeps (contract 1.5). It is part of the
// batch's frame, so both become durable in the same commit.
type Response struct {
	Key        string // the Idempotency-Key; if empty, the frame contains no response
	Client     string // the batch's
	BodyHash   uint64 // of the decompressed body
	Items      int    // accepted + rejected
	Duplicates int    // see Result
	Rejections
}

// AppendFrame appends a frame with b and response to dst. response may be nil.
func AppendFrame(dst []byte, b *Batch, response *Response) []byte {
	const rest = 1 << 10 // bytes of all other fields; rarely more
	s := shared(b)
	n := func(c columns) int { return s.entries(c, b.Rows()) }
	dst = slices.Grow(dst, len(b.Codes)+n(codeLengths)+n(typesOfRows)+n(indexes)+2*n(intervals)+8*(b.Rows()+n(qualities))+rest)
	dst = append(dst, FrameVersion)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(b.ReceivedAt))
	dst = append(dst, b.ID[:]...)
	if b.Trace.IsSampled() {
		id, span := b.Trace.TraceID(), b.Trace.SpanID()
		dst = append(append(append(dst, traceBytes), id[:]...), span[:]...)
	} else {
		dst = append(dst, 0)
	}
	dst = AppendCounted(dst, b.ProductInstance)
	dst = AppendCounted(dst, b.Client)
	dst = appendResponse(dst, response)
	dst = binary.AppendUvarint(dst, uint64(b.Rows()))
	dst = binary.AppendUvarint(dst, uint64(b.Types()))
	for t := range b.Types() {
		dst = AppendCounted(dst, b.TypeCode(t))
	}
	dst = append(dst, byte(s))
	start := uint32(0)
	for _, end := range b.CodeEnd[:n(codeLengths)] {
		dst = appendUvarint(dst, uint64(end-start))
		start = end
	}
	dst = append(dst, b.Codes...)
	for _, t := range b.Type[:n(typesOfRows)] {
		dst = appendUvarint(dst, uint64(t))
	}
	next := uint32(0)
	for _, i := range b.Index[:n(indexes)] {
		dst = appendUvarint(dst, uint64(i-next))
		next = i + 1
	}
	lastFrom, lastSpan := int64(0), int64(0)
	for i, from := range b.From[:n(intervals)] {
		span := b.To[i] - from
		dst = appendVarint(dst, from-lastFrom)
		dst = appendVarint(dst, span-lastSpan)
		lastFrom, lastSpan = from, span
	}
	return AppendFloats(AppendFloats(dst, b.Value), b.Quality[:n(qualities)])
}

// appendUvarint is like binary.AppendUvarint but faster for one-byte numbers.
func appendUvarint(dst []byte, v uint64) []byte {
	if v < 0x80 {
		return append(dst, byte(v))
	}
	return binary.AppendUvarint(dst, v)
}

// appendVarint is like binary.AppendVarint.
func appendVarint(dst []byte, v int64) []byte { return appendUvarint(dst, uint64(v)<<1^uint64(v>>63)) }

func appendResponse(dst []byte, a *Response) []byte {
	if a == nil || a.Key == "" {
		return append(dst, 0)
	}
	dst = AppendCounted(dst, a.Key)
	dst = binary.LittleEndian.AppendUint64(dst, a.BodyHash)
	dst = binary.AppendUvarint(dst, uint64(a.Items))
	dst = binary.AppendUvarint(dst, uint64(a.Duplicates))
	dst = binary.AppendUvarint(dst, uint64(len(a.List)))
	plain := len(dst)
	for _, x := range a.List {
		dst = binary.AppendUvarint(dst, uint64(x.Index))
		dst = append(dst, x.Code.Stored(), x.Field.Stored())
		dst = AppendCounted(dst, a.Detail(x))
	}
	return AppendCounted(dst[:plain], compressor.EncodeAll(dst[plain:], nil))
}

// Compression shrinks a list of rejections to about a tenth. Both coders are safe for concurrent
// use; their constructors do not fail with these options.
var (
	compressor, _   = zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithWindowSize(1<<17))
	decompressor, _ = zstd.NewReader(nil, zstd.WithDecoderMaxMemory(1<<30))
)

// AppendFloats appends the values, 8 little-endian bytes each.
func AppendFloats(dst []byte, values []float64) []byte {
	n := len(dst)
	dst = slices.Grow(dst, 8*len(values))[:n+8*len(values)]
	for i, v := range values {
		binary.LittleEndian.PutUint64(dst[n+8*i:], math.Float64bits(v))
	}
	return dst
}

// DecodeFrame decodes a frame into b and, unless it is nil, response. It reuses their memory; they
// contain no views into frame. Errors wrap ErrFrame.
func DecodeFrame(frame []byte, b *Batch, response *Response) error {
	r := NewWireReader(frame, ErrFrame)
	b.Reset()
	h := readHeader(&r)
	b.ReceivedAt, b.ID, b.Trace, b.ProductInstance, b.Client = h.ReceivedAt, h.ID, h.Trace, h.ProductInstance, h.Client
	if readResponse(&r, response); response != nil && response.Key != "" {
		response.Client = h.Client
	}
	readColumns(&r, b)
	return r.End()
}

// Header is the start of a frame; see Batch for the fields.
type Header struct {
	ReceivedAt      int64
	ID              ID
	Trace           trace.SpanContext
	ProductInstance string
	Client          string
}

func readHeader(r *WireReader) (h Header) {
	r.Version(FrameVersion)
	h.ReceivedAt = int64(r.Uint64())
	copy(h.ID[:], r.Bytes(len(h.ID)))
	switch r.Byte() {
	case 0:
	case traceBytes:
		c := trace.SpanContextConfig{TraceFlags: trace.FlagsSampled, Remote: true}
		copy(c.TraceID[:], r.Bytes(len(c.TraceID)))
		copy(c.SpanID[:], r.Bytes(len(c.SpanID)))
		h.Trace = trace.NewSpanContext(c)
	default:
		r.Fail("invalid trace")
	}
	h.ProductInstance, h.Client = string(r.Counted()), string(r.Counted())
	return h
}

// readResponse reads the response into a. If a is nil, it skips the response.
func readResponse(r *WireReader, a *Response) {
	key := r.Counted()
	if a != nil {
		rejections := a.Rejections
		rejections.Reset()
		*a = Response{Key: string(key), Rejections: rejections}
	}
	if len(key) == 0 {
		return
	}
	hash, items, duplicates, count, packed := r.Uint64(), r.Uvarint(), r.Uvarint(), r.Uvarint(), r.Counted()
	if a == nil || r.Err() != nil {
		return
	}
	a.BodyHash, a.Items, a.Duplicates = hash, int(items), int(duplicates)
	list, err := decompressor.DecodeAll(packed, nil)
	if err != nil {
		r.Fail("invalid zstd data of the rejections")
		return
	}
	l := NewWireReader(list, ErrFrame)
	for ; count > 0 && l.Err() == nil; count-- {
		index := l.Uvarint()
		code, field := l.Byte(), l.Byte()
		a.Add(int(index), contract.CodeOf(code), contract.FieldOf(field), l.Counted())
	}
	if l.End() != nil {
		r.Fail("invalid rejections")
	}
}

func readColumns(r *WireReader, b *Batch) {
	rows, types := r.Count(), r.Count()
	for range types {
		b.TypeText = append(b.TypeText, r.Counted()...)
		b.TypeEnd = append(b.TypeEnd, uint32(len(b.TypeText)))
	}
	s := columns(r.Byte())
	length, end := uint64(0), uint64(0)
	for row := range rows {
		if row == 0 || s&codeLengths == 0 {
			length = r.Uvarint()
		}
		left := uint64(r.Left())
		if end += length; length > left || end > left {
			r.Fail("detector codes too long")
			return
		}
		b.CodeEnd = append(b.CodeEnd, uint32(end))
	}
	b.Codes = append(b.Codes, r.Bytes(int(end))...)
	kind, next, from, span := uint64(0), uint64(0), int64(0), int64(0)
	for row := range rows {
		if row == 0 || s&typesOfRows == 0 {
			if kind = r.Uvarint(); kind >= uint64(types) {
				r.Fail("unknown measure type")
				return
			}
		}
		b.Type = append(b.Type, uint32(kind))
	}
	for row := range rows {
		skipped := uint64(0)
		if row == 0 || s&indexes == 0 {
			skipped = r.Uvarint()
		}
		if next += skipped; max(next, skipped) > math.MaxUint32 {
			r.Fail("index too large")
			return
		}
		b.Index = append(b.Index, uint32(next))
		next++
	}
	for row := range rows {
		if row == 0 || s&intervals == 0 {
			from += r.Varint()
			span += r.Varint()
		}
		b.From = append(b.From, from)
		b.To = append(b.To, from+span)
	}
	b.Value = readFloats(r, b.Value, rows)
	b.Quality = readFloats(r, b.Quality, s.entries(qualities, rows))
	for len(b.Quality) < len(b.Value) && r.Err() == nil {
		b.Quality = append(b.Quality, b.Quality[0])
	}
}

func readFloats(r *WireReader, dst []float64, rows int) []float64 {
	for raw := r.Bytes(8 * rows); len(raw) > 0; raw = raw[8:] {
		dst = append(dst, math.Float64frombits(binary.LittleEndian.Uint64(raw)))
	}
	return dst
}

// StampFrame sets the received_at of a frame.
func StampFrame(frame []byte, receivedAt int64) {
	binary.LittleEndian.PutUint64(frame[stampAt:], uint64(receivedAt))
}

// FrameReceivedAt returns the received_at of a frame, or 0 if the frame is too short.
func FrameReceivedAt(frame []byte) int64 {
	if len(frame) < stampAt+8 {
		return 0
	}
	return int64(binary.LittleEndian.Uint64(frame[stampAt:]))
}

// FrameKey returns a frame's response with only Key, Client and BodyHash set. They are zero if the
// request had no Idempotency-Key.
func FrameKey(frame []byte) (a Response, err error) {
	r := NewWireReader(frame, ErrFrame)
	h := readHeader(&r)
	if a.Key = string(r.Counted()); a.Key != "" {
		a.Client, a.BodyHash = h.Client, r.Uint64()
	}
	return a, r.Err()
}

// FrameHeader returns the header of a frame.
func FrameHeader(frame []byte) (h Header, err error) {
	r := NewWireReader(frame, ErrFrame)
	h = readHeader(&r)
	return h, r.Err()
}

// FrameSum returns a hash of a valid frame from the batch ID on, and thus without received_at.
func FrameSum(frame []byte) uint64 { return xxhash.Sum64(frame[stampAt+8:]) }

// FrameWithout returns a copy of a frame without the rows whose indexes are in earlier frames of
// the same batch. The copy has no response.
func FrameWithout(frame []byte, earlier [][]byte) ([]byte, error) {
	var b, other Batch
	err := DecodeFrame(frame, &b, nil)
	drop := map[uint32]bool{}
	for _, e := range earlier {
		if err == nil {
			err = DecodeFrame(e, &other, nil)
		}
		for _, index := range other.Index {
			drop[index] = true
		}
	}
	if err != nil {
		return nil, err
	}
	n := 0
	for row, index := range b.Index {
		if drop[index] {
			continue
		}
		if n != row {
			b.move(n, row)
		}
		b.Index[n] = index
		n++
	}
	b.Truncate(n)
	b.Index = b.Index[:n]
	return AppendFrame(nil, &b, nil), nil
}

// FrameRows returns the number of rows in a frame.
func FrameRows(frame []byte) (int, error) {
	r := NewWireReader(frame, ErrFrame)
	readHeader(&r)
	readResponse(&r, nil)
	return r.Count(), r.Err()
}

// FrameWithoutRows returns a copy of a valid frame without its rows.
func FrameWithoutRows(frame []byte) []byte {
	r := NewWireReader(frame, ErrFrame)
	readHeader(&r)
	readResponse(&r, nil)
	end := len(frame) - r.Left()
	short := make([]byte, 0, end+len(noRows))
	return append(append(short, frame[:end]...), noRows...)
}

package batch

import (
	"encoding/binary"
	"errors"
	"math"

	"trafficd/schemas/contract"
)

// FrameVersion is the first byte of each frame.
const FrameVersion = 1

// ErrFrame is wrapped by every error about a frame's bytes.
var ErrFrame = errors.New("bad frame")

// Answer is what the daemon remembers of a 207 whose request carried an
// Idempotency-Key (contract 1.5). It travels in the batch's own frame, so
// that both become durable in the same commit.
type Answer struct {
	Key      string // as sent by the client; empty: nothing is to be remembered
	BodyHash uint64 // of the decompressed body
	Items    int    // accepted + rejected
	Rejections
}

// A frame is what the journal keeps of one request: header, answer, columns.
//
//	version     1 byte
//	received_at 8 bytes little endian, nanoseconds   (at a fixed place: StampFrame)
//	batch id    16 bytes
//	product instance, idempotency key                (uvarint length, bytes)
//	if the key is not empty: body hash 8 bytes, items, rejections
//	rows, types                                      (uvarint)
//	type texts                                       (uvarint length, bytes)
//	code lengths, code bytes, type of each row, index distance of each row
//	From as distance to the row before, To-From likewise (varint)
//	values 8 bytes each; quality flag; qualities 8 bytes each
//
// Distances are what repeats in real batches: they take one byte each there.
const (
	stampAt    = 1
	headerSize = stampAt + 8 + len(ID{})
	noRows     = "\x00\x00\x00" // no rows, no types, no qualities
)

// AppendFrame appends the frame of b and a to dst. a may be nil.
func AppendFrame(dst []byte, b *Batch, a *Answer) []byte {
	dst = append(dst, FrameVersion)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(b.ReceivedAt))
	dst = append(dst, b.ID[:]...)
	dst = AppendCounted(dst, b.ProductInstance)
	dst = appendAnswer(dst, a)
	return appendColumns(dst, b)
}

// StampFrame sets a frame's received_at. The order of the frames is known only
// when they are queued, and received_at has to follow it.
func StampFrame(frame []byte, receivedAt int64) {
	binary.LittleEndian.PutUint64(frame[stampAt:], uint64(receivedAt))
}

func appendAnswer(dst []byte, a *Answer) []byte {
	if a == nil || a.Key == "" {
		return append(dst, 0)
	}
	dst = AppendCounted(dst, a.Key)
	dst = binary.LittleEndian.AppendUint64(dst, a.BodyHash)
	dst = binary.AppendUvarint(dst, uint64(a.Items))
	dst = binary.AppendUvarint(dst, uint64(len(a.List)))
	for _, x := range a.List {
		dst = binary.AppendUvarint(dst, uint64(x.Index))
		dst = append(dst, byte(x.Code), byte(x.Field))
		dst = AppendCounted(dst, a.Echo(x))
	}
	return dst
}

func appendColumns(dst []byte, b *Batch) []byte {
	rows := b.Rows()
	dst = binary.AppendUvarint(dst, uint64(rows))
	dst = binary.AppendUvarint(dst, uint64(b.Types()))
	for t := range b.Types() {
		dst = AppendCounted(dst, b.TypeCode(t))
	}
	dst = appendLengths(dst, b.CodeEnd)
	dst = append(dst, b.Codes...)
	for _, t := range b.Type {
		dst = binary.AppendUvarint(dst, uint64(t))
	}
	dst = appendIndexes(dst, b.Index)
	dst = appendIntervals(dst, b.From, b.To)
	dst = appendFloats(dst, b.Value)
	return appendQuality(dst, b.Quality)
}

func appendLengths(dst []byte, ends []uint32) []byte {
	start := uint32(0)
	for _, end := range ends {
		dst = binary.AppendUvarint(dst, uint64(end-start))
		start = end
	}
	return dst
}

func appendIndexes(dst []byte, index []uint32) []byte {
	next := uint32(0)
	for _, i := range index {
		dst = binary.AppendUvarint(dst, uint64(i-next))
		next = i + 1
	}
	return dst
}

func appendIntervals(dst []byte, from, to []int64) []byte {
	lastFrom, lastSpan := int64(0), int64(0)
	for i, f := range from {
		span := to[i] - f
		dst = binary.AppendVarint(dst, f-lastFrom)
		dst = binary.AppendVarint(dst, span-lastSpan)
		lastFrom, lastSpan = f, span
	}
	return dst
}

func appendFloats(dst []byte, values []float64) []byte {
	n := len(dst)
	dst = append(dst, make([]byte, 8*len(values))...)
	for i, v := range values {
		binary.LittleEndian.PutUint64(dst[n+8*i:], math.Float64bits(v))
	}
	return dst
}

func appendQuality(dst []byte, quality []float64) []byte {
	for _, q := range quality {
		if !math.IsNaN(q) {
			return appendFloats(append(dst, 1), quality)
		}
	}
	return append(dst, 0)
}

// DecodeFrame fills b, whose memory it reuses, and, if a is not nil, also a.
// Nothing in them points into frame. The error wraps ErrFrame.
func DecodeFrame(frame []byte, b *Batch, a *Answer) error {
	r := read(frame)
	b.Reset()
	r.Version(FrameVersion)
	b.ReceivedAt = int64(r.Uint64())
	copy(b.ID[:], r.Bytes(len(b.ID)))
	b.ProductInstance = string(r.Counted())
	r.answer(a)
	r.columns(b)
	return r.End()
}

// FrameReceivedAt is the received_at of a frame, 0 if it is too short.
func FrameReceivedAt(frame []byte) int64 {
	if len(frame) < stampAt+8 {
		return 0
	}
	return int64(binary.LittleEndian.Uint64(frame[stampAt:]))
}

// reader takes a frame apart.
type reader struct{ WireReader }

func read(frame []byte) reader { return reader{NewWireReader(frame, ErrFrame)} }

func (r *reader) answer(a *Answer) {
	var discard Answer
	if a == nil {
		a = &discard
	}
	a.Key, a.BodyHash, a.Items = string(r.Counted()), 0, 0
	a.Reset()
	if a.Key == "" {
		return
	}
	a.BodyHash = r.Uint64()
	a.Items = int(r.Uvarint())
	for n := r.Count(); n > 0 && r.Err() == nil; n-- {
		index := r.Uvarint()
		code, field := r.Byte(), r.Byte()
		a.Add(int(index), contract.Code(code), contract.Field(field), r.Counted())
	}
}

func (r *reader) columns(b *Batch) {
	rows := r.Count()
	types := r.Count()
	for range types {
		b.TypeText = append(b.TypeText, r.Counted()...)
		b.TypeEnd = append(b.TypeEnd, uint32(len(b.TypeText)))
	}
	r.codes(b, rows)
	for range rows {
		t := r.Uvarint()
		if t >= uint64(types) {
			r.Fail("unknown measure type")
			return
		}
		b.Type = append(b.Type, uint32(t))
	}
	next := uint64(0)
	for range rows {
		next += r.Uvarint()
		b.Index = append(b.Index, uint32(next))
		next++
	}
	r.intervals(b, rows)
	b.Value = r.floats(b.Value, rows)
	r.quality(b, rows)
}

func (r *reader) codes(b *Batch, rows int) {
	total := uint64(0)
	for range rows {
		if total += r.Uvarint(); total > uint64(r.Left()) {
			r.Fail("codes too long")
			return
		}
		b.CodeEnd = append(b.CodeEnd, uint32(total))
	}
	b.Codes = append(b.Codes, r.Bytes(int(total))...)
}

func (r *reader) intervals(b *Batch, rows int) {
	from, span := int64(0), int64(0)
	for range rows {
		from += r.Varint()
		span += r.Varint()
		b.From = append(b.From, from)
		b.To = append(b.To, from+span)
	}
}

func (r *reader) floats(dst []float64, rows int) []float64 {
	raw := r.Bytes(8 * rows)
	for ; len(raw) > 0; raw = raw[8:] {
		dst = append(dst, math.Float64frombits(binary.LittleEndian.Uint64(raw)))
	}
	return dst
}

func (r *reader) quality(b *Batch, rows int) {
	if r.Byte() == 1 {
		b.Quality = r.floats(b.Quality, rows)
		return
	}
	for range rows {
		b.Quality = append(b.Quality, math.NaN())
	}
}

// FrameKey gives a frame's product instance and Idempotency-Key, which is empty where the request had none.
func FrameKey(frame []byte) (productInstance, key string, err error) {
	r := read(frame)
	r.Bytes(headerSize)
	productInstance = string(r.Counted())
	key = string(r.Counted())
	return productInstance, key, r.Err()
}

// AnswerOf gives a frame's header and answer, followed by no rows, as a frame of its own in new memory.
// frame has to be one that AppendFrame made.
func AnswerOf(frame []byte) []byte {
	r := read(frame)
	r.Bytes(headerSize)
	r.Counted()
	r.answer(nil)
	end := len(frame) - r.Left()
	short := make([]byte, 0, end+len(noRows))
	return append(append(short, frame[:end]...), noRows...)
}

// FrameBodyHash is the hash of the decompressed body, 0 where the request had no Idempotency-Key.
func FrameBodyHash(frame []byte) uint64 {
	r := read(frame)
	r.Bytes(headerSize)
	r.Counted()
	if len(r.Counted()) == 0 {
		return 0
	}
	return r.Uint64()
}

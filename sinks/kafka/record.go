package kafka

import (
	"encoding/binary"
	"encoding/hex"
	"math"
	"strconv"

	"go.opentelemetry.io/otel/trace"

	"trafficd/pipeline/batch"
)

// Headers of each record (contract 4).
const (
	headerInstance = "product-instance"
	headerBatch    = "batch-id"
	headerIndex    = "index"
	headerTrace    = "traceparent" // only for batches of sampled requests

	idLen    = 36 // length of a batch ID as text
	traceLen = 55 // length of a traceparent
)

// Tags of the fields of message Measurement: number<<3 | wire type.
const (
	tagInstance = 1<<3 | 2
	tagDetector = 2<<3 | 2
	tagType     = 3<<3 | 2
	tagFrom     = 4<<3 | 2
	tagTo       = 5<<3 | 2
	tagValue    = 6<<3 | 1
	tagQuality  = 7<<3 | 1

	tagSeconds = 1 << 3
	tagNanos   = 2 << 3
)

// appendRecord appends row r of b to e.records as one record of a record batch v2: length,
// attributes, timestamp and offset relative to the batch's first record, key, value, headers.
func (e *encoder) appendRecord(b *batch.Batch, r int, timestampDelta, offsetDelta int64) {
	e.value = appendMeasurement(e.value[:0], b, r)
	body := append(e.body[:0], 0) // attributes: all unused
	body = binary.AppendVarint(body, timestampDelta)
	body = binary.AppendVarint(body, offsetDelta)
	body = appendBytes(body, b.Code(r))
	body = appendBytes(body, e.value)
	headers := int64(3)
	if b.Trace.IsSampled() {
		headers++
	}
	body = binary.AppendVarint(body, headers)
	body = appendBytes(body, headerInstance)
	body = appendBytes(body, b.ProductInstance)
	body = appendBytes(body, headerBatch)
	body = b.ID.Append(binary.AppendVarint(body, idLen))
	body = appendBytes(body, headerIndex)
	var index [10]byte
	body = appendBytes(body, strconv.AppendUint(index[:0], uint64(b.Index[r]), 10))
	if b.Trace.IsSampled() {
		body = appendBytes(body, headerTrace)
		body = appendTrace(binary.AppendVarint(body, traceLen), b.Trace)
	}
	e.body = body
	e.records = appendBytes(e.records, body)
}

// recordSize returns an estimate of the number of bytes that appendRecord appends. It is never too
// low, and usually a few bytes too high.
func recordSize(b *batch.Batch, r int) int {
	const fixed = 3 + 1 + 5 + 3 + 2 + 2 + // lengths, attributes and deltas
		1 + 3 + len(headerInstance) + len(headerBatch) + len(headerIndex) + 2 + 1 + idLen + 1 + 6 + // headers
		3*3 + 2*(2+6) + 9 // fields of the measurement: texts, timestamps of whole seconds, value
	size := fixed + 2*len(b.ProductInstance) + 2*len(b.Code(r)) + len(b.TypeCode(int(b.Type[r])))
	if b.From[r]%1e9 != 0 || b.To[r]%1e9 != 0 {
		size += 2 * 6
	}
	if b.HasQuality(r) {
		size += 9
	}
	if b.Trace.IsSampled() {
		size += 1 + len(headerTrace) + 1 + traceLen
	}
	return size
}

// appendMeasurement appends a Measurement of schemas/proto, encoded exactly as the generated code
// encodes it.
func appendMeasurement(dst []byte, b *batch.Batch, r int) []byte {
	dst = appendField(dst, tagInstance, b.ProductInstance)
	dst = appendField(dst, tagDetector, b.Code(r))
	dst = appendField(dst, tagType, b.TypeCode(int(b.Type[r])))
	dst = appendTimestamp(dst, tagFrom, b.From[r])
	dst = appendTimestamp(dst, tagTo, b.To[r])
	if bits := math.Float64bits(b.Value[r]); bits != 0 {
		dst = binary.LittleEndian.AppendUint64(append(dst, tagValue), bits)
	}
	if b.HasQuality(r) {
		dst = binary.LittleEndian.AppendUint64(append(dst, tagQuality), math.Float64bits(b.Quality[r]))
	}
	return dst
}

func appendField[T string | []byte](dst []byte, tag byte, text T) []byte {
	if len(text) == 0 {
		return dst
	}
	dst = binary.AppendUvarint(append(dst, tag), uint64(len(text)))
	return append(dst, text...)
}

// appendTimestamp appends nanoseconds since the Unix epoch as a google.protobuf.Timestamp. Its
// length always fits into one byte.
func appendTimestamp(dst []byte, tag byte, nanoseconds int64) []byte {
	seconds, nanos := split(nanoseconds)
	dst = append(dst, tag, 0) // the length is set below
	start := len(dst)
	if seconds != 0 {
		dst = binary.AppendUvarint(append(dst, tagSeconds), uint64(seconds))
	}
	if nanos != 0 {
		dst = binary.AppendUvarint(append(dst, tagNanos), uint64(nanos))
	}
	dst[start-1] = byte(len(dst) - start)
	return dst
}

// split returns whole seconds, rounded down, and the remaining 0 ≤ nanos < 1e9.
func split(nanoseconds int64) (seconds, nanos int64) {
	seconds, nanos = nanoseconds/1e9, nanoseconds%1e9
	if nanos < 0 {
		return seconds - 1, nanos + 1e9
	}
	return seconds, nanos
}

// appendBytes appends p, preceded by its length as a varint.
func appendBytes[T string | []byte](dst []byte, p T) []byte {
	return append(binary.AppendVarint(dst, int64(len(p))), p...)
}

// appendTrace appends a W3C traceparent: version 00, trace ID, span ID, flags 01 (sampled).
func appendTrace(dst []byte, c trace.SpanContext) []byte {
	id, span := c.TraceID(), c.SpanID()
	dst = append(hex.AppendEncode(append(dst, "00-"...), id[:]), '-')
	return append(hex.AppendEncode(dst, span[:]), "-01"...)
}

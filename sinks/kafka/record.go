package kafka

import (
	"encoding/binary"
	"encoding/hex"
	"math"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"

	"trafficd/pipeline/batch"
)

// Headers of each record (contract 4).
const (
	headerInstance = "product-instance"
	headerBatch    = "batch-id"
	headerIndex    = "index"

	idLen = 36 // of a batch id as text
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

// appendRecord appends row r of b as one record of a record batch v2: length, attributes, timestamp
// and offset relative to the batch's first record, key, value, headers. It allocates only to grow
// dst.
func appendRecord(dst []byte, b *batch.Batch, r int, timestampDelta, offsetDelta int64) []byte {
	code, value := b.Code(r), measurementSize(b, r)
	dst = binary.AppendVarint(dst, int64(bodySize(b, r, value, timestampDelta, offsetDelta)))
	dst = append(dst, 0) // attributes: Kafka defines none
	dst = binary.AppendVarint(dst, timestampDelta)
	dst = binary.AppendVarint(dst, offsetDelta)
	dst = binary.AppendVarint(dst, int64(len(code)))
	dst = append(dst, code...)
	dst = binary.AppendVarint(dst, int64(value))
	dst = appendMeasurement(dst, b, r)
	return appendHeaders(dst, b, r)
}

// recordSize is the length of what appendRecord appends.
func recordSize(b *batch.Batch, r int, timestampDelta, offsetDelta int64) int {
	body := bodySize(b, r, measurementSize(b, r), timestampDelta, offsetDelta)
	return varintSize(int64(body)) + body
}

func bodySize(b *batch.Batch, r, value int, timestampDelta, offsetDelta int64) int {
	return 1 + varintSize(timestampDelta) + varintSize(offsetDelta) +
		bytesSize(len(b.Code(r))) + bytesSize(value) + headersSize(b, r)
}

func appendHeaders(dst []byte, b *batch.Batch, r int) []byte {
	dst = binary.AppendVarint(dst, 3)
	dst = appendText(dst, headerInstance)
	dst = appendText(dst, b.ProductInstance)
	dst = appendText(dst, headerBatch)
	dst = appendID(binary.AppendVarint(dst, idLen), b.ID)
	dst = appendText(dst, headerIndex)
	dst = binary.AppendVarint(dst, int64(decimals(b.Index[r])))
	return strconv.AppendUint(dst, uint64(b.Index[r]), 10)
}

func headersSize(b *batch.Batch, r int) int {
	const names = 1 + 1 + len(headerInstance) + 1 + len(headerBatch) + 1 + len(headerIndex)
	return names + bytesSize(len(b.ProductInstance)) + bytesSize(idLen) + bytesSize(decimals(b.Index[r]))
}

// appendMeasurement appends message Measurement of schemas/proto, byte for byte as the generated
// code encodes it.
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

func measurementSize(b *batch.Batch, r int) int {
	size := fieldSize(len(b.ProductInstance)) + fieldSize(len(b.Code(r))) + fieldSize(len(b.TypeCode(int(b.Type[r]))))
	size += 2 + timestampSize(b.From[r]) + 2 + timestampSize(b.To[r])
	if math.Float64bits(b.Value[r]) != 0 {
		size += 9
	}
	if b.HasQuality(r) {
		size += 9
	}
	return size
}

func appendField[T string | []byte](dst []byte, tag byte, text T) []byte {
	if len(text) == 0 {
		return dst
	}
	dst = binary.AppendUvarint(append(dst, tag), uint64(len(text)))
	return append(dst, text...)
}

func fieldSize(n int) int {
	if n == 0 {
		return 0
	}
	return 1 + protowire.SizeBytes(n)
}

// appendTimestamp appends nanoseconds since 1970 as google.protobuf.Timestamp, which is always
// shorter than 128 bytes.
func appendTimestamp(dst []byte, tag byte, nanoseconds int64) []byte {
	seconds, nanos := split(nanoseconds)
	dst = append(dst, tag, byte(timestampSize(nanoseconds)))
	if seconds != 0 {
		dst = binary.AppendUvarint(append(dst, tagSeconds), uint64(seconds))
	}
	if nanos != 0 {
		dst = binary.AppendUvarint(append(dst, tagNanos), uint64(nanos))
	}
	return dst
}

func timestampSize(nanoseconds int64) int {
	seconds, nanos := split(nanoseconds)
	size := 0
	if seconds != 0 {
		size += 1 + protowire.SizeVarint(uint64(seconds))
	}
	if nanos != 0 {
		size += 1 + protowire.SizeVarint(uint64(nanos))
	}
	return size
}

// split returns whole seconds and 0 ≤ nanos < 1e9, also before 1970.
func split(nanoseconds int64) (seconds, nanos int64) {
	seconds, nanos = nanoseconds/1e9, nanoseconds%1e9
	if nanos < 0 {
		return seconds - 1, nanos + 1e9
	}
	return seconds, nanos
}

// appendText appends a string with its length, as in records.
func appendText(dst []byte, s string) []byte {
	return append(binary.AppendVarint(dst, int64(len(s))), s...)
}

// appendID appends the canonical text of a batch id, without a string.
func appendID(dst []byte, id batch.ID) []byte {
	dst = append(hex.AppendEncode(dst, id[0:4]), '-')
	dst = append(hex.AppendEncode(dst, id[4:6]), '-')
	dst = append(hex.AppendEncode(dst, id[6:8]), '-')
	dst = append(hex.AppendEncode(dst, id[8:10]), '-')
	return hex.AppendEncode(dst, id[10:16])
}

func bytesSize(n int) int { return varintSize(int64(n)) + n }

// varintSize is the length of binary.AppendVarint's output.
func varintSize(v int64) int { return protowire.SizeVarint(protowire.EncodeZigZag(v)) }

func decimals(v uint32) int {
	n := 1
	for ; v >= 10; v /= 10 {
		n++
	}
	return n
}

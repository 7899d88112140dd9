package kafka

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"sync"

	"github.com/klauspost/compress/s2"
	"github.com/pierrec/lz4/v4"
	"github.com/segmentio/kafka-go/compress"

	"trafficd/pipeline/batch"
)

// Positions in a record batch v2 (Kafka's DefaultRecordBatch), counted from the 4-byte length that
// precedes it on the wire.
const (
	frameLen     = 4                                      // the length on the wire
	batchStart   = frameLen                               // base offset, 8 bytes: the broker sets it
	lengthStart  = batchStart + 8                         // length of everything after it
	lengthEnd    = lengthStart + 4                        // leader epoch 4, magic 1
	crcStart     = lengthEnd + 4 + 1                      // CRC-32C of everything after it
	crcEnd       = crcStart + 4                           // attributes 2, last offset delta 4, timestamps 8 and 8,
	recordsStart = crcEnd + 2 + 4 + 8 + 8 + 8 + 2 + 4 + 4 // producer 8, epoch 2, sequence 4, count 4

	batchOverhead = recordsStart - batchStart
	magic         = 2
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// row is a position in a block: the index of the span, and the row in the span's batch.
type row struct{ span, row uint32 }

// producer is a producer ID with its epoch and its next sequence number in a partition.
type producer struct {
	id       int64
	epoch    int16
	sequence int32
}

// encoder encodes record batches into memory that it reuses.
type encoder struct {
	frame, records []byte
	body, value    []byte // buffers for one record
}

// encode returns a record batch of the given rows, at least one, preceded by its length, as
// RawProduce expects it. The bytes depend only on the arguments and are valid until the next call.
func (e *encoder) encode(p producer, codec compress.Compression, block batch.Block, rows []row) ([]byte, error) {
	first := milliseconds(block[rows[0].span].Batch)
	last := first // the latest timestamp
	e.records = e.records[:0]
	for i, at := range rows {
		b := block[at.span].Batch
		ms := milliseconds(b)
		last = max(last, ms)
		e.appendRecord(b, int(at.row), ms-first, int64(i))
	}
	f := append(e.frame[:0], make([]byte, lengthEnd)...) // base offset 0; the lengths are set below
	f = binary.BigEndian.AppendUint32(f, ^uint32(0))     // leader epoch: unknown to producers
	f = append(f, magic, 0, 0, 0, 0)                     // the CRC is set below
	f = binary.BigEndian.AppendUint16(f, uint16(codec))  // create time, not transactional, not a control batch
	f = binary.BigEndian.AppendUint32(f, uint32(len(rows)-1))
	f = binary.BigEndian.AppendUint64(f, uint64(first))
	f = binary.BigEndian.AppendUint64(f, uint64(last))
	f = binary.BigEndian.AppendUint64(f, uint64(p.id))
	f = binary.BigEndian.AppendUint16(f, uint16(p.epoch))
	f = binary.BigEndian.AppendUint32(f, uint32(p.sequence))
	e.frame = binary.BigEndian.AppendUint32(f, uint32(len(rows)))
	if err := e.compress(codec); err != nil {
		return nil, fmt.Errorf("cannot compress a record batch with %s: %w", codec, err)
	}
	f = e.frame
	binary.BigEndian.PutUint32(f, uint32(len(f)-frameLen))
	binary.BigEndian.PutUint32(f[lengthStart:], uint32(len(f)-lengthEnd))
	binary.BigEndian.PutUint32(f[crcStart:], crc32.Checksum(f[crcEnd:], castagnoli))
	return f, nil
}

// compress appends the compressed records to the frame: in lz4 blocks of 64 KiB, as the Java client
// does, or in one snappy block without framing, as franz-go and Sarama do. It uses kafka-go's
// writers for gzip and zstd only: they would need 1.6 times the CPU for lz4, with blocks of 4 MiB
// and an extra checksum, and 2.5 times for snappy.
func (e *encoder) compress(codec compress.Compression) error {
	switch codec {
	case compress.None:
		e.frame = append(e.frame, e.records...)
		return nil
	case compress.Snappy:
		n := len(e.frame)
		e.frame = slices.Grow(e.frame, s2.MaxEncodedLen(len(e.records)))
		e.frame = e.frame[:n+len(s2.EncodeSnappy(e.frame[n:cap(e.frame)], e.records))]
		return nil
	}
	var w io.WriteCloser
	if codec == compress.Lz4 {
		z := lz4Writers.Get().(*lz4.Writer)
		defer lz4Writers.Put(z)
		z.Reset(e)
		w = z
	} else {
		w = codec.Codec().NewWriter(e)
	}
	_, err := w.Write(e.records)
	return cmp.Or(err, w.Close())
}

var lz4Writers = sync.Pool{New: func() any {
	z := lz4.NewWriter(nil)
	if err := z.Apply(lz4.BlockSizeOption(lz4.Block64Kb), lz4.ChecksumOption(false)); err != nil {
		panic(err) // the options are valid
	}
	return z
}}

// Write implements io.Writer for the compressors.
func (e *encoder) Write(p []byte) (int, error) {
	e.frame = append(e.frame, p...)
	return len(p), nil
}

func milliseconds(b *batch.Batch) int64 {
	seconds, nanos := split(b.ReceivedAt)
	return seconds*1000 + nanos/1e6
}

// advance returns the sequence number after n more records; 2^31-1 is followed by 0.
func advance(sequence int32, n int) int32 {
	return int32((int64(sequence) + int64(n)) & 0x7fffffff)
}

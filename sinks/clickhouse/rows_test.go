package clickhouse

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"trafficd/pipeline/batch"
)

// row is one measurement.
type row struct {
	code, typ      string
	from, to       int64
	value, quality float64
}

var noQuality = math.NaN()

var epoch = time.Date(2026, 3, 14, 0, 0, 0, 0, time.UTC).UnixNano()

const minute = int64(time.Minute)

// batchOf returns accepted batch number n with these rows. Its indexes have gaps, as if items had
// been rejected. Its ID has the format of a UUIDv7.
func batchOf(n int, receivedAt int64, rows ...row) *batch.Batch {
	b := &batch.Batch{ProductInstance: "aarhus", ReceivedAt: receivedAt}
	binary.BigEndian.PutUint64(b.ID[:], uint64(receivedAt/1e6)<<16|0x7000)
	binary.BigEndian.PutUint64(b.ID[8:], 1<<63|uint64(n))
	types := map[string]uint32{}
	for i, r := range rows {
		b.Codes = append(b.Codes, r.code...)
		b.CodeEnd = append(b.CodeEnd, uint32(len(b.Codes)))
		t, known := types[r.typ]
		if !known {
			t = uint32(len(types))
			types[r.typ] = t
			b.TypeText = append(b.TypeText, r.typ...)
			b.TypeEnd = append(b.TypeEnd, uint32(len(b.TypeText)))
		}
		b.Type = append(b.Type, t)
		b.From, b.To = append(b.From, r.from), append(b.To, r.to)
		b.Value, b.Quality = append(b.Value, r.value), append(b.Quality, r.quality)
		b.Index = append(b.Index, uint32(i+i/7))
	}
	return b
}

// randomRows returns n rows with distinct keys, spread over the given number of months.
func randomRows(r *rand.Rand, n, months int) []row {
	rows := make([]row, n)
	for i := range rows {
		from := time.Unix(0, epoch).UTC().AddDate(0, -r.IntN(months), 0).UnixNano() + int64(i)*int64(time.Millisecond)
		rows[i] = row{
			code: fmt.Sprintf("D-%05d", r.IntN(14_000)), typ: [...]string{"speed", "count", "occupancy"}[r.IntN(3)],
			from: from, to: from + minute + r.Int64N(1000), value: r.NormFloat64() * 100, quality: noQuality,
		}
		if r.IntN(2) == 0 {
			rows[i].quality = r.Float64()
		}
	}
	return rows
}

// blockOf joins batches into one block.
func blockOf(batches ...*batch.Batch) batch.Block {
	var b batch.Block
	for i, one := range batches {
		b = append(b, batch.Span{Batch: one, Frame: uint64(i + 1), To: one.Rows()})
	}
	return b
}

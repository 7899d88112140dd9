package clickhouse

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/ClickHouse/ch-go/proto"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"trafficd/cmd/dev/devstores/stores"
	"trafficd/pipeline/batch"
)

// typicalBlock returns a block of seven full batches, as the delivery loop offers it.
func typicalBlock() batch.Block {
	r := rand.New(rand.NewPCG(11, 1))
	var batches []*batch.Batch
	for n := range 7 {
		batches = append(batches, batchOf(n, epoch+int64(n), randomRows(r, 14_000, 1)...))
	}
	return blockOf(batches...)
}

// renew assigns new unique IDs to the batches.
func renew(rows batch.Block, n int) {
	for _, s := range rows {
		binary.BigEndian.PutUint32(s.ID[10:], uint32(n))
	}
}

// testAllocations checks that the number of allocations of Deliver does not grow with the number of
// rows.
func testAllocations(t *testing.T, store *stores.ClickHouse) {
	a := newArchive(t, store)
	a.log = zerolog.Nop()
	f := func(all batch.Block) float64 {
		n := 0
		return testing.AllocsPerRun(5, func() {
			n++
			renew(all, n)
			rows, plan := a.plan(all)
			a.deliver(plan, rows)
		})
	}
	many := typicalBlock()
	allocsFew := f(many.Head(1000))
	renew(many, 1<<20)
	allocsMany := f(many)
	t.Logf("allocations of Plan and Deliver: %.0f for 1000 rows, %.0f for %d", allocsFew, allocsMany, many.Rows())
	require.Less(t, (allocsMany-allocsFew)/float64(many.Rows()), 0.01, "additional allocations per row")
}

func BenchmarkDeliver(b *testing.B) {
	store := stores.StartClickHouse(b)
	for _, compression := range []string{"lz4", "zstd", "none"} {
		b.Run(compression, func(b *testing.B) {
			a := newArchive(b, store, func(c *Config) { c.Compression = compression })
			a.log = zerolog.Nop()
			rows := typicalBlock()
			renew(rows, 1<<30)
			first, plan := a.plan(rows)
			a.deliver(plan, first)
			b.ReportAllocs()
			for n := 0; b.Loop(); n++ {
				renew(rows, n)
				rows, plan := a.plan(rows)
				a.deliver(plan, rows)
			}
			b.ReportMetric(float64(b.N*rows.Rows())/b.Elapsed().Seconds(), "rows/s")
		})
	}
}

// BenchmarkEncode measures the encoding of rows as columns.
func BenchmarkEncode(b *testing.B) {
	rows := typicalBlock()
	var buf proto.Buffer
	data := &insertion{rows: rows, checked: len(columns)}
	b.ReportAllocs()
	for b.Loop() {
		buf.Reset()
		for at := range columns {
			column{at, data}.EncodeColumn(&buf)
		}
	}
	b.ReportMetric(float64(b.N*rows.Rows())/b.Elapsed().Seconds(), "rows/s")
}

// BenchmarkHistory archives 400,000 hourly values in each operation: one day of all detectors, or
// ten years of one detector after the other.
func BenchmarkHistory(b *testing.B) {
	store := stores.StartClickHouse(b)
	const hours, rows = 10 * 8766, 400_000
	f := func(name string, at func(i int) (detector, hour int)) {
		b.Run(name, func(b *testing.B) {
			a := newArchive(b, store)
			a.log = zerolog.Nop()
			list := make([]row, rows)
			for i := range list {
				detector, hour := at(i)
				from := epoch - int64(hours-hour)*60*minute
				list[i] = row{fmt.Sprintf("D-%05d", detector), "count", from, from + 60*minute, float64(i % 1000), noQuality}
			}
			var batches []*batch.Batch
			for n := 0; n < rows; n += 12_500 {
				batches = append(batches, batchOf(n, epoch+int64(n), list[n:n+12_500]...))
			}
			all := blockOf(batches...)
			require.NoError(b, a.ready(b.Context()))
			for n := 0; b.Loop(); n++ {
				renew(all, n)
				for rest := all; len(rest) > 0; {
					rows, plan := a.plan(rest)
					a.deliver(plan, rows)
					rest = after(rest, rows.Rows())
				}
			}
			b.ReportMetric(float64(b.N*rows)/b.Elapsed().Seconds(), "rows/s")
		})
	}
	f("day", func(i int) (int, int) { return i / 24, i % 24 })
	f("decade", func(i int) (int, int) { return i / hours, i % hours })
}

// BenchmarkRejections archives blocks of which the server rejects some rows, with an error that
// names the row (a constraint) or that does not (the expression of a column), as the delivery loop
// does.
func BenchmarkRejections(b *testing.B) {
	store := stores.StartClickHouse(b)
	f := func(name, change string, batches, rows, every int) {
		b.Run(name, func(b *testing.B) {
			a := newArchive(b, store)
			a.log = zerolog.Nop()
			require.NoError(b, a.ready(b.Context()))
			store.Query(b, "ALTER TABLE "+a.name+" "+change)
			r := rand.New(rand.NewPCG(12, 1))
			var list []*batch.Batch
			for n := range batches {
				bad := batchOf(n, epoch+int64(n), randomRows(r, rows, 1)...)
				for i := range bad.Value {
					bad.Value[i] = 1
					if i%every == every-1 {
						bad.Value[i] = -1
					}
				}
				list = append(list, bad)
			}
			all := blockOf(list...)
			for n := 0; b.Loop(); n++ {
				renew(all, n)
				require.Equal(b, batches*(rows/every), deliverByHalving(a, all, nil))
			}
			b.ReportMetric(float64(b.N*batches*(rows/every))/b.Elapsed().Seconds(), "rejected/s")
		})
	}
	const constraint = "ADD CONSTRAINT positive CHECK value >= 0"
	const column = "ADD COLUMN checked UInt8 MATERIALIZED throwIf(value < 0)"
	f("constraint", constraint, 20, 14_000, 1000)
	f("column", column, 1, 14_000, 700)
	f("constraint on all", constraint, 1, 500, 1)
	f("column on all", column, 1, 500, 1)
}

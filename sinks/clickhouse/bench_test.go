package clickhouse

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	ch "github.com/ClickHouse/clickhouse-go/v2"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"trafficd/cmd/devstores/stores"
	"trafficd/pipeline/batch"
)

// typical makes a block as the deliver loop offers it: seven full batches.
func typical() batch.Block {
	r := rand.New(rand.NewPCG(11, 1))
	var batches []*batch.Batch
	for n := range 7 {
		batches = append(batches, batchOf(n, epoch+int64(n), random(r, 14_000, 1)...))
	}
	return blockOf(batches...)
}

// renew gives the batches ids that never were.
func renew(rows batch.Block, n int) {
	for _, s := range rows {
		binary.BigEndian.PutUint32(s.ID[10:], uint32(n))
	}
}

// testAllocations holds Deliver to a number of allocations that does not grow with the rows: what
// is left is the client's, for columns and statement.
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
	many := typical()
	few := f(many.Head(1000))
	renew(many, 1<<20)
	more := f(many)
	t.Logf("allocations of a Deliver: %.0f for 1000 rows, %.0f for %d", few, more, many.Rows())
	require.Less(t, (more-few)/float64(many.Rows()), 0.01, "per row")
}

func BenchmarkDeliver(b *testing.B) {
	store := stores.StartClickHouse(b)
	for _, compression := range []string{"lz4", "zstd", "none"} {
		b.Run(compression, func(b *testing.B) {
			a := newArchive(b, store, func(c *Config) { c.Compression = compression })
			a.log = zerolog.Nop()
			rows := typical()
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

// BenchmarkFill is the client's part of it: rows into columns.
func BenchmarkFill(b *testing.B) {
	store := stores.StartClickHouse(b)
	a := newArchive(b, store)
	require.NoError(b, a.migrate(b.Context()))
	rows := typical()
	b.ReportAllocs()
	for b.Loop() {
		p, err := a.conn.PrepareBatch(ch.Context(b.Context(), ch.WithSettings(a.settings("fill"))), a.statement)
		require.NoError(b, err)
		require.NoError(b, a.scratch.fill(p.Columns(), rows))
		require.NoError(b, p.Abort())
	}
	b.ReportMetric(float64(b.N*rows.Rows())/b.Elapsed().Seconds(), "rows/s")
}

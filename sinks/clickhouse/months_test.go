package clickhouse

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"trafficd/cmd/dev/devstores/stores"
	"trafficd/pipeline/batch"
)

// rotatingRows returns n rows that rotate through the given number of months, so that no two
// adjacent rows are from the same month. Different values of second result in distinct keys.
func rotatingRows(n, months, second int) []row {
	rows := make([]row, n)
	for i := range rows {
		from := time.Date(1970, time.Month(1+i%months), 1, 0, 0, second+i/months, 0, time.UTC).UnixNano()
		rows[i] = row{fmt.Sprintf("D-%d", i%977), "x", from, from, float64(i), noQuality}
	}
	return rows
}

// TestRotatingMonths checks that a client whose rows alternate between months does not multiply the
// number of parts, and that every row is inserted exactly once whatever happens between two INSERTs
// of a block.
func TestRotatingMonths(t *testing.T) {
	store := stores.StartClickHouse(t)
	t.Run("parts", func(t *testing.T) { testParts(t, store) })
	t.Run("cut between groups", func(t *testing.T) { testCutBetweenGroups(t, store) })
	t.Run("rejection in one group", func(t *testing.T) { testRejectionInOneGroup(t, store) })
}

func testParts(t *testing.T, store *stores.ClickHouse) {
	a := newArchive(t, store)
	all := blockOf(batchOf(1, epoch, rotatingRows(14_000, 680, 0)...), batchOf(2, epoch+1, rotatingRows(14_000, 680, 100)...), batchOf(3, epoch+2, rotatingRows(14_000, 680, 200)...))
	started := time.Now()
	for rest := all; len(rest) > 0; {
		rows, plan := a.plan(rest)
		a.deliver(plan, rows)
		rest = after(rest, rows.Rows())
	}
	t.Logf("%d rows over 680 months in %v", all.Rows(), time.Since(started))
	require.Equal(t, 42_000, a.count("count()"))
	store.Query(t, "SYSTEM FLUSH LOGS")
	_, table, _ := strings.Cut(a.name, ".")
	require.Equal(t, "1", store.Query(t, "SELECT count() <= 1500 FROM system.part_log WHERE event_type = 'NewPart' AND table = '"+table+"'"))
	require.Equal(t, "42000", store.Query(t, "SELECT count() FROM "+a.name+" FINAL"))
}

// testCutBetweenGroups cuts the connection after part of a block of six INSERTs, and continues with
// the same sink or with the sink of a restarted daemon.
func testCutBetweenGroups(t *testing.T, store *stores.ClickHouse) {
	p := startProxy(t, store.TCP)
	a := newArchive(t, store, func(c *Config) { c.Addresses, c.Compression = []string{p.address()}, "none" })
	require.NoError(t, a.ready(t.Context()))
	var all batch.Block
	interrupted := 0
	for n := range 6 {
		p.limit(1<<40, 1<<40)
		rows, plan := a.plan(blockOf(batchOf(n, epoch+int64(n), rotatingRows(520, 260, 10*n)...)))
		all = append(all, rows...)
		p.limit(int64(4000+4000*n), 1<<40)
		_, err := a.Deliver(context.Background(), plan, rows)
		p.limit(1<<40, 1<<40)
		if inserted := a.count("count()") - n*520; err != nil && inserted > 0 && inserted < 520 {
			interrupted++
		}
		if n%2 == 0 {
			a = a.restarted()
		}
		a.retry(plan, rows)
		require.Equal(t, (n+1)*520, a.count("count()"))
	}
	require.Positive(t, interrupted, "number of blocks interrupted between two INSERTs")
	a.requireRows(all)
}

// testRejectionInOneGroup checks that the halves of a block with a rejected row do not repeat the
// INSERTs that succeeded, even after a restart, and that only the invalid row is missing.
func testRejectionInOneGroup(t *testing.T, store *stores.ClickHouse) {
	for _, restart := range []bool{false, true} {
		a := newArchive(t, store)
		require.NoError(t, a.ready(t.Context()))
		store.Query(t, "ALTER TABLE "+a.name+" ADD CONSTRAINT positive CHECK value >= 0")
		rows := rotatingRows(400, 120, 0)
		rows[75].value = -1
		all := blockOf(batchOf(1, epoch, rows[:200]...), batchOf(2, epoch+1, rows[200:]...))
		block, plan := a.plan(all)
		state, err := a.Deliver(t.Context(), plan, block)
		require.ErrorAs(t, err, new(*batch.PermanentError))
		require.Positive(t, a.count("count()"), "other groups must have been inserted")
		if restart {
			a = a.restarted()
		}
		require.Equal(t, 1, deliverByHalving(a, all, state))
		require.Equal(t, 399, a.count("count()"))
		require.Equal(t, 399, a.count("uniqExact(batch_id, batch_index)"))
	}
}

package clickhouse

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	native "github.com/ClickHouse/ch-go"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"trafficd/cmd/dev/devstores/stores"
	"trafficd/pipeline/batch"
)

// testServerErrors tests errors that a real server returns.
func testServerErrors(t *testing.T, store *stores.ClickHouse) {
	t.Run("unusable table", func(t *testing.T) { testUnusableTable(t, store) })
	t.Run("dropped table", func(t *testing.T) { testDroppedTable(t, store) })
	t.Run("constraint", func(t *testing.T) { testConstraint(t, store) })
	t.Run("violations", func(t *testing.T) { testViolations(t, store) })
	t.Run("view", func(t *testing.T) { testView(t, store) })
	t.Run("too many parts", func(t *testing.T) { testTooManyParts(t, store) })
	t.Run("memory limit", func(t *testing.T) { testMemoryLimit(t, store) })
	t.Run("concurrent retries", func(t *testing.T) { testConcurrentRetries(t, store) })
	t.Run("migrate", func(t *testing.T) { testMigrate(t, store) })
}

// requireFailure checks that a delivery fails with a retriable error of the given class, and
// returns the error.
func (a *archive) requireFailure(want class, plan []byte, rows batch.Block) error {
	a.t.Helper()
	before := testutil.ToFloat64(errorsTotal.WithLabelValues(string(want)))
	_, err := a.Deliver(context.Background(), plan, rows)
	require.Error(a.t, err)
	require.Equal(a.t, want, classify(err), err)
	require.Equal(a.t, before+1, testutil.ToFloat64(errorsTotal.WithLabelValues(string(want))))
	require.False(a.t, errors.As(err, new(*batch.PermanentError)), err)
	return err
}

// smallBlock returns block number n, which has 100 rows.
func smallBlock(n int) batch.Block {
	return blockOf(batchOf(n, epoch+int64(n), randomRows(rand.New(rand.NewPCG(5, uint64(n))), 100, 1)...))
}

// testUnusableTable checks that a block is retried while the table is missing or has a column of
// the wrong type.
func testUnusableTable(t *testing.T, store *stores.ClickHouse) {
	a := newArchive(t, store)
	rows, plan := a.plan(smallBlock(1))
	a.deliver(plan, rows)
	next, plan2 := a.plan(smallBlock(2))
	store.Query(t, "ALTER TABLE "+a.name+" MODIFY COLUMN value Float32")
	for range 2 { // over an idle connection, then over a new one
		require.ErrorContains(t, a.requireFailure(classSchema, plan2, next), "value is Float32 in the table, must be Float64")
	}
	store.Query(t, "RENAME TABLE "+a.name+" TO "+a.name+"_away")
	a.requireFailure(classSchema, plan2, next)
	store.Query(t, "RENAME TABLE "+a.name+"_away TO "+a.name)
	store.Query(t, "ALTER TABLE "+a.name+" MODIFY COLUMN value Float64 CODEC(ZSTD(1))")
	before := lookups()
	a.deliver(plan2, next)
	require.Equal(t, before, lookups(), "no rows had been sent, so no lookup was needed")
	require.Equal(t, 200, a.count("count()"))
}

// testDroppedTable checks that a block waits while its table was dropped, even after a restart,
// until Migrate has created the table again, and is then inserted once.
func testDroppedTable(t *testing.T, store *stores.ClickHouse) {
	a := newArchive(t, store)
	rows, plan := a.plan(smallBlock(1))
	a.deliver(plan, rows)
	store.Query(t, "DROP TABLE "+a.name)
	for range 2 {
		require.ErrorContains(t, a.requireFailure(classSchema, plan, rows), "run trafficd migrate")
		a = a.restarted()
	}
	require.NoError(t, Migrate(t.Context(), a.config, a.log))
	a.deliver(plan, rows)
	a.deliver(plan, rows) // after a lost response
	require.Equal(t, 100, a.count("count()"))
}

// lookups returns the number of lookups of in-doubt blocks.
func lookups() float64 {
	return testutil.ToFloat64(foundAll) + testutil.ToFloat64(foundSome) + testutil.ToFloat64(foundNone)
}

// testConstraint checks that rows that violate a constraint are permanently rejected, but only if
// they are not in the table.
func testConstraint(t *testing.T, store *stores.ClickHouse) {
	a := newArchive(t, store)
	require.NoError(t, a.ready(context.Background()))
	store.Query(t, "ALTER TABLE "+a.name+" ADD CONSTRAINT positive CHECK value >= 0")
	all := blockOf(batchOf(1, epoch,
		row{"A", "x", epoch, epoch, 1, noQuality}, row{"A", "x", epoch + 31*24*60*minute, epoch + 31*24*60*minute, 2, noQuality}, row{"B", "x", epoch, epoch, -1, noQuality}))
	require.Equal(t, 1, deliverByHalving(a, all, nil))
	a.requireRows(all.Head(2))

	// The block was inserted, and one of its rows has been deleted since.
	store.Query(t, "ALTER TABLE "+a.name+" DROP CONSTRAINT positive")
	both, plan := a.plan(blockOf(batchOf(2, epoch+1, row{"A", "y", epoch, epoch, 1, noQuality}, row{"B", "y", epoch, epoch, -1, noQuality})))
	a.deliver(plan, both)
	store.Query(t, "ALTER TABLE "+a.name+" DELETE WHERE value < 0 SETTINGS mutations_sync = 2")
	store.Query(t, "ALTER TABLE "+a.name+" ADD CONSTRAINT positive CHECK value >= 0")
	a = a.restarted()
	state, err := a.Deliver(context.Background(), plan, both)
	require.ErrorAs(t, err, new(*batch.PermanentError))
	require.Equal(t, 1, deliverByHalving(a, both, state))
	require.Equal(t, 3, a.count("count()"))
}

// testViolations checks that a block with up to maxRefused rows that violate rules of the table
// needs no halving, whether or not the errors name the rows, and that every other row is in the
// table once.
func testViolations(t *testing.T, store *stores.ClickHouse) {
	const constraints = "ADD CONSTRAINT positive CHECK value >= 0, ADD CONSTRAINT plausible CHECK value < 1000"
	const column = "ADD COLUMN checked UInt8 MATERIALIZED throwIf(value < 0 OR value >= 1000, 'implausible')"
	f := func(rules string, months, every int, halved bool) {
		t.Helper()
		a := newArchive(t, store)
		require.NoError(t, a.ready(context.Background()))
		store.Query(t, "ALTER TABLE "+a.name+" "+rules)
		list := randomRows(rand.New(rand.NewPCG(8, 1)), 2000, months)
		var want batch.Block
		b := batchOf(1, epoch, list...)
		for i := range b.Value {
			switch b.Value[i] = float64(i % 500); {
			case i%(2*every) == every-1:
				b.Value[i] = -1
			case i%(2*every) == 2*every-1:
				b.Value[i] = 2000
			default:
				appendRow(&want, batch.Span{Batch: b, Frame: 1}, i)
			}
		}
		block := blockOf(b)
		_, plan := a.plan(block)
		_, err := a.Deliver(t.Context(), plan, block)
		var rejected *batch.PermanentError
		require.ErrorAs(t, err, &rejected)
		require.Equal(t, halved, rejected.Rejected == nil)
		if !halved {
			require.Len(t, rejected.Rejected, 2000/every)
			for _, r := range rejected.Rejected {
				row := r.Rows[0].From
				require.Equal(t, every-1, row%every)
				require.ErrorContains(t, r.Reason, "cannot insert the row into "+a.table)
				if rules == constraints {
					require.ErrorContains(t, r.Reason, fmt.Sprintf("value = %v", b.Value[row]))
				}
			}
		} else {
			a = a.restarted()
			require.Equal(t, 2000/every, deliverByHalving(a, block, nil))
		}
		a.requireRows(want)
	}
	f(constraints, 1, 250, false)
	f(constraints, 3, 1000, false)
	f(constraints, 30, 40, false)
	f(constraints, 1, 2000/maxRefused, false)
	f(constraints, 1, 1000/maxRefused, true)
	f(column, 1, 100, false)
	f(column, 30, 200, false)
}

// deliverByHalving delivers rows, starting from a state. It halves rejected blocks as the delivery
// loop does, and returns the number of rows that are rejected on their own.
func deliverByHalving(a *archive, rows batch.Block, state []byte) (rejected int) {
	a.t.Helper()
	for limit := rows.Rows(); len(rows) > 0; {
		n, plan, err := a.Plan(context.Background(), state, rows.Head(limit))
		require.NoError(a.t, err)
		next, err := a.Deliver(context.Background(), plan, rows.Head(n))
		if some, ok := errors.AsType[*batch.PermanentError](err); ok && some.Rejected != nil {
			rejected, err = rejected+len(some.Rejected), nil
		}
		if err == nil {
			state, rows = next, after(rows, n)
			limit = 2 * n
			continue
		}
		require.ErrorAs(a.t, err, new(*batch.PermanentError))
		require.NotEmpty(a.t, next)
		state, limit = next, max(n/2, 1)
		if n == 1 {
			rejected, rows = rejected+1, after(rows, 1)
		}
	}
	return rejected
}

// testView checks that if an operator's view fails, every row is either rejected or in the archive
// once.
func testView(t *testing.T, store *stores.ClickHouse) {
	a := newArchive(t, store)
	require.NoError(t, a.ready(context.Background()))
	store.Query(t, "CREATE MATERIALIZED VIEW "+a.name+"_view ENGINE = MergeTree ORDER BY x AS SELECT throwIf(value < 1e9) AS x FROM "+a.name)
	rows, _ := a.plan(smallBlock(1).Head(8))
	rejected := deliverByHalving(a, rows, nil)
	require.Equal(t, rows.Rows(), rejected+a.count("count()"), "each row is rejected or in the table")
	require.Equal(t, a.count("count()"), a.count("uniqExact(batch_index)"))
}

// testTooManyParts checks that blocks are retried while the server returns TOO_MANY_PARTS (252).
func testTooManyParts(t *testing.T, store *stores.ClickHouse) {
	a := newArchive(t, store)
	require.NoError(t, a.ready(context.Background()))
	store.Query(t, "ALTER TABLE "+a.name+" MODIFY SETTING parts_to_delay_insert = 2, parts_to_throw_insert = 3")
	store.Query(t, "SYSTEM STOP MERGES "+a.name)
	var all batch.Block
	for n := 1; n <= 4; n++ {
		rows, plan := a.plan(smallBlock(n))
		all = append(all, rows...)
		if n < 4 {
			a.deliver(plan, rows)
			continue
		}
		require.ErrorContains(t, a.requireFailure(classOverload, plan, rows), "252")
		a.requireFailure(classOverload, plan, rows)
		store.Query(t, "SYSTEM START MERGES "+a.name)
		store.Query(t, "OPTIMIZE TABLE "+a.name+" FINAL")
		a.deliver(plan, rows)
	}
	a.requireRows(all)
}

// testMemoryLimit checks that a block whose insert exceeds max_memory_usage is delivered once the
// limit is raised, without a restart.
func testMemoryLimit(t *testing.T, store *stores.ClickHouse) {
	a := newArchive(t, store)
	require.NoError(t, a.ready(context.Background()))
	h := a.hosts.all[0]
	connect, limit := h.connect, 1<<20
	h.connect = func(ctx context.Context) (*native.Client, error) {
		conn, err := connect(ctx)
		if err == nil {
			err = conn.Do(ctx, native.Query{Body: fmt.Sprint("SET max_memory_usage = ", limit)})
		}
		return conn, err
	}
	rows, plan := a.plan(smallBlock(1))
	for range 2 {
		require.ErrorContains(t, a.requireFailure(classMemory, plan, rows), "raise max_memory_usage")
	}
	limit = 0
	a.deliver(plan, rows)
	a.requireRows(rows)
}

// testConcurrentRetries checks that attempts that the server processes at the same time insert each
// row once.
func testConcurrentRetries(t *testing.T, store *stores.ClickHouse) {
	a := newArchive(t, store)
	require.NoError(t, a.ready(context.Background()))
	rows, plan := a.plan(blockOf(batchOf(1, epoch, randomRows(rand.New(rand.NewPCG(6, 1)), 2000, 20)...)))
	var wg sync.WaitGroup
	for range 6 {
		other := a.restarted()
		wg.Go(func() { other.deliver(plan, rows) })
	}
	wg.Wait()
	a.requireRows(rows)
}

// testMigrate checks that Migrate, which the migrate command calls, can run twice, and that a sink
// does not migrate if Config.Migrate is false.
func testMigrate(t *testing.T, store *stores.ClickHouse) {
	c := DefaultConfig()
	c.Addresses, c.Database = []string{store.TCP}, "fresh"
	for range 2 {
		require.NoError(t, Migrate(context.Background(), c, zerolog.Nop()))
	}
	require.Equal(t, "0", store.Query(t, "SELECT count() FROM fresh.measurements"))

	a := newArchive(t, store, func(c *Config) { c.Migrate = false })
	rows, plan := a.plan(smallBlock(1))
	a.requireFailure(classSchema, plan, rows)
}

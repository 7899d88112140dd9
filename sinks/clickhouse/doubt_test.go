package clickhouse

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	ch "github.com/ClickHouse/clickhouse-go/v2"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"trafficd/cmd/dev/devstores/stores"
	"trafficd/pipeline/batch"
)

// testDoubt delivers a block again after a restart, in every state in which the server's
// deduplication tokens and its rows can disagree.
func testDoubt(t *testing.T, store *stores.ClickHouse) {
	rows := blockOf(
		batchOf(1, epoch, randomRows(rand.New(rand.NewPCG(4, 1)), 700, 5)...),
		batchOf(2, epoch+5, randomRows(rand.New(rand.NewPCG(4, 2)), 300, 5)...))

	f := func(name string, change func(t *testing.T, a *archive)) {
		t.Run(name, func(t *testing.T) {
			a := newArchive(t, store)
			_, plan := a.plan(rows)
			a.deliver(plan, rows)
			change(t, a)
			a.restarted().deliver(plan, rows)
			a.requireRows(rows)
		})
	}
	forgetTokens := func(t *testing.T, a *archive) {
		store.Query(t, "ALTER TABLE "+a.name+" MODIFY SETTING non_replicated_deduplication_window = 0")
	}
	deleteWhere := func(where string) func(t *testing.T, a *archive) {
		return func(t *testing.T, a *archive) {
			store.Query(t, "ALTER TABLE "+a.name+" DELETE WHERE "+where+" SETTINGS mutations_sync = 2")
			require.Less(t, a.count("count()"), 1000)
		}
	}
	f("unchanged", func(*testing.T, *archive) {})
	f("token forgotten, rows present", forgetTokens)
	f("token kept, rows missing", deleteWhere("1"))
	f("token kept, one month missing", deleteWhere("toYYYYMM(timestamp_from) = 202602"))
	f("token kept, some rows missing", deleteWhere("batch_index % 3 = 0"))
	f("token forgotten, one month missing", func(t *testing.T, a *archive) {
		deleteWhere("toYYYYMM(timestamp_from) = 202602")(t, a)
		forgetTokens(t, a)
	})
	f("partition dropped", func(t *testing.T, a *archive) {
		store.Query(t, "ALTER TABLE "+a.name+" DROP PARTITION 202601")
	})

	// Another daemon has accepted and delivered the first batch too, with the same Idempotency-Key.
	t.Run("batch of two daemons", func(t *testing.T) {
		a := newArchive(t, store)
		twice, plan := a.plan(blockOf(batchOf(1, epoch+3, randomRows(rand.New(rand.NewPCG(4, 1)), 700, 5)...)))
		require.Equal(t, rows[0].ID, twice[0].ID)
		a.deliver(plan, twice)
		_, plan = a.plan(rows)
		a.restarted().deliver(plan, rows)
		a.requireRows(batch.Block{rows[0], twice[0], rows[1]})
	})

	// The rows that each delivery restores are deleted again until all tokens have been used. Then
	// the sink rejects the rows, because the table itself seems to delete them.
	t.Run("tokens kept, rows always missing", func(t *testing.T) {
		a := newArchive(t, store)
		rows, plan := a.plan(smallBlock(1))
		a.deliver(plan, rows)
		for range maxRounds - 1 {
			store.Query(t, "ALTER TABLE "+a.name+" DELETE WHERE 1 SETTINGS mutations_sync = 2")
			a.restarted().deliver(plan, rows)
			a.requireRows(rows)
		}
		store.Query(t, "ALTER TABLE "+a.name+" DELETE WHERE 1 SETTINGS mutations_sync = 2")
		a.restarted().requireVanished(plan, rows, rows)
		require.Zero(t, a.count("count()"))
	})

	hide := func(t *testing.T, database string) (*archive, batch.Block, []byte) {
		a := newArchive(t, store, func(c *Config) { c.Database, c.Table = database, "measurements" })
		rows, plan := a.plan(blockOf(batchOf(1, epoch, row{"A", "x", epoch, epoch, 1, noQuality},
			row{"B", "x", epoch, epoch, -1, noQuality}, row{"C", "x", epoch, epoch, 2, noQuality})))
		a.deliver(plan, rows)
		a.config.Username, a.config.Password = "trafficd", "trafficd"
		return a, rows, plan
	}
	t.Run("row policy hides some rows", func(t *testing.T) {
		a, rows, plan := hide(t, "partly")
		a.restarted().requireVanished(plan, rows, batch.Block{{Batch: rows[0].Batch, Frame: 1, From: 1, To: 2}})
		require.Equal(t, "3", store.Query(t, "SELECT count() FROM "+a.name+" FINAL"))
	})
	t.Run("row policy hides all rows", func(t *testing.T) {
		a, rows, plan := hide(t, "hidden")
		before := a.count("count()")
		require.ErrorContains(t, a.restarted().requireFailure(classOther, plan, rows), "CREATE ROW POLICY trafficd ON `hidden`.*")
		require.Equal(t, before, a.count("count()"))
	})

	expired := func(t *testing.T, change ...func(*Config)) (*archive, batch.Block, []byte) {
		a := newArchive(t, store, change...)
		old := time.Now().AddDate(0, -3, 0).UnixNano()
		rows, plan := a.plan(blockOf(batchOf(1, epoch, row{"A", "x", old, old, 1, noQuality})))
		require.NoError(t, a.ready(t.Context()))
		if a.config.RetentionDays == 0 {
			store.Query(t, "ALTER TABLE "+a.name+" MODIFY TTL toDateTime(timestamp_from) + INTERVAL 30 DAY")
		}
		for range maxRounds + 1 { // until all tokens have been used: a lookup may find a row before the server drops its part
			_, err := a.restarted().Deliver(t.Context(), plan, rows)
			require.True(t, err == nil || errors.Is(err, errVanished), err)
			store.Query(t, "OPTIMIZE TABLE "+a.name+" FINAL")
			require.Zero(t, a.count("count()"))
		}
		return a, rows, plan
	}
	t.Run("older than retention_days", func(t *testing.T) {
		a, rows, plan := expired(t, func(c *Config) { c.RetentionDays = 30 })
		a.restarted().deliver(plan, rows)
	})
	t.Run("an operator's TTL", func(t *testing.T) {
		a, rows, plan := expired(t)
		a.restarted().requireVanished(plan, rows, rows)
	})
}

// requireVanished checks that a delivery rejects exactly the wanted rows, because the server
// deletes or hides them.
func (a *archive) requireVanished(plan []byte, rows, want batch.Block) {
	a.t.Helper()
	before := testutil.ToFloat64(rowsVanished)
	_, err := a.Deliver(context.Background(), plan, rows)
	var rejected *batch.PermanentError
	require.ErrorAs(a.t, err, &rejected)
	require.Equal(a.t, []batch.RejectedRows{{Rows: want, Reason: errVanished}}, rejected.Rejected)
	require.EqualValues(a.t, want.Rows(), testutil.ToFloat64(rowsVanished)-before)
}

// testHostileProfile checks that lookups and updates of the derived tables read all rows, or fail,
// even if the settings profile of the daemon's user hides some of them.
func testHostileProfile(t *testing.T, store *stores.ClickHouse) {
	a := newArchive(t, store)
	list := monthlyRows(40) // in 40 parts
	for i := range list {
		list[i].code = fmt.Sprint("D-", i)
	}
	rows, plan := a.plan(blockOf(batchOf(1, epoch, list...)))
	a.deliver(plan, rows)
	f := func(profile ch.Settings) {
		t.Helper()
		hostile := a.restarted()
		server := hostile.hosts.all[0]
		require.NoError(t, server.conn.Close())
		var err error
		server.conn, err = ch.Open(&ch.Options{Addr: []string{store.TCP}, Settings: profile})
		require.NoError(t, err)
		if _, err = hostile.Deliver(t.Context(), plan, rows); err != nil {
			require.ErrorContains(t, err, "cannot look up")
		}
		a.requireRows(rows)
		for _, table := range []string{"_by_time", "_hours", "_last"} {
			store.Query(t, "TRUNCATE TABLE "+a.name+table)
		}
		store.Query(t, "INSERT INTO "+a.name+"_blocks (first_received_at, last_received_at, months) SELECT first_received_at, last_received_at, months FROM "+a.name+"_blocks")
		if err = hostile.Derive(t.Context()); err == nil {
			a.requireDerived()
		}
	}
	f(ch.Settings{"limit": 1})
	f(ch.Settings{"offset": 1})
	f(ch.Settings{"max_rows_to_read": 1, "read_overflow_mode": "break"})
	f(ch.Settings{"max_rows_to_group_by": 1, "group_by_overflow_mode": "any"})
	f(ch.Settings{"max_rows_in_set": 1, "set_overflow_mode": "break"})
	f(ch.Settings{"max_rows_in_distinct": 1, "distinct_overflow_mode": "break"})
	f(ch.Settings{"additional_table_filters": fmt.Sprintf("{'%s': 'value > 1e9'}", a.name)})
	f(ch.Settings{"additional_result_filter": "0"})
	f(ch.Settings{"deduplicate_insert_select": "enable_even_for_bad_queries", "deduplicate_insert": "enable"})
	f(ch.Settings{"max_result_rows": 1, "result_overflow_mode": "break", "max_block_size": 1})
}

// testLookup checks that a lookup reads only the parts and granules that contain the block's months
// and time range.
func testLookup(t *testing.T, store *stores.ClickHouse) {
	a := newArchive(t, store)
	var wanted batch.Block
	for n := range 10 { // one detector, consecutive rows
		rows := make([]row, 9000)
		for i := range rows {
			rows[i] = row{"D", "x", epoch + int64(n*9000+i)*int64(time.Second), epoch + int64(n*9000+i)*int64(time.Second), 1, noQuality}
		}
		block, plan := a.plan(blockOf(batchOf(n, epoch+int64(n)*minute, rows...)))
		a.deliver(plan, block)
		if n == 4 {
			wanted = block
		}
	}
	old, plan := a.plan(blockOf(batchOf(11, epoch, monthlyRows(40)...)))
	a.deliver(plan, old)
	store.Query(t, "OPTIMIZE TABLE "+a.name+" FINAL")
	explained := store.Query(t, "EXPLAIN indexes = 1 "+lookupStatement(a.table, wanted)+" FORMAT TSVRaw")
	require.Regexp(t, `(?s)Parts: 1/40.*received_at_range.*Granules: [123]/12`, explained)
	missing, err := a.missingRows(t.Context(), wanted)
	require.NoError(t, err)
	require.Empty(t, missing)
}

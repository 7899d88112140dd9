package clickhouse

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"trafficd/cmd/dev/devstores/stores"
	"trafficd/pipeline/batch"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var lastTable atomic.Int32 // number in the name of the last table

// archive is a sink with its own table.
type archive struct {
	*Sink
	t     testing.TB
	store querier
	name  string
}

// querier runs a query and returns its rows as lines.
type querier interface {
	Query(t testing.TB, sql string) string
}

func newArchive(t testing.TB, store *stores.ClickHouse, change ...func(*Config)) *archive {
	c := DefaultConfig()
	c.DeriveInterval = 0 // tests call Derive
	if store != nil {
		c.Addresses = []string{store.TCP}
	}
	c.Table = fmt.Sprintf("m%d", lastTable.Add(1))
	for _, f := range change {
		f(&c)
	}
	require.NoError(t, c.Validate())
	s, err := New(c, zerolog.New(zerolog.NewTestWriter(t)))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return &archive{Sink: s, t: t, store: store, name: c.Database + "." + c.Table}
}

// restarted returns the sink of a restarted daemon.
func (a *archive) restarted() *archive {
	s, err := New(a.config, a.log)
	require.NoError(a.t, err)
	a.t.Cleanup(func() { require.NoError(a.t, s.Close()) })
	return &archive{Sink: s, t: a.t, store: a.store, name: a.name}
}

// plan returns the first block of rows and its plan.
func (a *archive) plan(rows batch.Block) (batch.Block, []byte) {
	a.t.Helper()
	n, plan, err := a.Plan(context.Background(), nil, rows)
	require.NoError(a.t, err)
	return rows.Head(n), plan
}

func (a *archive) deliver(plan []byte, rows batch.Block) {
	a.t.Helper()
	_, err := a.Deliver(context.Background(), plan, rows)
	require.NoError(a.t, err)
}

// count returns the value of a numeric expression over all rows of the table.
func (a *archive) count(expression string) int {
	a.t.Helper()
	n, err := strconv.Atoi(a.store.Query(a.t, "SELECT "+expression+" FROM "+a.name))
	require.NoError(a.t, err)
	return n
}

// requireRows compares the rows in the archive with those that were sent, column by column and to
// the nanosecond, as formatted by the server.
func (a *archive) requireRows(want batch.Block) {
	a.t.Helper()
	got := a.store.Query(a.t, "SELECT product_instance, detector_code, measure_type_code, toUnixTimestamp64Nano(timestamp_from), toUnixTimestamp64Nano(timestamp_to),"+
		" reinterpretAsUInt64(value), isNull(quality) ? '-' : toString(reinterpretAsUInt64(assumeNotNull(quality))), batch_id, batch_index, toUnixTimestamp64Nano(received_at) FROM "+a.name+" ORDER BY received_at, batch_id, batch_index FORMAT TSVRaw")
	var lines []string
	for _, s := range want {
		for row := s.From; row < s.To; row++ {
			quality := "-"
			if s.HasQuality(row) {
				quality = strconv.FormatUint(math.Float64bits(s.Quality[row]), 10)
			}
			lines = append(lines, fmt.Sprintf("%s\t%s\t%s\t%d\t%d\t%d\t%s\t%s\t%d\t%d", s.ProductInstance, s.Code(row), s.TypeCode(int(s.Type[row])),
				s.Batch.From[row], s.Batch.To[row], math.Float64bits(s.Value[row]), quality, s.ID, s.Index[row], s.ReceivedAt))
		}
	}
	require.Equal(a.t, strings.Join(lines, "\n"), got)
}

func TestArchive(t *testing.T) {
	store := stores.StartClickHouse(t)
	t.Run("values", func(t *testing.T) { testValues(t, store) })
	t.Run("once", func(t *testing.T) { testOnce(t, store) })
	t.Run("spans", func(t *testing.T) { testSpans(t, store) })
	t.Run("one block", func(t *testing.T) { testOneBlock(t, store) })
	t.Run("time limit", func(t *testing.T) { testTimeLimit(t, store) })
	t.Run("check", func(t *testing.T) { testCheckChangesNothing(t, store) })
	t.Run("check while migrating", func(t *testing.T) { testCheckWhileMigrating(t, store) })
	t.Run("grants", func(t *testing.T) { testGrants(t, store) })
	t.Run("row policy", func(t *testing.T) { testRowPolicy(t, store) })
	t.Run("final", func(t *testing.T) { testFinal(t, store) })
	t.Run("allocations", func(t *testing.T) { testAllocations(t, store) })
	t.Run("codes", func(t *testing.T) { testCodes(t, store) })
	t.Run("tls", func(t *testing.T) { testTLS(t, store) })
	t.Run("doubt", func(t *testing.T) { testDoubt(t, store) })
	t.Run("lookup", func(t *testing.T) { testLookup(t, store) })
	t.Run("hostile profile", func(t *testing.T) { testHostileProfile(t, store) })
	t.Run("deduplication disabled", func(t *testing.T) { testDeduplicationDisabled(t, store) })
	t.Run("server errors", func(t *testing.T) { testServerErrors(t, store) })
}

func testValues(t *testing.T, store *stores.ClickHouse) {
	a := newArchive(t, store)
	rows, plan := a.plan(blockOf(batchOf(1, epoch+123_456_789,
		row{"D-1", "speed", epoch + 1, epoch + 999_999_999, 88.5, 0.25},
		row{"D-1", "speed", epoch + 2, epoch + 2, -88.5, noQuality},
		row{"Ørsteds Vej – 日本 \t\n\\ '\"", "x", 0, 0, 0, 0},
		row{"a", "x", 1, math.MaxInt64 / 1_000_000_000 * 1_000_000_000 * 99 / 100, math.Copysign(0, -1), -1},
		row{"b", "x", epoch, epoch, math.MaxFloat64, math.MaxFloat64},
		row{"c", "x", epoch, epoch, -math.SmallestNonzeroFloat64, noQuality},
	)))
	a.deliver(plan, rows)
	// The text contains a tab and a newline, so its bytes are compared.
	require.Equal(t, fmt.Sprintf("%X", "Ørsteds Vej – 日本 \t\n\\ '\""), store.Query(t, "SELECT hex(detector_code) FROM "+a.name+" WHERE length(detector_code) > 3"))
	a.requireRows(rows)
}

func testOnce(t *testing.T, store *stores.ClickHouse) {
	a := newArchive(t, store)
	rows, plan := a.plan(blockOf(batchOf(1, epoch, randomRows(rand.New(rand.NewPCG(1, 1)), 5000, 6)...)))
	for range 5 {
		a.deliver(plan, rows)
	}
	b := a.restarted()
	b.config.BlockRows = 10 // settings may change at a restart; a planned block does not
	b.deliver(plan, rows)
	a.requireRows(rows)
	next, plan2 := a.plan(blockOf(batchOf(2, epoch+1, randomRows(rand.New(rand.NewPCG(1, 2)), 3, 1)...)))
	a.deliver(plan2, next)
	require.Equal(t, 5003, a.count("count()"))
	_, err := a.Deliver(context.Background(), plan, next)
	require.ErrorContains(t, err, "do not match plan")
	_, err = a.Deliver(context.Background(), plan, nil)
	require.ErrorContains(t, err, "do not match plan")

	// The same batch, accepted again after the idempotency window: it has the same ID, and its rows
	// are in the table, but it is another block.
	repeated := *next[0].Batch
	repeated.ReceivedAt += 3600e9
	again, plan3 := a.plan(blockOf(&repeated))
	a.restarted().deliver(plan3, again)
	require.Equal(t, 3, a.count("countIf(received_at = fromUnixTimestamp64Nano("+strconv.FormatInt(repeated.ReceivedAt, 10)+", 'UTC'))"))
}

// testSpans delivers many small batches in blocks that end within a batch.
func testSpans(t *testing.T, store *stores.ClickHouse) {
	a := newArchive(t, store, func(c *Config) { c.BlockRows = 97 })
	r := rand.New(rand.NewPCG(2, 1))
	var batches []*batch.Batch
	for n := range 200 {
		batches = append(batches, batchOf(n, epoch+int64(n), randomRows(r, 1+r.IntN(9), 3)...))
	}
	all := blockOf(batches...)
	for rest := all; len(rest) > 0; {
		head, plan := a.plan(rest)
		require.LessOrEqual(t, head.Rows(), 97)
		a.deliver(plan, head)
		rest = after(rest, head.Rows())
	}
	a.requireRows(all)
}

// after returns the block without its first n rows.
func after(b batch.Block, n int) batch.Block {
	for len(b) > 0 && n >= b[0].To-b[0].From {
		n -= b[0].To - b[0].From
		b = b[1:]
	}
	if len(b) == 0 {
		return nil
	}
	rest := append(batch.Block(nil), b...)
	rest[0].From += n
	return rest
}

// testOneBlock checks that the server writes one part per month even for the largest block, so that
// the deduplication token covers the whole block.
func testOneBlock(t *testing.T, store *stores.ClickHouse) {
	const most = 200_000 // twice the default
	a := newArchive(t, store, func(c *Config) { c.BlockRows = most })
	rows, plan := a.plan(blockOf(batchOf(1, epoch, randomRows(rand.New(rand.NewPCG(3, 1)), most, 2)...)))
	a.deliver(plan, rows)
	store.Query(t, "SYSTEM FLUSH LOGS")
	table := strings.Split(a.name, ".")[1]
	require.Equal(t, "2\t200000", store.Query(t, "SELECT count(), sum(rows) FROM system.part_log WHERE event_type = 'NewPart' AND table = '"+table+"'"))
}

// testTimeLimit checks that the server stops an INSERT soon after the daemon has given up on it.
func testTimeLimit(t *testing.T, store *stores.ClickHouse) {
	a := newArchive(t, store, func(c *Config) { c.WriteTimeout = 7 * time.Second })
	require.NoError(t, a.ready(t.Context()))
	store.Query(t, "ALTER TABLE "+a.name+" ADD COLUMN timeout String DEFAULT concat(toString(getSetting('max_execution_time')), ' ', getSetting('timeout_overflow_mode'))")
	rows, plan := a.plan(smallBlock(1))
	a.deliver(plan, rows)
	require.Equal(t, "12 throw", store.Query(t, "SELECT DISTINCT timeout FROM "+a.name))
}

// testCheckChangesNothing checks that Check does not update the derived tables.
func testCheckChangesNothing(t *testing.T, store *stores.ClickHouse) {
	a := newArchive(t, store)
	rows, plan := a.plan(smallBlock(1))
	a.deliver(plan, rows)
	config := a.config
	config.DeriveInterval = time.Millisecond
	for range 20 {
		_, err := config.checkServer(t.Context(), store.TCP)
		require.NoError(t, err)
	}
	require.Equal(t, "1", store.Query(t, "SELECT count() FROM "+a.name+"_blocks FINAL WHERE derived = 0"))
}

// testCheckWhileMigrating checks that Check does not report tables that are being migrated.
func testCheckWhileMigrating(t *testing.T, store *stores.ClickHouse) {
	a := newArchive(t, store)
	require.NoError(t, a.Probe(t.Context()))
	store.Query(t, "ALTER TABLE "+a.name+" MODIFY SETTING fsync_after_insert = 0")
	store.Query(t, "DROP VIEW "+a.name+"_latest")
	require.ErrorContains(t, a.config.Check(t.Context(), true), "do not exist any more")
	store.Query(t, "ALTER TABLE trafficd.schema_migrations DELETE WHERE table_name = '"+a.config.Table+"' AND version >= 2 SETTINGS mutations_sync = 1")
	require.NoError(t, a.config.Check(t.Context(), true))
	require.NoError(t, Migrate(t.Context(), a.config, a.log))
	require.ErrorContains(t, a.config.Check(t.Context(), true), "fsync_after_insert")
}

// testGrants checks that the grants that Check requires are enough to migrate, to insert, to find
// rejected rows and to update the derived tables, and that a user without the grant of an engine
// lacks one.
func testGrants(t *testing.T, store *stores.ClickHouse) {
	a := newArchive(t, store, func(c *Config) { c.Username, c.Password = "archiver", "archiver" })
	require.NoError(t, a.ready(t.Context()))
	require.NoError(t, a.config.Check(t.Context(), true))
	store.Query(t, "ALTER TABLE "+a.name+" ADD CONSTRAINT positive CHECK value >= 0")
	rows, plan := a.plan(blockOf(batchOf(1, epoch, row{"A", "x", epoch, epoch, 1, noQuality}, row{"B", "x", epoch, epoch, -1, noQuality})))
	_, err := a.Deliver(t.Context(), plan, rows)
	var rejected *batch.PermanentError
	require.ErrorAs(t, err, &rejected)
	require.Len(t, rejected.Rejected, 1)
	require.NoError(t, a.Derive(t.Context()))
	a.requireRows(rows.Head(1))
	c := a.config
	c.Username, c.Password = "reader", "reader"
	require.ErrorContains(t, c.Check(t.Context(), true), "GRANT TABLE ENGINE ON * TO reader")
}

// testRowPolicy checks that Check reports a row policy that hides all rows from the user, but not
// one that hides the rows of other users.
func testRowPolicy(t *testing.T, store *stores.ClickHouse) {
	a := newArchive(t, store, func(c *Config) { c.Database, c.Table = "hidden", "measurements" })
	subject := a.config
	subject.Username, subject.Password = "trafficd", "trafficd"
	require.NoError(t, a.Probe(t.Context()))
	require.NoError(t, subject.Check(t.Context(), true), "the table is empty")
	rows, plan := a.plan(smallBlock(1))
	a.deliver(plan, rows)
	require.NoError(t, a.config.Check(t.Context(), true))
	require.ErrorContains(t, subject.Check(t.Context(), true), "CREATE ROW POLICY trafficd ON `hidden`.* USING 1 TO trafficd")
}

// testFinal checks that a measurement that is sent again replaces the earlier one, and that the
// last of several measurements with the same key in a batch replaces the others.
func testFinal(t *testing.T, store *stores.ClickHouse) {
	a := newArchive(t, store)
	first, plan := a.plan(blockOf(batchOf(1, epoch, row{"D", "x", epoch, epoch, 1, noQuality}, row{"E", "x", epoch, epoch, 10, noQuality}, row{"E", "x", epoch, epoch, 11, noQuality})))
	a.deliver(plan, first)
	second, plan2 := a.plan(blockOf(batchOf(2, epoch+1, row{"D", "x", epoch, epoch, 2, noQuality})))
	a.deliver(plan2, second)
	a.restarted().deliver(plan, first) // late retry of the older batch
	require.Equal(t, 4, a.count("count()"))
	require.Equal(t, "D\t2\nE\t11", store.Query(t, "SELECT detector_code, value FROM "+a.name+" FINAL ORDER BY 1"))
	store.Query(t, "OPTIMIZE TABLE "+a.name+" FINAL")
	require.Equal(t, 2, a.count("count()"))
	// A row that a merge has replaced must not replace its replacement.
	a.restarted().deliver(plan2, second)
	a.restarted().deliver(plan, first)
	require.Equal(t, "D\t2\nE\t11", store.Query(t, "SELECT detector_code, value FROM "+a.name+" FINAL ORDER BY 1"))
}

// testCodes checks that the table of error codes has the server's names, and each code only once.
func testCodes(t *testing.T, store *stores.ClickHouse) {
	listed := map[int32]bool{}
	for _, names := range codes {
		for number, name := range names {
			require.Equal(t, name, store.Query(t, fmt.Sprintf("SELECT errorCodeToName(%d)", number)))
			require.False(t, listed[number], number)
			listed[number] = true
		}
	}
}

func withTimeout(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

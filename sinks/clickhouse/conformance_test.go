package clickhouse

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ClickHouse/ch-go/proto"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"trafficd/cmd/dev/devstores/stores"
	"trafficd/pipeline"
	"trafficd/pipeline/batch"
	"trafficd/pipeline/sinktest"
)

// TestConformance runs the test that every sink passes, on the fake server and on a real one.
func TestConformance(t *testing.T) {
	t.Run("fake", func(t *testing.T) {
		sinktest.Run(t, func(t *testing.T) sinktest.Store {
			f := startFake(t)
			s := conformanceStore(t, f.address, func(c *Config) { c.Addresses, c.Migrate = []string{f.address}, false })
			s.Read = func(testing.TB) []sinktest.Row { return f.Measurements() }
			s.Reject = func(_ testing.TB, detector string) {
				f.RefuseIf(func(_ string, rows []sinktest.Row) *proto.Exception {
					if slices.ContainsFunc(rows, func(r sinktest.Row) bool { return r.Detector == detector }) {
						return &proto.Exception{Code: proto.ErrViolatedConstraint, Name: "VIOLATED_CONSTRAINT", Message: "no such detector"}
					}
					return nil
				})
			}
			return s
		})
	})
	t.Run("server", func(t *testing.T) {
		server := stores.StartClickHouse(t)
		sinktest.Run(t, func(t *testing.T) sinktest.Store {
			var table string
			s := conformanceStore(t, server.TCP, func(c *Config) { table = c.Database + "." + c.Table })
			s.Read = func(t testing.TB) []sinktest.Row { return rowsIn(t, server, table) }
			s.Reject = func(t testing.TB, detector string) {
				server.Query(t, fmt.Sprintf("ALTER TABLE %s ADD CONSTRAINT known CHECK detector_code != '%s'", table, detector))
			}
			return s
		})
	})
}

// conformanceStore returns a store with a table of its own behind a proxy, without Read and Reject.
func conformanceStore(t *testing.T, address string, change func(*Config)) sinktest.Store {
	p := startProxy(t, address)
	first := newArchive(t, nil, change, func(c *Config) {
		c.Addresses, c.DialTimeout, c.WriteTimeout = []string{p.address()}, 5*time.Second, 10*time.Second
	})
	return sinktest.Store{
		Open: func(t testing.TB) pipeline.Sink {
			s, err := New(first.config, first.log)
			require.NoError(t, err)
			return s
		},
		Break: func(testing.TB) (mend func()) {
			p.limit(0, 0)
			return func() { p.limit(1<<40, 1<<40) }
		},
	}
}

// rowsIn returns all rows of a table, including those that a merge would replace.
func rowsIn(t testing.TB, server *stores.ClickHouse, table string) (rows []sinktest.Row) {
	number := func(text string) int64 {
		n, err := strconv.ParseInt(text, 10, 64)
		require.NoError(t, err)
		return n
	}
	text := server.Query(t, "SELECT batch_id, batch_index, detector_code, measure_type_code, toUnixTimestamp64Nano(timestamp_from), "+
		"toUnixTimestamp64Nano(timestamp_to), value FROM "+table)
	for line := range strings.Lines(text) {
		c := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		value, err := strconv.ParseFloat(c[6], 64)
		require.NoError(t, err)
		rows = append(rows, sinktest.Row{
			Batch: batch.ID(uuid.MustParse(c[0])), Index: uint32(number(c[1])), Detector: c[2], Type: c[3], From: number(c[4]), To: number(c[5]), Value: value,
		})
	}
	return rows
}

// TestServerErrors makes the fake server refuse a block, with each kind of error, before and after
// it has read the rows, and lose an acknowledgement. TestArchive and TestFaults have the errors of
// a real server.
func TestServerErrors(t *testing.T) {
	f := func(code proto.Error, want class) {
		t.Helper()
		for _, early := range []bool{true, false} {
			server := startFake(t)
			a := newArchive(t, nil, func(c *Config) { c.Addresses, c.Migrate = []string{server.address}, false })
			rows, plan := a.plan(smallBlock(1))
			server.RefuseIf(func(statement string, rows []sinktest.Row) *proto.Exception {
				if strings.HasPrefix(statement, "INSERT") && (early || rows != nil) {
					return &proto.Exception{Code: code, Name: "ERROR", Message: "refused"}
				}
				return nil
			})
			a.requireFailure(want, plan, rows)
			a.requireFailure(want, plan, rows)
			server.RefuseIf(nil)
			a.deliver(plan, rows)
			require.Len(t, server.Measurements(), 100)
		}
	}
	f(proto.ErrTooManyParts, classOverload)
	f(proto.ErrTooManySimultaneousQueries, classOverload)
	f(proto.ErrMemoryLimitExceeded, classMemory)
	f(proto.ErrUnknownTable, classSchema)
	f(proto.ErrAuthenticationFailed, classAuth)
	f(proto.ErrTimeoutExceeded, classTimeout)

	server := startFake(t)
	a := newArchive(t, nil, func(c *Config) { c.Addresses, c.Migrate = []string{server.address}, false })
	rows, plan := a.plan(smallBlock(2))
	server.LoseNext(1)
	a.requireFailure(classNetwork, plan, rows)
	a.deliver(plan, rows)
	require.Len(t, server.Measurements(), 100)
}

// TestRowsVanish deletes the rows of a block although its tokens are kept: the sink sends them with
// other tokens, and rejects them once the server has acknowledged and lost them with every token.
func TestRowsVanish(t *testing.T) {
	server := startFake(t)
	a := newArchive(t, nil, func(c *Config) { c.Addresses, c.Migrate = []string{server.address}, false })
	rows, plan := a.plan(smallBlock(1))
	a.deliver(plan, rows)
	for range maxRounds - 1 {
		server.DropRows()
		a.restarted().deliver(plan, rows)
		require.Len(t, server.Measurements(), 100)
	}
	server.DropRows()
	a.restarted().requireVanished(plan, rows, rows)
	require.Empty(t, server.Measurements())
}

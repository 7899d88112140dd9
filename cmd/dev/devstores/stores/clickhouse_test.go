package stores_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	ch "github.com/ClickHouse/clickhouse-go/v2"
	"github.com/prometheus/procfs"
	"github.com/stretchr/testify/require"

	"trafficd/cmd/dev/devstores/stores"
	"trafficd/cmd/dev/launch"
)

func TestClickHouseKeepsDataAcrossKillAndRestart(t *testing.T) {
	log := filepath.Join(t.TempDir(), "stores.log")
	t.Setenv(stores.LogEnv, log)
	s := stores.StartClickHouse(t)
	s.Query(t, "CREATE DATABASE trafficd ENGINE = Atomic")
	s.Query(t, "CREATE TABLE trafficd.numbers (n UInt64) ENGINE = MergeTree ORDER BY n")
	tcp, http, pids := s.TCP, s.HTTP, s.PIDs()

	f := func(rows string, how func() error) {
		t.Helper()
		s.Query(t, "INSERT INTO trafficd.numbers SELECT number FROM numbers(1000)")
		require.NoError(t, how())
		require.NoError(t, s.Restart())
		require.Equal(t, rows, s.Query(t, "SELECT count() FROM trafficd.numbers"))
	}
	f("1000", s.Kill)
	f("2000", s.Stop)
	f("3000", func() error { return nil }) // Restart itself stops a running store

	require.Equal(t, []string{tcp, http}, []string{s.TCP, s.HTTP})
	require.NotEqual(t, pids, s.PIDs())
	require.Equal(t, "Atomic", s.Query(t, "SELECT engine FROM system.databases WHERE name = 'trafficd'"))
	written, err := os.ReadFile(log)
	require.NoError(t, err)
	require.Equal(t, t.Name()+" clickhouse "+s.Kind+" "+s.Version+"\n", string(written))
}

// TestClickHouseCountsInsertedRows checks that system.part_log counts all inserted rows, even those
// that are replaced, and that it still counts after a stop or a kill, either of which may empty it.
func TestClickHouseCountsInsertedRows(t *testing.T) {
	s := stores.StartClickHouse(t)
	s.Query(t, "CREATE DATABASE trafficd ENGINE = Atomic")
	s.Query(t, "CREATE TABLE trafficd.numbers (n UInt64) ENGINE = ReplacingMergeTree ORDER BY n")
	f := func(rows int, how func() error) {
		t.Helper()
		require.NoError(t, how())
		require.NoError(t, s.Restart())
		before := inserted(t, s)
		s.Query(t, fmt.Sprintf("INSERT INTO trafficd.numbers SELECT number FROM numbers(%d)", rows))
		require.Equal(t, before+rows, inserted(t, s))
	}
	f(10, s.Stop)
	f(20, s.Stop)
	f(30, s.Kill)
	f(40, s.Kill)
	require.Equal(t, "40", s.Query(t, "SELECT count() FROM trafficd.numbers FINAL"))
}

// inserted returns the number of rows that system.part_log counts.
func inserted(t *testing.T, s *stores.ClickHouse) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // it must not block forever
	defer cancel()
	_, err := s.Do(ctx, "SYSTEM FLUSH LOGS")
	require.NoError(t, err)
	n, err := strconv.Atoi(s.Query(t, "SELECT sum(rows) FROM system.part_log WHERE event_type = 'NewPart' AND database = 'trafficd'"))
	require.NoError(t, err)
	return n
}

// TestClickHouseSettings checks that the time zone is UTC whatever the machine's is, that errors
// contain the server's message, and that only the configured users can log in.
func TestClickHouseSettings(t *testing.T) {
	t.Setenv("TZ", "Asia/Kolkata")
	s := stores.StartClickHouse(t)
	require.Equal(t, "UTC\t1792756800", s.Query(t, "SELECT timezone(), toUnixTimestamp(toDateTime('2026-10-23 12:00:00'))"))
	_, err := s.Do(t.Context(), "SELECT no_such_column")
	require.ErrorContains(t, err, "UNKNOWN_IDENTIFIER")

	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	f := func(user, password string, status int) {
		t.Helper()
		r, err := launch.Request(t.Context(), client, http.MethodGet, "http://"+s.HTTP+"/?query=SELECT+1", nil,
			"X-ClickHouse-User", user, "X-ClickHouse-Key", password)
		require.NoError(t, err)
		require.Equal(t, status, r.Status)
	}
	f("default", "", http.StatusOK)
	f("trafficd", "trafficd", http.StatusOK)
	f("trafficd", "wrong", http.StatusForbidden)
	f("nobody", "", http.StatusForbidden)
}

func TestClickHousePause(t *testing.T) {
	s := stores.StartClickHouse(t)
	require.NoError(t, s.Pause())
	for _, pid := range s.PIDs() {
		p, err := procfs.NewProc(pid)
		require.NoError(t, err)
		stat, err := p.Stat()
		require.NoError(t, err)
		require.Equal(t, "T", stat.State)
	}
	require.NoError(t, s.Resume())
	require.Equal(t, "1", s.Query(t, "SELECT 1"))

	require.NoError(t, s.Pause())
	require.NoError(t, s.Stop(), "a paused store stops too")
	require.ErrorContains(t, s.Resume(), "restart it first")
}

// TestClickHouseOutlivesItsClients checks that clients that disconnect at any point of the
// handshake or of a query do not affect others.
func TestClickHouseOutlivesItsClients(t *testing.T) {
	s := stores.StartClickHouse(t)
	pids := s.PIDs()
	for n := range 100 {
		doomed := &cutConn{steps: n % 10, reset: n%3 > 0}
		client, err := ch.Open(&ch.Options{Addr: []string{s.TCP}, DialContext: doomed.dial})
		require.NoError(t, err)
		_ = client.Exec(t.Context(), "SELECT 1") // it may succeed
		require.NoError(t, client.Close())
	}
	require.Equal(t, "1", s.Query(t, "SELECT 1"))
	require.Equal(t, pids, s.PIDs())
}

// cutConn is a client's connection that is cut after a number of reads and writes, as when the
// client is killed.
type cutConn struct {
	net.Conn
	steps int
	reset bool
}

func (c *cutConn) dial(ctx context.Context, address string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	c.Conn = conn
	return c, err
}

// step closes the connection when no steps are left.
func (c *cutConn) step() {
	if c.steps--; c.steps >= 0 {
		return
	}
	if c.reset {
		_ = c.Conn.(*net.TCPConn).SetLinger(0)
	}
	_ = c.Conn.Close()
}

func (c *cutConn) Write(p []byte) (int, error) {
	c.step()
	return c.Conn.Write(p)
}

func (c *cutConn) Read(p []byte) (int, error) {
	c.step()
	return c.Conn.Read(p)
}

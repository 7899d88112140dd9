package stores_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	ch "github.com/ClickHouse/clickhouse-go/v2"
	"github.com/stretchr/testify/require"

	"trafficd/cmd/devstores/stores"
)

func TestClickHouseKeepsDataOverKillAndRestart(t *testing.T) {
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
	f("3000", func() error { return nil }) // Restart stops a running store

	require.Equal(t, []string{tcp, http}, []string{s.TCP, s.HTTP})
	require.NotEqual(t, pids, s.PIDs())
	require.Equal(t, "Atomic", s.Query(t, "SELECT engine FROM system.databases WHERE name = 'trafficd'"))
	written, err := os.ReadFile(log)
	require.NoError(t, err)
	require.Equal(t, t.Name()+" clickhouse "+s.Kind+" "+s.Version+"\n", string(written))
}

func TestClickHouseCountsInsertedRowsInPartLog(t *testing.T) {
	s := stores.StartClickHouse(t)
	s.Query(t, "CREATE DATABASE trafficd ENGINE = Atomic")
	s.Query(t, "CREATE TABLE trafficd.numbers (n UInt64) ENGINE = ReplacingMergeTree ORDER BY n")
	for range 3 {
		s.Query(t, "INSERT INTO trafficd.numbers SELECT number FROM numbers(10)")
	}
	s.Query(t, "SYSTEM FLUSH LOGS")
	require.Equal(t, "30", s.Query(t, "SELECT sum(rows) FROM system.part_log WHERE event_type = 'NewPart' AND database = 'trafficd'"))
}

// The log of inserts works after every kind of exit; it may start empty.
func TestClickHouseCountsInsertedRowsAfterARestart(t *testing.T) {
	s := stores.StartClickHouse(t)
	s.Query(t, "CREATE DATABASE trafficd ENGINE = Atomic")
	s.Query(t, "CREATE TABLE trafficd.numbers (n UInt64) ENGINE = MergeTree ORDER BY n")
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
	require.Equal(t, "100", s.Query(t, "SELECT count() FROM trafficd.numbers"))
}

// inserted returns the rows that system.part_log counts.
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

func TestClickHouseIsInUTC(t *testing.T) {
	t.Setenv("TZ", "Asia/Kolkata") // whatever the machine's time zone
	s := stores.StartClickHouse(t)
	require.Equal(t, "UTC\t1792756800", s.Query(t, "SELECT timezone(), toUnixTimestamp(toDateTime('2026-10-23 12:00:00'))"))
}

func TestClickHouseUsers(t *testing.T) {
	s := stores.StartClickHouse(t)
	f := func(user, password string, status int) {
		t.Helper()
		req, err := http.NewRequest(http.MethodGet, "http://"+s.HTTP+"/?query=SELECT+1", nil)
		require.NoError(t, err)
		req.Header.Set("X-ClickHouse-User", user)
		req.Header.Set("X-ClickHouse-Key", password)
		req.Close = true
		res, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		require.Equal(t, status, res.StatusCode)
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
		require.True(t, stopped(t, pid))
	}
	require.NoError(t, s.Resume())
	require.Equal(t, "1", s.Query(t, "SELECT 1"))

	require.NoError(t, s.Pause())
	require.NoError(t, s.Stop(), "a paused store stops too")
	require.ErrorContains(t, s.Resume(), "restart it first")
}

func TestClickHouseSaysWhatIsWrongWithAStatement(t *testing.T) {
	s := stores.StartClickHouse(t)
	_, err := s.Do(t.Context(), "SELECT no_such_column")
	require.ErrorContains(t, err, "UNKNOWN_IDENTIFIER")
}

// Clients that disconnect at any point of the handshake or of a query do not affect others.
func TestClickHouseOutlivesItsClients(t *testing.T) {
	s := stores.StartClickHouse(t)
	pids := s.PIDs()
	for n := range 100 {
		gone := &leaving{steps: n % 10, abruptly: n%3 > 0}
		client, err := ch.Open(&ch.Options{Addr: []string{s.TCP}, DialContext: gone.dial})
		require.NoError(t, err)
		_ = client.Exec(t.Context(), "SELECT 1") // it may succeed
		require.NoError(t, client.Close())
	}
	require.Equal(t, "1", s.Query(t, "SELECT 1"))
	require.Equal(t, pids, s.PIDs())
}

// leaving is a client's connection that is cut after a number of steps, as when the process is
// killed.
type leaving struct {
	net.Conn
	steps    int
	abruptly bool
}

func (l *leaving) dial(ctx context.Context, address string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	l.Conn = conn
	return l, err
}

func (l *leaving) step() error {
	if l.steps--; l.steps >= 0 {
		return nil
	}
	if l.abruptly {
		_ = l.Conn.(*net.TCPConn).SetLinger(0)
	}
	return errors.Join(l.Conn.Close(), net.ErrClosed)
}

func (l *leaving) Write(p []byte) (int, error) {
	if err := l.step(); err != nil {
		return 0, err
	}
	return l.Conn.Write(p)
}

func (l *leaving) Read(p []byte) (int, error) {
	if err := l.step(); err != nil {
		return 0, err
	}
	return l.Conn.Read(p)
}

func stopped(t *testing.T, pid int) bool {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	require.NoError(t, err)
	_, after, _ := strings.Cut(string(stat), ") ")
	return strings.HasPrefix(after, "T ")
}

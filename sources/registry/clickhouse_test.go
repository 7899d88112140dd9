package registry

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"trafficd/cmd/dev/devstores/stores"
	"trafficd/pipeline/batch"
	"trafficd/pipeline/lib/dial"
)

// TestClickHouseFeed reads from a real ClickHouse server, which is killed and restarted.
func TestClickHouseFeed(t *testing.T) {
	store := stores.StartClickHouse(t)
	store.Query(t, "CREATE DATABASE road")
	store.Query(t, "CREATE TABLE road.detectors (code LowCardinality(String), lanes UInt8) ENGINE = MergeTree ORDER BY code")
	store.Query(t, "INSERT INTO road.detectors VALUES ('A', 1), ('B', 2)")
	feed := newTestFeed(t, FeedConfig{ClickHouse: &dial.ClickHouseQuery{
		Address: store.TCP, ClickHouse: dial.ClickHouse{Database: "road", Username: "trafficd", Password: "trafficd"}, Timeout: time.Minute,
		Query: "SELECT code, lanes, now() FROM detectors ORDER BY code",
	}})
	source := feed.source.(*clickHouseSource)
	f := func(wantError string, want ...string) {
		t.Helper()
		feed.check(t.Context())
		if wantError == "" {
			require.Empty(t, feed.onlyList().status(time.Now()).Error)
		}
		require.Contains(t, feed.onlyList().status(time.Now()).Error, wantError)
		require.Equal(t, want, codesOf(feed.onlyList().current.Load()))
	}
	var list batch.DetectorList
	feed.onList = func(l batch.DetectorList) { list = l }
	f("", "A", "B")
	require.Equal(t, batch.Attribute{Name: "lanes", Value: "2"}, list.Attributes[1][0])
	now, err := time.Parse(time.RFC3339Nano, list.Attributes[1][1].Value)
	require.NoError(t, err)
	require.WithinDuration(t, time.Now(), now, time.Minute)
	store.Query(t, "INSERT INTO road.detectors VALUES ('C', 1)")
	f("", "A", "B", "C")
	query := source.Query
	source.maxBytes = 2
	f("max_bytes", "A", "B", "C")
	source.maxBytes = 150
	source.Query = "SELECT code, repeat('x', 50) FROM detectors"
	f("max_bytes", "A", "B", "C")
	source.maxBytes = 1 << 20
	source.Query = "SELECT lanes FROM detectors"
	f("must hold strings", "A", "B", "C")
	source.Query = "SELECT code FROM nowhere"
	f("nowhere", "A", "B", "C")
	source.Query = "SELECT code FROM detectors WHERE lanes > 5"
	f("never used", "A", "B", "C")
	// Rows that precede an error are not used.
	source.Query = "SELECT toString(number), throwIf(number = 5000) FROM system.numbers LIMIT 10000 SETTINGS max_block_size = 100"
	f("throwIf", "A", "B", "C")
	for _, statement := range []string{"OPTIMIZE TABLE detectors", "SET max_threads = 1"} {
		source.Query = statement
		f("cannot query ClickHouse at "+store.TCP+": the statement in query returns no result: it must be a SELECT statement", "A", "B", "C")
	}
	source.Query = "SELECT NULL, 1"
	f("must hold strings", "A", "B", "C")
	source.Query = "SELECT if(lanes = 1, NULL, code) FROM detectors"
	f("must hold strings", "A", "B", "C")
	source.Query = "SELECT arrayJoin(['A', 'B', 'C'])::FixedString(3), 'x'::FixedString(2) AS fixed, 5::UInt256 AS big, [1, NULL] AS list, 1.5::Nullable(Decimal(9, 3)) AS d, NULL"
	f("", "A", "B", "C")
	require.Equal(t, []batch.Attribute{{Name: "fixed", Value: "x"}, {Name: "big", Value: "5"}, {Name: "list", Value: "[1 ]"}, {Name: "d", Value: "1.5"}},
		list.Attributes[0])
	// An endless result is abandoned as soon as it exceeds max_bytes, long before the timeout.
	timeout := source.Timeout
	source.Timeout = time.Hour
	for _, endless := range []string{"toString(number)", "''"} {
		source.Query = "SELECT " + endless + " FROM system.numbers"
		f("max_bytes", "A", "B", "C")
	}
	source.Query, source.Timeout = query, timeout

	native := source.Poller
	source.Poller = dial.Poller{ClickHouseQuery: native.ClickHouseQuery}
	source.Address = store.HTTP
	f("check that this is the port of ClickHouse's native protocol", "A", "B", "C")
	source.Close()
	source.Poller = native

	require.NoError(t, store.Kill())
	f(store.TCP, "A", "B", "C")
	require.NoError(t, store.Restart())
	store.Query(t, "INSERT INTO road.detectors VALUES ('D', 1)")
	f("", "A", "B", "C", "D")
	store.Query(t, "TRUNCATE TABLE road.detectors")
	f("never used", "A", "B", "C", "D")
}

// TestCloseDuringHandshake checks that a ClickHouse server that accepts connections but does not
// respond does not block a reload or a shutdown until the timeout of the query.
func TestCloseDuringHandshake(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	r := start(t, testConfig(FeedConfig{ProductInstance: "city", ClickHouse: &dial.ClickHouseQuery{
		Address: l.Addr().String(), Query: "SELECT 1", Interval: time.Hour, Timeout: 10 * time.Minute,
	}}))
	c, err := l.Accept()
	require.NoError(t, err)
	defer c.Close()
	_, err = c.Read(make([]byte, 1)) // of the handshake
	require.NoError(t, err)
	closed := make(chan struct{})
	go func() { r.Close(); close(closed) }()
	select {
	case <-closed:
	case <-time.After(time.Minute):
		t.Fatal("Close is blocked")
	}
}

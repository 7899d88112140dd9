package stores

import (
	"context"
	"strings"
	"testing"

	"trafficd/cmd/devstores/internal/clickhouse"
)

// ClickHouse is a running ClickHouse. Users: "default" without a password, "trafficd" with the password "trafficd". Its system.part_log counts
// the rows of every insert since its last start, independently of the table (`SYSTEM FLUSH LOGS` writes what is due).
type ClickHouse struct {
	*daemon
	TCP     string // host:port of the native protocol
	HTTP    string // host:port of HTTP
	Kind    string // "clickhouse-server" or "libchdb"
	Version string
}

// StartClickHouse gives the test a ClickHouse on free ports and in a folder of its own.
func StartClickHouse(t testing.TB) *ClickHouse {
	t.Helper()
	s := launchFor(t, Options{Only: "clickhouse"})
	report(t, "clickhouse", s.ClickHouse.Kind, s.ClickHouse.Version, s.ClickHouse.TCP)
	return s.ClickHouse
}

// Do runs one statement as the user default over HTTP and returns the answer's text (tab-separated unless the statement names
// a format) without its last line break. The error holds ClickHouse's message.
func (c *ClickHouse) Do(ctx context.Context, sql string) (string, error) {
	answer, err := clickhouse.Query(ctx, c.HTTP, sql)
	return strings.TrimSuffix(answer, "\n"), err
}

// Query is Do for a test, which an error ends.
func (c *ClickHouse) Query(t testing.TB, sql string) string {
	t.Helper()
	answer, err := c.Do(t.Context(), sql)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

package main

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/stretchr/testify/require"

	"trafficd/cmd/dev/daemontest"
	"trafficd/cmd/dev/devstores/stores"
	"trafficd/schemas/contract"
)

// TestHealthInCluster checks that two daemons at two replicas of the archive respond with the same
// health of the detectors, and that the views of both say which hours are sick.
func TestHealthInCluster(t *testing.T) {
	c := stores.StartCluster(t, "1", "1")
	var daemons []*daemontest.Trafficd
	for _, node := range c.Nodes {
		d := daemontest.New(t, "clickhouse.enabled=true", "clickhouse.cluster=main", "clickhouse.addresses="+node.TCP)
		d.Run().Await(http.StatusOK)
		daemons = append(daemons, d)
	}
	query := func(node int, sql string) (count uint64) {
		t.Helper()
		conn, err := clickhouse.Open(&clickhouse.Options{Addr: []string{c.Nodes[node].TCP}})
		require.NoError(t, err)
		defer conn.Close()
		if strings.HasPrefix(sql, "INSERT") {
			require.NoError(t, conn.Exec(t.Context(), sql))
			return 0
		}
		require.NoError(t, conn.QueryRow(t.Context(), sql).Scan(&count))
		return count
	}
	get := func(d *daemontest.Trafficd) (status int, body, etag string) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+d.API+contract.HealthPath, nil)
		require.NoError(t, err)
		r.Header.Set("Authorization", "apiKey "+daemontest.Key)
		response, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		return response.StatusCode, string(text), response.Header.Get("ETag")
	}
	status, body, _ := get(daemons[0])
	require.Equal(t, http.StatusServiceUnavailable, status, body)
	for node, d := range daemons {
		d.Eventually(func() bool {
			return query(node, "SELECT count() FROM system.tables WHERE database = 'trafficd' AND name = 'measurements_speeds_1h'") == 1
		}, "the tables of node %d", node)
	}
	query(0, "INSERT INTO trafficd.measurements_health SELECT '"+daemontest.Instance+"', s.1, s.2, s.3, '2026-01-02 03:00:00', '2026-01-02 09:00:00', s.4 "+
		"FROM (SELECT arrayJoin([('constant', '"+daemontest.Detector(7)+"', 'speed', 'speed is 57 in all intervals'), ('checked', '', 'constant', '')]) AS s)")
	for _, d := range daemons {
		d.Eventually(func() bool {
			status, body, _ = get(d)
			return status == http.StatusOK
		}, "the health of the detectors")
		t.Log(body)
	}
	_, one, first := get(daemons[0])
	_, two, second := get(daemons[1])
	require.Contains(t, one, `"reason":"speed is 57 in all intervals"`)
	require.Equal(t, one+first, two+second)
	for node := range c.Nodes {
		require.Equal(t, uint64(6), query(node, "SELECT count() FROM trafficd.measurements_sick_hours"))
		require.Zero(t, query(node, "SELECT count() FROM trafficd.measurements_1h WHERE NOT good"))
	}
}

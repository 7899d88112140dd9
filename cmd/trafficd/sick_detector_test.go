package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"trafficd/cmd/dev/daemontest"
	"trafficd/cmd/dev/devstores/stores"
	"trafficd/cmd/dev/launch"
	"trafficd/schemas/contract"
)

// TestStuckDetector runs a daemon and a forecaster with an archive in which a detector has been
// stuck for eight hours. The status, the health for integrators, the metrics and the basis of the
// street's forecast say so, and no longer do after its measurements were corrected.
func TestStuckDetector(t *testing.T) {
	archive := stores.StartClickHouse(t)
	d := daemontest.New(t, "clickhouse.enabled=true", "clickhouse.addresses="+archive.TCP, "clickhouse.derive_interval=1s")
	list := "detectorCode,street,fromnode,length\n"
	for i := range 20 {
		list += fmt.Sprintf("%d,%d,1,100\n", i, 100+i/4)
	}
	detectors := filepath.Join(d.Dir, "streets.csv")
	require.NoError(t, os.WriteFile(detectors, []byte(list), 0o600))
	d.Set("registry.feeds=[{product_instance: city, file: {path: '" + detectors + "', column: detectorCode}}]")
	d.Keys(daemontest.KeyEntry("acme", "ingest, forecast", "UTC"))
	layer := d.SetForecastFile("layer.ndjson")
	d.Run().Await(http.StatusOK)
	d.Eventually(func() bool {
		return archive.Query(t, "SELECT count() FROM system.tables WHERE database = 'trafficd' AND name = 'measurements_speeds_1h'") == "1"
	}, "the tables")
	d.Eventually(func() bool {
		return archive.Query(t, "SELECT uniqExact(street) FROM trafficd.measurements_detectors") == "5"
	}, "the archive has the detectors")

	// measure adds measurements of some hours until now, and of the minutes for which the test runs.
	measure := func(hours int, where, value, received string) {
		archive.Query(t, fmt.Sprintf(`INSERT INTO trafficd.measurements
			SELECT 'city', toString(number %% 20) AS code, m, toStartOfFiveMinutes(now('UTC')) + 600 - 300 * intDiv(number, 20) AS ts, ts + 300, %s,
				NULL, generateUUIDv4(), 0, %s FROM numbers(%d) ARRAY JOIN ['speed', 'flow'] AS m WHERE %s`, value, received, 20*12*hours, where))
		archive.Query(t, `INSERT INTO trafficd.measurements_blocks (first_received_at, last_received_at, months, derived)
			SELECT min(received_at), max(received_at), [toYYYYMM(timestamp_from)], 0 FROM trafficd.measurements
			GROUP BY toYYYYMM(timestamp_from), toYYYYMMDD(received_at)`)
	}
	const healthy = "50 + cityHash64(ts, code, m) % 20"
	measure(8*24, "1", "if(m = 'speed' AND code = '7' AND ts > now('UTC') - INTERVAL 8 HOUR, 57, "+healthy+")", "least(ts + 330, now())")

	binary, err := launch.Program(t.Context(), "forecaster")
	require.NoError(t, err)
	f := &launch.Daemon{Binary: binary, Dir: t.TempDir()}
	f.Ops, err = launch.FreeAddress()
	require.NoError(t, err)
	f.Set("ops.listen="+f.Ops, "clickhouse.address="+archive.TCP, "detectors.path="+detectors, "model.product_instance=city",
		"model.learn_after=0s", "forecasts.every=1s", "forecasts.grace=0s", "output.feed=file", "output.file.path="+layer)
	require.NoError(t, f.Start())
	t.Cleanup(func() { _ = f.Kill() }) // fails only if it has exited

	body := func(path string) string {
		_, text := daemontest.WithoutKey(t, http.MethodGet, path, "Authorization", "apiKey acme")
		return text
	}
	follow := func(sick int, entry, basis string) {
		t.Helper()
		for what, ok := range map[string]func() bool{
			"the metric": func() bool { return d.Metric(`trafficd_sites_sick_detectors`) == float64(sick) },
			"the health": func() bool { return strings.Contains(body("http://"+d.API+contract.HealthPath), entry) },
			"the status": func() bool {
				return strings.Contains(body("http://"+d.Ops+"/status"), fmt.Sprintf(`"sick":%d`, sick))
			},
			"the basis": func() bool {
				_, streets := d.Layer("acme", "?fields=all", "Accept", "application/json")
				_, street, found := strings.Cut(string(streets), `"street":101`)
				street, _, _ = strings.Cut(street, `"street":`)
				return found && strings.Contains(street, `"basis":"`+basis+`"`)
			},
		} {
			d.Eventually(ok, "%s says that %d detectors are sick", what, sick)
		}
	}
	follow(1, `"state":"constant"`, "neighbours")

	// The measurements are corrected, and an hour passes.
	require.NoError(t, f.Kill())
	measure(8, "m = 'speed' AND code = '7'", healthy, "now()")
	d.Eventually(func() bool {
		return archive.Query(t, "SELECT count() FROM trafficd.measurements_blocks FINAL WHERE derived = 0") == "0"
	}, "the hours are computed")
	before := body("http://" + d.API + contract.HealthPath)
	archive.Query(t, "CREATE TABLE trafficd.earlier ENGINE = Memory AS SELECT * REPLACE (last_at - 3600 AS last_at) FROM trafficd.measurements_health")
	archive.Query(t, "TRUNCATE TABLE trafficd.measurements_health")
	archive.Query(t, "INSERT INTO trafficd.measurements_health SELECT * FROM trafficd.earlier")
	d.Eventually(func() bool { return body("http://"+d.API+contract.HealthPath) != before }, "the tests are an hour old")
	require.NoError(t, f.Start())
	follow(0, `"count":0`, "own")
}

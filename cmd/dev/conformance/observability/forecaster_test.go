package observability

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"trafficd/cmd/dev/devstores/stores"
	"trafficd/cmd/dev/launch"
	"trafficd/cmd/dev/needs"
)

// forecasterBoard is the dashboard with the metrics of the forecaster.
const forecasterBoard = "trafficd-forecaster.json"

// TestForecasterFaults lets the archive of a forecaster fail. That raises one alert, and the
// runbook says what is printed. Before, each panel of the forecaster's dashboard has data, although
// a detector without a street raises the alert about places.
func TestForecasterFaults(t *testing.T) {
	needs.Everything(t, "real stores and Prometheus")
	t.Parallel()
	archive := stores.StartClickHouse(t)
	d := newDaemon(t, programs(t), "filling", "clickhouse.enabled=true", "clickhouse.addresses="+archive.TCP)
	d.start() // creates the tables
	binary, err := launch.Program(t.Context(), "forecaster")
	require.NoError(t, err)
	f := &daemon{t: t, name: "forecaster", programs: filepath.Dir(binary), Daemon: launch.Daemon{Binary: binary, Dir: t.TempDir()}}
	f.Ops, err = launch.FreeAddress()
	require.NoError(t, err)
	f.ops = f.Ops
	require.NoError(t, os.WriteFile(f.path("detectors.csv"), []byte("detectorCode,street,length\n1,7,100\n2,,100\n"), 0o600))
	f.Set("ops.listen="+f.Ops, "clickhouse.address="+archive.TCP, "detectors.path="+f.path("detectors.csv"), "model.product_instance=town",
		"forecasts.every=1s", "forecasts.grace=0s", "output.feed=file", "output.file.path="+f.path("forecasts.pb"))
	measure := func() {
		now := time.Now().Truncate(5 * time.Minute).Unix()
		archive.Query(t, fmt.Sprintf("INSERT INTO trafficd.measurements SELECT 'town', '1', 'speed', fromUnixTimestamp(%d - 300 * number) AS ts, ts + 300, 50, "+
			"NULL, generateUUIDv4(), 0, now() FROM numbers(6)", now))
	}
	measure()
	require.NoError(t, f.Start())
	t.Cleanup(func() { _ = f.Kill() }) // fails only if it has exited
	p := startPrometheus(t, []*daemon{f})
	requireData(t, p, f, func(board string) bool { return board == forecasterBoard }, measure)
	firing := func(alert string) string {
		return fmt.Sprintf(`ALERTS{alertname=%q,instance="forecaster",alertstate="firing"}`, alert)
	}
	p.await(firing("TrafficdPlacesMissing"))
	failing, err := p.query(t.Context(), firing("TrafficdForecasterFailing"))
	require.NoError(t, err)
	require.Empty(t, failing)
	require.NoError(t, archive.Kill())
	p.await(firing("TrafficdForecasterFailing"))
	follow(t, f, strings.ToLower("TrafficdForecasterFailing"), nil)
}

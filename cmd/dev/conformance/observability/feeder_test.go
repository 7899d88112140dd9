package observability

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"trafficd/cmd/dev/daemontest"
	"trafficd/cmd/dev/launch"
	"trafficd/cmd/dev/needs"
)

// feederBoard is the dashboard with the metrics of the feeder.
const feederBoard = "trafficd-feeder.json"

// TestFeederFaults lets two feeders fail: the feed of one sends HTML pages, and the daemon of the
// other does not know its key. Each raises one alert, and the runbook says what is printed. Each
// panel of the feeder's dashboard has data.
func TestFeederFaults(t *testing.T) {
	needs.Everything(t, "Prometheus")
	t.Parallel()
	var pulls atomic.Int64
	authority := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/html" && pulls.Add(1) > 1 { // with a first publication, it is ready
			_, _ = w.Write([]byte("<html/>"))
			return
		}
		// Each second is another minute.
		at := daemontest.Day.Add(time.Duration(time.Now().Unix()%1000) * time.Minute).Format(time.RFC3339)
		fmt.Fprintf(w, `<d2LogicalModel><payloadPublication><siteMeasurements><measurementSiteReference id="S" version="1"/>
			<measurementTimeDefault>%s</measurementTimeDefault><measuredValue index="1"><measuredValue><basicData type="TrafficFlow"><vehicleFlow>
			<vehicleFlowRate>60</vehicleFlowRate></vehicleFlow></basicData></measuredValue></measuredValue>
			</siteMeasurements></payloadPublication></d2LogicalModel>`, at)
	}))
	defer authority.Close()
	d := daemontest.New(t)
	binary, err := launch.Program(t.Context(), "feeder")
	require.NoError(t, err)
	feeder := func(name, key string) *daemon {
		f := &daemon{Daemon: launch.Daemon{Binary: binary, Dir: t.TempDir(), Ops: daemontest.FreeAddress(t)}, t: t, name: name, programs: filepath.Dir(binary)}
		f.ops = f.Ops
		require.NoError(t, os.WriteFile(f.path("key"), []byte(key), 0o600))
		f.Set("ops.listen="+f.Ops, "trafficd.url=http://"+d.API, "trafficd.key_file="+f.path("key"), "spool.dir="+f.path("spool"),
			fmt.Sprintf("feeds=[{name: f, url: '%s/%s', format: datex2, period: 1m, every: 1s}]", authority.URL, name))
		require.NoError(t, f.Start())
		t.Cleanup(func() { _ = f.Kill() }) // fails only if it has exited
		return f
	}
	all := map[string]*daemon{"TrafficdFeedStale": feeder("html", daemontest.Key), "TrafficdFeedUnsent": feeder("unknown", "another")}
	d.Set(fmt.Sprintf("registry.feeds=[{product_instance: %s, http: {url: 'http://%s/sites', interval: 1s}}]",
		daemontest.Instance, all["TrafficdFeedUnsent"].ops))
	d.Run()
	readSites(t, all["TrafficdFeedStale"].ops)
	p := startPrometheus(t, []*daemon{all["TrafficdFeedStale"], all["TrafficdFeedUnsent"]})
	requireData(t, p, all["TrafficdFeedStale"], func(board string) bool { return board == feederBoard }, func() {})
	for alert, f := range all {
		p.await(fmt.Sprintf(`ALERTS{alertname=%q,instance=%q,feed="f",alertstate="firing"}`, alert, f.name))
		follow(t, f, strings.ToLower(alert), nil)
	}
	fired, err := p.query(t.Context(), `max by (alertname, instance) (max_over_time(ALERTS{alertname=~"TrafficdFeed.*",alertstate="firing"}[10m]))`)
	require.NoError(t, err)
	require.Len(t, fired, 2)
}

// readSites reads a feeder's list of sites as a trafficd does, so that it sends what it has pulled.
func readSites(t *testing.T, ops string) {
	t.Helper()
	etag := ""
	require.NoError(t, launch.Eventually(t.Context(), limit, func() error {
		response, err := launch.Request(t.Context(), http.DefaultClient, http.MethodGet, "http://"+ops+"/sites", nil, "If-None-Match", etag)
		if err == nil && response.Status != http.StatusNotModified {
			etag = response.Header.Get("ETag")
			err = fmt.Errorf("status %d", response.Status)
		}
		return err
	}))
}

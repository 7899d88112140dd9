package main

import (
	"bytes"
	"compress/gzip"
	"context"
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
	"trafficd/cmd/dev/devstores/stores"
	"trafficd/cmd/dev/launch"
	"trafficd/cmd/dev/needs"
	trafficdv1 "trafficd/schemas/proto/trafficd/v1"

	"google.golang.org/protobuf/proto"
)

// rig is an authority, a feeder and a daemon, each in its own process except the first.
type rig struct {
	*daemontest.Trafficd
	feeder   launch.Daemon
	document atomic.Pointer[[]byte]
	gets     atomic.Int64
}

// newRig configures a daemon that reads its detectors from a feeder. It starts nothing.
func newRig(t *testing.T, format string, settings ...string) *rig {
	t.Helper()
	binary, err := launch.Program(t.Context(), "feeder")
	require.NoError(t, err)
	r := &rig{Trafficd: daemontest.New(t), feeder: launch.Daemon{Binary: binary, Dir: t.TempDir(), Ops: daemontest.FreeAddress(t)}}
	r.Set(settings...)
	r.Set(fmt.Sprintf("registry.feeds=[{product_instance: %s, http: {url: 'http://%s/sites', interval: 1s}}]", daemontest.Instance, r.feeder.Ops))
	authority := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		r.gets.Add(1)
		document := r.document.Load()
		if document == nil {
			http.Error(w, "nothing yet", http.StatusNotFound)
			return
		}
		w.Header().Set("ETag", fmt.Sprintf(`"%p"`, document))
		http.ServeContent(w, request, "", time.Time{}, bytes.NewReader(*document))
	}))
	t.Cleanup(authority.Close)
	key := filepath.Join(r.feeder.Dir, "key")
	require.NoError(t, os.WriteFile(key, []byte(daemontest.Key+"\n"), 0o600))
	r.feeder.Set("ops.listen="+r.feeder.Ops, "trafficd.url=http://"+r.API, "trafficd.key_file="+key, "spool.dir="+filepath.Join(r.feeder.Dir, "spool"),
		fmt.Sprintf("feeds=[{name: test, url: '%s', format: %s, every: 1s}]", authority.URL, format), "log.level=debug", "log.format=json")
	return r
}

func (r *rig) publish(document []byte) { r.document.Store(&document) }

func (r *rig) startFeeder() {
	r.T.Helper()
	require.NoError(r.T, r.feeder.Start())
	started := r.feeder.Process
	r.T.Cleanup(func() {
		_ = started.Kill() // fails only if it has exited
		if r.T.Failed() {
			r.T.Logf("log of the feeder:\n%s", daemontest.LastBytes([]byte(r.feeder.Log()), 6000))
		}
	})
}

// count returns the sum of the series of a metric of the feeder whose name and labels begin so.
func (r *rig) count(name string) float64 {
	metrics, _ := r.feeder.Metrics(context.Background()) // without a response there is no series
	sum := 0.0
	for series, v := range metrics {
		if strings.HasPrefix(series, name) {
			sum += v
		}
	}
	return sum
}

const ndw = "../../../shared/data/feeds/ndw/trafficspeed.xml.gz"

// TestNation pulls a publication of a nation and sends it to a daemon. Every value is accounted
// for.
func TestNation(t *testing.T) {
	needs.Everything(t, "the publication of the Netherlands of 2025-08-15")
	document, err := os.ReadFile(ndw)
	if err != nil {
		t.Log("not sent:", err)
		return
	}
	r := newRig(t, "ndw")
	r.publish(document)
	r.startFeeder()
	r.Run()
	start := time.Now()
	r.Eventually(func() bool { return r.count("trafficd_feeder_accepted_total") == 121_608 }, "the values are accepted")
	t.Logf("accepted after %s", time.Since(start).Round(time.Millisecond))
	outcome := func(name string) float64 {
		return r.count(`trafficd_feeder_values_total{feed="test",outcome="` + name + `"}`)
	}
	require.EqualValues(t, 121_608, outcome("new"))
	require.EqualValues(t, 53_699, outcome("no_vehicle"))
	require.EqualValues(t, 14_679, outcome("fault"))
	require.EqualValues(t, 189_986, r.count("trafficd_feeder_values_total"))
	require.EqualValues(t, 19_587, r.count("trafficd_feeder_sites"))
	require.Zero(t, r.count("trafficd_feeder_rejected_total"))
	t.Logf("feeder: RSS %.1f MB, CPU %.2f s", r.count("process_resident_memory_bytes")/1e6, r.count("process_cpu_seconds_total"))

	again := bytes.Clone(document) // with another ETag
	r.publish(again)
	r.Eventually(func() bool { return outcome("repeated") == 121_608 }, "the same values are pulled again")
	require.EqualValues(t, 121_608, outcome("new"))
	t.Logf("feeder: RSS %.1f MB, CPU %.2f s", r.count("process_resident_memory_bytes")/1e6, r.count("process_cpu_seconds_total"))
	r.Terminate()
}

// document returns a publication of a minute: a speed and a flow for each of some sites.
func document(minute, sites int) []byte {
	var b strings.Builder
	at := daemontest.Day.Add(time.Duration(minute) * time.Minute).Format(time.RFC3339)
	fmt.Fprintf(&b, `<d2LogicalModel xmlns="http://datex2.eu/schema/2/2_0" modelBaseVersion="2"><payloadPublication><publicationTime>%s</publicationTime>`, at)
	for site := range sites {
		fmt.Fprintf(&b, `<siteMeasurements><measurementSiteReference id="S%d" version="1"/><measurementTimeDefault>%s</measurementTimeDefault>
<measuredValue index="1"><measuredValue><basicData xsi:type="TrafficFlow"><vehicleFlow><vehicleFlowRate>%d</vehicleFlowRate></vehicleFlow></basicData></measuredValue></measuredValue>
<measuredValue index="2"><measuredValue><basicData xsi:type="TrafficSpeed"><averageVehicleSpeed><speed>%d</speed></averageVehicleSpeed></basicData></measuredValue></measuredValue>
</siteMeasurements>`, site, at, 60*(1+site%9), 50+minute%40)
	}
	b.WriteString(`</payloadPublication></d2LogicalModel>`)
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = z.Write([]byte(b.String()))
	_ = z.Close()
	return packed.Bytes()
}

// TestKills kills the feeder and the daemon while publications follow one another. The topic has
// each value of each publication that was pulled, once.
func TestKills(t *testing.T) {
	needs.Everything(t, "a broker")
	k := stores.StartKafka(t, stores.Topic("measurements", 4))
	r := newRig(t, "ndw", "kafka.enabled=true", "kafka.brokers="+strings.Join(k.Brokers, ","))
	const minutes, sites = 24, 12_000
	r.publish(document(0, sites))
	r.startFeeder()
	r.Run()
	spooled := func() int {
		metrics, err := r.feeder.Metrics(t.Context())
		if err != nil {
			return -1
		}
		return int(metrics.Sum("trafficd_feeder_newest_timestamp_seconds"))
	}
	for minute := range minutes {
		r.publish(document(minute, sites))
		end := int(daemontest.Day.Add(time.Duration(minute+1) * time.Minute).Unix())
		kill := []func(){
			func() { require.NoError(t, r.feeder.Kill()); r.startFeeder() },
			func() { require.NoError(t, r.Kill()); r.Run() },
			func() {},
		}[minute%3]
		if minute%2 == 0 { // during the pull or the POST
			before := r.gets.Load()
			require.Eventually(t, func() bool { return r.gets.Load() > before }, time.Minute, time.Millisecond)
			time.Sleep(time.Duration(minute) * 13 * time.Millisecond) // at another point each time
			kill()
		}
		require.Eventually(t, func() bool { return spooled() == end || r.feeder.Exited() }, time.Minute, 5*time.Millisecond)
		if minute%2 == 1 {
			kill()
		}
	}
	r.Eventually(func() bool { return spooled() >= 0 && r.count("trafficd_feeder_spool_bytes") == 0 }, "the spool is empty")
	r.AwaitDelivered()
	times := map[string]int{}
	for _, record := range k.Records(t, "measurements") {
		var m trafficdv1.Measurement
		require.NoError(t, proto.Unmarshal(record.Value, &m))
		times[fmt.Sprint(m.GetDetectorCode(), m.GetMeasureTypeCode(), m.GetTimestampFrom().GetSeconds(), m.GetValue())]++
	}
	require.Len(t, times, minutes*sites*2)
	for what, n := range times {
		require.Equal(t, 1, n, what)
	}
	t.Logf("%d measurements, each once", len(times))
}

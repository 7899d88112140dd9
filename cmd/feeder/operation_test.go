package main

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/procfs"
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
	fault    atomic.Value // how the authority fails the next request: the name of an entry of faults, or ""
}

// faults are what an authority does instead of a complete response.
var faults = map[string]func(w http.ResponseWriter, document []byte){
	"500": func(w http.ResponseWriter, _ []byte) { http.Error(w, "out of order", http.StatusInternalServerError) },
	"HTML page": func(w http.ResponseWriter, _ []byte) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, "<!DOCTYPE html><html><body><p>Maintenance<br>until noon</body></html>")
	},
	"half a file": func(w http.ResponseWriter, document []byte) {
		_, _ = w.Write(document[:len(document)/2])
	},
	"cut": func(w http.ResponseWriter, document []byte) {
		w.Header().Set("Content-Length", strconv.Itoa(len(document)))
		_, _ = w.Write(document[:len(document)/3])
		panic(http.ErrAbortHandler)
	},
	"empty": func(http.ResponseWriter, []byte) {},
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
		if name, _ := r.fault.Swap("").(string); name != "" {
			faults[name](w, *document)
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

// standstill matches the speed of five vehicles in the publication of the Netherlands.
var standstill = regexp.MustCompile(`(numberOfInputValuesUsed="5"[^>]*><speed>)[0-9.]+(</speed>)`)

// TestNation pulls a publication of a nation, in which each speed of five vehicles is set to 0, and
// sends it to a daemon with both stores. Every value is accounted for, each store has it once,
// and the same publication again, NATION_REPEATS (2) times, adds nothing.
func TestNation(t *testing.T) {
	needs.Everything(t, "ClickHouse, a broker and the publication of the Netherlands of 2025-08-15")
	packed, err := os.ReadFile(ndw)
	if err != nil {
		t.Log("not sent:", err)
		return
	}
	z, err := gzip.NewReader(bytes.NewReader(packed))
	require.NoError(t, err)
	text, err := io.ReadAll(z)
	require.NoError(t, err)
	planted := len(standstill.FindAll(text, -1))
	require.Greater(t, planted, 500)
	var repacked bytes.Buffer
	w := gzip.NewWriter(&repacked)
	_, _ = w.Write(standstill.ReplaceAll(text, []byte("${1}0${2}")))
	require.NoError(t, w.Close())
	document := repacked.Bytes()

	c, k := stores.StartClickHouse(t), stores.StartKafka(t, stores.Topic("measurements", 4))
	r := newRig(t, "ndw", "clickhouse.enabled=true", "clickhouse.addresses="+c.TCP,
		"kafka.enabled=true", "kafka.brokers="+strings.Join(k.Brokers, ","))
	r.Run()
	daemon, err := procfs.NewProc(r.Process.PID())
	require.NoError(t, err)
	before, err := daemon.Stat()
	require.NoError(t, err)
	r.publish(document)
	r.startFeeder()
	const values = 121_608
	start := time.Now()
	r.Eventually(func() bool { return r.count("trafficd_feeder_accepted_total") == values }, "the values are accepted")
	t.Logf("bench: feeds_seconds_to_last_207 %.2f s", time.Since(start).Seconds())
	r.logCosts()
	outcome := func(name string) float64 {
		return r.count(`trafficd_feeder_values_total{feed="test",outcome="` + name + `"}`)
	}
	require.EqualValues(t, values, outcome("new"))
	require.EqualValues(t, 53_699, outcome("no_vehicle"))
	require.EqualValues(t, 14_679, outcome("fault"))
	require.EqualValues(t, 189_986, r.count("trafficd_feeder_values_total"))
	require.EqualValues(t, 19_587, r.count("trafficd_feeder_sites"))
	require.Zero(t, r.count("trafficd_feeder_rejected_total"))

	requireStored := func() {
		t.Helper()
		r.AwaitDelivered()
		require.Equal(t, fmt.Sprintf("%d\t%d\t87696\t33912\t0\t%d", values, values, planted), c.Query(t, `SELECT count(), (SELECT count() FROM trafficd.measurements FINAL),
			countIf(measure_type_code LIKE 'flow%'), countIf(measure_type_code LIKE 'speed%'), countIf(value < 0),
			countIf(value = 0 AND measure_type_code LIKE 'speed%') FROM trafficd.measurements`))
		require.Len(t, k.Records(t, "measurements"), values)
	}
	requireStored()
	after, err := daemon.Stat()
	require.NoError(t, err)
	t.Logf("bench: feeds_daemon_cpu_with_both_stores %.2f s", after.CPUTime()-before.CPUTime())
	repeats, err := strconv.Atoi(cmp.Or(os.Getenv("NATION_REPEATS"), "2"))
	require.NoError(t, err)
	for n := range repeats {
		again := bytes.Clone(document) // with another ETag
		r.publish(again)
		r.Eventually(func() bool { return outcome("repeated") == float64(values*(n+1)) }, "the same values are pulled again")
	}
	require.EqualValues(t, values, outcome("new"))
	requireStored()
	t.Logf("%d times the same publication: nothing new in either store", repeats)
	r.logCosts()
	r.Terminate()
}

func (r *rig) logCosts() {
	r.T.Logf("bench: feeds_feeder_rss %.1f MB", r.count("process_resident_memory_bytes")/1e6)
	r.T.Logf("bench: feeds_feeder_cpu %.2f s", r.count("process_cpu_seconds_total"))
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

// TestHourWithoutDaemon publishes each minute of an hour while no daemon runs, kills the feeder in
// between, and then starts the daemon. Each value of each publication is once in the topic.
func TestHourWithoutDaemon(t *testing.T) {
	needs.Everything(t, "a broker")
	t.Parallel() // most of its time passes in waiting for the next pull
	k := stores.StartKafka(t, stores.Topic("measurements", 4))
	r := newRig(t, "ndw", "kafka.enabled=true", "kafka.brokers="+strings.Join(k.Brokers, ","))
	const minutes, sites = 60, 200
	r.publish(document(0, sites))
	r.startFeeder()
	for minute := range minutes {
		r.publish(document(minute, sites))
		end := float64(daemontest.Day.Add(time.Duration(minute+1) * time.Minute).Unix())
		require.Eventually(t, func() bool { return r.count("trafficd_feeder_newest_timestamp_seconds") == end }, time.Minute, 5*time.Millisecond)
		if minute%20 == 10 {
			require.NoError(t, r.feeder.Kill())
			r.startFeeder()
		}
	}
	r.Run()
	r.Eventually(func() bool {
		return r.count("trafficd_feeder_spool_bytes") == 0 && r.count("trafficd_feeder_sites") == sites
	}, "the spool is empty")
	r.AwaitDelivered()
	times := map[string]int{}
	for _, record := range k.Records(t, "measurements") {
		var m trafficdv1.Measurement
		require.NoError(t, proto.Unmarshal(record.Value, &m))
		times[fmt.Sprint(m.GetDetectorCode(), m.GetMeasureTypeCode(), m.GetTimestampFrom().GetSeconds())]++
	}
	require.Len(t, times, minutes*sites*2)
	for what, n := range times {
		require.Equal(t, 1, n, what)
	}
	t.Logf("an hour without a daemon: %d measurements, each once", len(times))
}

// TestFaults publishes a document each minute, FAULTS (27) of them, and causes a fault for each:
// kill -9 of the feeder or of the daemon at another moment each time, or a failure of the
// authority. Each value of each publication is once in both stores.
func TestFaults(t *testing.T) {
	needs.Everything(t, "ClickHouse and a broker")
	c, k := stores.StartClickHouse(t), stores.StartKafka(t, stores.Topic("measurements", 4))
	r := newRig(t, "ndw", "clickhouse.enabled=true", "clickhouse.addresses="+c.TCP, "kafka.enabled=true", "kafka.brokers="+strings.Join(k.Brokers, ","))
	minutes, err := strconv.Atoi(cmp.Or(os.Getenv("FAULTS"), "27"))
	require.NoError(t, err)
	const sites = 3000
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
	killFeeder := func() { require.NoError(t, r.feeder.Kill()); r.startFeeder() }
	killDaemon := func() { require.NoError(t, r.Kill()); r.Run() }
	pulled := func(minute int) { // waits for a request, and then a little longer each time
		before := r.gets.Load()
		require.Eventually(t, func() bool { return r.gets.Load() > before }, time.Minute, time.Millisecond)
		time.Sleep(time.Duration(minute%20) * 13 * time.Millisecond)
	}
	done := map[string]int{}
	for minute := range minutes {
		names := []string{"feeder pulls", "500", "daemon pulls", "HTML page", "feeder posted", "half a file", "daemon posted", "cut", "empty"}
		fault := names[minute%len(names)]
		done[fault]++
		if faults[fault] != nil {
			r.fault.Store(fault)
		}
		r.publish(document(minute, sites))
		switch fault {
		case "feeder pulls":
			pulled(minute)
			killFeeder()
		case "daemon pulls":
			pulled(minute)
			killDaemon()
		}
		end := int(daemontest.Day.Add(time.Duration(minute+1) * time.Minute).Unix())
		require.Eventually(t, func() bool { return spooled() == end || r.feeder.Exited() }, time.Minute, 5*time.Millisecond, fault)
		switch fault {
		case "feeder posted":
			killFeeder()
		case "daemon posted":
			killDaemon()
		}
	}
	r.Eventually(func() bool { return spooled() >= 0 && r.count("trafficd_feeder_spool_bytes") == 0 }, "the spool is empty")
	r.AwaitDelivered()
	values := minutes * sites * 2
	times := map[string]int{}
	for _, record := range k.Records(t, "measurements") {
		var m trafficdv1.Measurement
		require.NoError(t, proto.Unmarshal(record.Value, &m))
		times[fmt.Sprint(m.GetDetectorCode(), m.GetMeasureTypeCode(), m.GetTimestampFrom().GetSeconds(), m.GetValue())]++
	}
	require.Len(t, times, values)
	for what, n := range times {
		require.Equal(t, 1, n, what)
	}
	require.Equal(t, fmt.Sprintf("%d\t%d", values, values), c.Query(t, "SELECT count(), (SELECT count() FROM trafficd.measurements FINAL) FROM trafficd.measurements"))
	t.Logf("%d faults %v: %d values published, missing 0 duplicated 0 in both stores", minutes, done, values)
}

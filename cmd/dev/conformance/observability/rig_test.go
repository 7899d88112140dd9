package observability

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
	"golang.org/x/sys/unix"

	"trafficd/cmd/dev/launch"
	"trafficd/cmd/dev/traffic/town"
	"trafficd/pipeline/batch"
	"trafficd/pipeline/journal"
	"trafficd/pipeline/lib/durable"
	"trafficd/pipeline/lib/gunzip/compress"
	"trafficd/schemas/contract"
	"trafficd/schemas/geo"
	"trafficd/schemas/xroute"
	"trafficd/sources/routing"
)

// limit bounds every wait.
const limit = 3 * time.Minute

// programs returns the directory of trafficd and trafficctl.
func programs(t *testing.T) (dir string) {
	t.Helper()
	for _, name := range []string{"trafficd", "trafficctl"} {
		path, err := launch.Program(t.Context(), name)
		require.NoError(t, err)
		dir = filepath.Dir(path)
	}
	return dir
}

// daemon is a trafficd with a client that sends batches. Its name is also the name of its product
// instance and of its client, and the label instance in Prometheus.
type daemon struct {
	launch.Daemon
	t        *testing.T
	name     string
	programs string
	config   string       // file
	ops      string       // host:port of the operators' listener, or of a proxy
	silent   atomic.Bool  // send no batches
	stale    atomic.Int64 // send measurements of this Unix time; 0: of the present
	items    atomic.Int64 // number of items in a batch
	value    atomic.Int64 // value of the first item
	unknown  atomic.Bool  // send measurements of a detector that is not in the registry
}

// newDaemon configures a daemon, without stores unless the settings enable them. Its settings are
// in a file, as in production.
func newDaemon(t *testing.T, programs, name string, settings ...string) *daemon {
	t.Helper()
	d := &daemon{t: t, name: name, programs: programs, Daemon: launch.Daemon{Binary: filepath.Join(programs, "trafficd"), Dir: t.TempDir()}}
	d.items.Store(10)
	require.NoError(t, d.Configure(name, name, "ingest, routing", []string{"D1", "D2"},
		"journal.min_free_bytes=0", "clickhouse.enabled=false", "kafka.enabled=false"))
	d.Set(settings...)
	printed, err := exec.Command(d.Binary, append(d.Args, "--print-config")...).CombinedOutput()
	require.NoError(t, err, "%s", printed)
	d.config, d.ops = filepath.Join(d.Dir, "trafficd.yaml"), d.Ops
	require.NoError(t, os.WriteFile(d.config, printed, 0o600))
	d.Args = []string{"--config", d.config}
	return d
}

// start starts the daemon and returns when it is ready.
func (d *daemon) start() {
	require.NoError(d.t, d.Start())
	started := d.Process
	d.t.Cleanup(func() { _ = started.Kill() }) // fails only if it has exited
	require.NoError(d.t, d.AwaitReady(d.t.Context(), limit))
}

// addFrames restarts the daemon with further batches in its journal.
func (d *daemon) addFrames(batches ...*batch.Batch) {
	require.NoError(d.t, d.Signal(unix.SIGTERM))
	<-d.Done()
	cfg := journal.DefaultConfig()
	cfg.Dir = d.path("journal")
	j, err := journal.Open(cfg, nil)
	require.NoError(d.t, err)
	for _, b := range batches {
		e := &durable.Entry{Data: batch.AppendFrame(nil, b, nil)}
		require.NoError(d.t, j.Enqueue(e))
		require.NoError(d.t, e.Wait())
	}
	require.NoError(d.t, j.Close())
	d.start()
}

// load sends a batch every 250 ms until the test ends.
func (d *daemon) load() {
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	done := make(chan struct{})
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer close(done)
		for tick := time.NewTicker(250 * time.Millisecond); ctx.Err() == nil; <-tick.C {
			if !d.silent.Load() {
				d.send(ctx, client)
			}
		}
	}()
	d.t.Cleanup(func() { cancel(); <-done })
}

// send sends a batch. The outcome does not matter.
func (d *daemon) send(ctx context.Context, client *http.Client) {
	var items [][]byte
	now := time.Now()
	if stale := d.stale.Load(); stale != 0 {
		now = time.Unix(stale, 0)
	}
	for i := range d.items.Load() {
		code, value := "D1", i
		if i == 0 {
			value = d.value.Load()
		}
		if i%2 == 0 && d.unknown.Load() {
			code = "D3"
		}
		at := now.Add(-time.Duration(i) * time.Second)
		m := contract.Measurement{
			DetectorCode: code, MeasureTypeCode: "flow", TimestampFrom: at, TimestampTo: at, Value: json.Number(strconv.FormatInt(value, 10)),
		}
		items = append(items, m.AppendJSON(nil))
	}
	_, _ = launch.Post(ctx, client, d.url(), d.name, compress.Gzip(contract.Batch(items...)))
}

// url returns the base URL for clients.
func (d *daemon) url() string {
	if _, err := os.Stat(d.path("tls.crt")); err == nil {
		return "https://" + d.API
	}
	return "http://" + d.API
}

func (d *daemon) path(name string) string { return filepath.Join(d.Dir, name) }

// replace replaces a file atomically.
func (d *daemon) replace(name, text string) {
	require.NoError(d.t, os.WriteFile(d.path(name+".new"), []byte(text), 0o600))
	require.NoError(d.t, os.Rename(d.path(name+".new"), d.path(name)))
}

func (d *daemon) read(name string) string {
	text, err := os.ReadFile(d.path(name))
	require.NoError(d.t, err)
	return string(text)
}

// ctl runs trafficctl.
func (d *daemon) ctl(args ...string) {
	out, err := exec.CommandContext(d.t.Context(), filepath.Join(d.programs, "trafficctl"), args...).CombinedOutput()
	require.NoError(d.t, err, "%s", out)
}

// forecasts writes forecasts of 100 streets to forecasts.pb.
func (d *daemon) forecasts(from time.Time, periods int) {
	cfg := town.DefaultForecastConfig()
	cfg.Streets, cfg.From, cfg.Periods = 100, from.UTC(), periods
	require.NoError(d.t, town.WriteForecasts(d.path("forecasts.pb"), cfg))
}

// convert runs a job that converts geometries, until its results are fetched.
func (d *daemon) convert() {
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer transport.CloseIdleConnections()
	call := func(m xroute.Message) xroute.Response {
		envelope, err := xroute.AppendMessage(nil, m)
		require.NoError(d.t, err)
		r, err := launch.Request(d.t.Context(), &http.Client{Transport: transport}, http.MethodPost, d.url()+routing.Path, envelope,
			"Authorization", "apiKey "+d.name, "Content-Type", "text/xml; charset=utf-8", "SOAPAction", `""`)
		require.NoError(d.t, err)
		response, err := xroute.ReadResponse(bytes.NewReader(r.Body), xroute.DefaultLimits())
		require.NoError(d.t, err, "%s", r.Body)
		return response
	}
	var points []xroute.EncodedGeometry
	for range 100 {
		points = append(points, &xroute.Point{Encodings: xroute.Encodings{WKT: new("POINT (8.25 48.76)")}})
	}
	options := xroute.RequestOptions{ResponseGeometry: []xroute.GeometryEncoding{xroute.EncodingWKT}, CoordFormat: geo.Conform}
	started := call(&xroute.StartConvertGeometries{Geometries: points, Options: options}).(*xroute.StartConvertGeometriesResponse)
	id := *started.Result.ID
	for !call(&xroute.WatchJob{ID: id}).(*xroute.WatchJobResponse).Result.Status.Ended() {
	}
	fetched := call(&xroute.FetchConvertGeometries{ID: id}).(*xroute.FetchConvertGeometriesResponse)
	require.Len(d.t, fetched.Result.Geometries, len(points))
}

// certificate writes tls.crt and tls.key, valid for the given time.
func (d *daemon) certificate(validity time.Duration) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(d.t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(validity)}
	template.Subject.CommonName, template.DNSNames = "traffic.example.org", []string{"traffic.example.org"}
	host, _, err := net.SplitHostPort(d.API)
	require.NoError(d.t, err)
	template.IPAddresses = []net.IP{net.ParseIP(host)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(d.t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(d.t, err)
	d.replace("tls.crt", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	d.replace("tls.key", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})))
}

// keys returns a keys file with the key of the daemon's client and additional lines.
func (d *daemon) keys(more string) string {
	return fmt.Sprintf("keys:\n- {name: %[1]s, sha256: %[2]x, product_instance: %[1]s, rights: [ingest]}\n%[3]s", d.name, sha256.Sum256([]byte(d.name)), more)
}

// prom is a real Prometheus that loads alerts.yml with minutes replaced by seconds.
type prom struct {
	t       *testing.T
	address string
}

// faster maps alerts to numbers of seconds in their expressions that are not durations, and to
// their replacements.
var faster = map[string][2]string{
	"TrafficdDeliveryLag":  {"> 120", "> 8"},
	"TrafficdJournalFull":  {"< 4 * 3600", "< 4 * 60"},
	"TrafficdDiskLow":      {"< 4 * 3600", "< 0"}, // disabled, because others use the machine's disk, too
	"TrafficdClientSilent": {", 300)", ", 5)"},
	"TrafficdClientStale":  {", 300)", ", 5)"},
	"TrafficdFeedUnsent":   {"> 600", "> 10"},

	"TrafficdArchiveViewsStale": {", 600)", ", 40)"},
}

var duration = regexp.MustCompile(`(\[|offset )(\d+)([mhd])`)

// minutesToSeconds divides the durations of a rule by 60. Because the machine may be busy, alerts
// wait at least 5 s, and TrafficdDown waits 20 s.
func minutesToSeconds(t *testing.T, rule map[string]any) {
	t.Helper()
	seconds := func(number, unit string) int {
		n, err := strconv.Atoi(number)
		require.NoError(t, err)
		return n * map[string]int{"m": 1, "h": 60, "d": 24 * 60}[unit]
	}
	name, _ := rule["alert"].(string)
	expr := rule["expr"].(string)
	if change, ok := faster[name]; ok {
		require.Contains(t, expr, change[0], name)
		expr = strings.ReplaceAll(expr, change[0], change[1])
	}
	rule["expr"] = duration.ReplaceAllStringFunc(expr, func(text string) string {
		m := duration.FindStringSubmatch(text)
		return fmt.Sprintf("%s%ds", m[1], seconds(m[2], m[3]))
	})
	if wait, ok := rule["for"].(string); ok {
		minimum := 5
		if name == "TrafficdDown" {
			minimum = 20
		}
		rule["for"] = fmt.Sprintf("%ds", max(minimum, seconds(wait[:len(wait)-1], wait[len(wait)-1:])))
	}
}

// startPrometheus starts a Prometheus that scrapes the daemons every second.
func startPrometheus(t *testing.T, daemons []*daemon) *prom {
	t.Helper()
	var rules struct {
		Groups []struct {
			Name  string
			Rules []map[string]any
		}
	}
	parse(t, "alerts.yml", &rules)
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			minutesToSeconds(t, r)
		}
	}
	dir := t.TempDir()
	write := func(name string, v any) {
		text, err := yaml.Marshal(v)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), text, 0o600))
	}
	write("alerts.yml", rules)
	var targets []any
	for _, d := range daemons {
		targets = append(targets, map[string]any{"targets": []string{d.ops}, "labels": map[string]string{"instance": d.name, "service": d.name}})
	}
	write("prometheus.yml", map[string]any{
		"global":         map[string]string{"scrape_interval": "1s", "evaluation_interval": "1s"},
		"rule_files":     []string{"alerts.yml"},
		"scrape_configs": []any{map[string]any{"job_name": "trafficd", "static_configs": targets}},
	})
	program, err := exec.LookPath("prometheus")
	require.NoError(t, err)
	p := &prom{t: t}
	p.address, err = launch.FreeAddress()
	require.NoError(t, err)
	log := new(bytes.Buffer)
	cmd := exec.CommandContext(t.Context(), program, "--config.file="+filepath.Join(dir, "prometheus.yml"),
		"--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+p.address)
	cmd.Stdout, cmd.Stderr = log, log
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		require.NotContains(t, log.String(), "level=error")
	})
	return p
}

// series is a result of a query.
type series struct {
	Metric map[string]string
	Value  [2]any // time, number as text
}

func (p *prom) query(ctx context.Context, query string) (all []series, err error) {
	var response struct {
		Error string
		Data  struct{ Result []series }
	}
	err = p.get(ctx, "/api/v1/query?query="+url.QueryEscape(query), &response)
	if err == nil && response.Error != "" {
		err = fmt.Errorf("%s: %s", query, response.Error)
	}
	return response.Data.Result, err
}

func (p *prom) get(ctx context.Context, path string, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.address+path, nil)
	if err != nil {
		return err
	}
	r, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer r.Body.Close()
	return json.NewDecoder(r.Body).Decode(into)
}

// await waits until the query has a result.
func (p *prom) await(query string) {
	p.t.Helper()
	require.NoError(p.t, launch.Eventually(p.t.Context(), limit, func() error {
		all, err := p.query(p.t.Context(), query)
		if err == nil && len(all) == 0 {
			err = fmt.Errorf("no result for %s", query)
		}
		return err
	}))
}

package observability

import (
	"bytes"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sys/unix"

	"trafficd/cmd/dev/devstores/stores"
	"trafficd/cmd/dev/launch"
	"trafficd/cmd/dev/needs"
	"trafficd/pipeline/batch"
	"trafficd/pipeline/kafkalog"
	"trafficd/pipeline/lib/durable"
	"trafficd/pipeline/lib/metrics"
)

// fault is a failure of a daemon, and the alerts that it raises.
type fault struct {
	alerts   string // all alerts that fire, separated by spaces; the test follows the runbook's section of the first
	name     string // of the daemon
	settings []string
	prepare  func(d *daemon) // before the start; may be nil
	inject   func(d *daemon) // causes the failure after Prometheus has seen the daemon working; may be nil
	env      []string        // additional environment variables for the runbook's commands
}

// faults returns one healthy daemon, and at least one fault for each alert.
func faults(t *testing.T) []fault {
	archive, broker := stores.StartClickHouse(t), stores.StartKafka(t, stores.Topic("forecasts", 1))
	lostArchive, lostBroker, hungBroker := stores.StartClickHouse(t), stores.StartKafka(t), stores.StartKafka(t)
	cluster := stores.StartCluster(t, "1")
	server := httptest.NewTLSServer(nil)
	server.Close() // only its certificate is used
	encrypted := stores.StartKfake(t, kfake.TLS(&tls.Config{Certificates: server.TLS.Certificates})).ListenAddrs()[0]
	unused, err := launch.FreeAddress()
	require.NoError(t, err)
	kafka := func(k *stores.Kafka, settings ...string) []string {
		return append(settings, "kafka.enabled=true", "kafka.brokers="+k.Brokers[0], "kafka.create_topic.partitions=2")
	}
	const derived = "clickhouse.derive_interval=1s" // far less than TrafficdArchiveViewsStale allows, for a busy machine
	clickhouse := func(c *stores.ClickHouse, database string) []string {
		return []string{"clickhouse.enabled=true", "clickhouse.addresses=" + c.TCP, "clickhouse.database=" + database, "clickhouse.delivery.linger=100ms", derived}
	}
	tls := func(validity time.Duration) func(d *daemon) {
		return func(d *daemon) {
			d.certificate(validity)
			d.replace("trafficd.yaml", strings.NewReplacer(`tls_cert: ""`, "tls_cert: "+d.path("tls.crt"), `tls_key: ""`, "tls_key: "+d.path("tls.key")).
				Replace(d.read("trafficd.yaml")))
		}
	}
	publish := func(d *daemon, from time.Time) {
		d.forecasts(from, 4)
		d.ctl("forecast", "publish", d.path("forecasts.pb"), "--quiet", "--tombstone-missing", "--brokers", broker.Brokers[0])
	}
	found := func(instance, state, detector, rule string) func(d *daemon) { // as a forecaster would record it
		return func(*daemon) {
			archive.Query(t, fmt.Sprintf("INSERT INTO %[1]s.measurements_health SELECT '%[1]s', s.1, s.2, s.3, now() - 3600, now(), '%[4]s' "+
				"FROM (SELECT arrayJoin([('%[2]s', '%[3]s', 'speed'), ('checked', '', '%[2]s')]) AS s)", instance, state, detector, rule))
		}
	}
	var panicked atomic.Bool
	var kill sync.Once // once for the daemons that share the broker
	killBroker := func(*daemon) { kill.Do(func() { require.NoError(t, lostBroker.Kill()) }) }

	return []fault{
		{
			name: "healthy", settings: append(clickhouse(archive, "healthy"), kafka(broker, "forecasts.feed=file", "forecasts.file.path=forecasts.pb")...),
			prepare: func(d *daemon) {
				tls(100 * 24 * time.Hour)(d)
				d.replace("keys.yaml", strings.Replace(d.keys(""), "[ingest]", "[ingest, forecast, routing]", 1))
				d.forecasts(time.Now().Truncate(15*time.Minute), 24)
			},
		},
		{alerts: "TrafficdDown", name: "down", inject: func(d *daemon) {
			require.NoError(t, d.Kill())
			d.replace("trafficd.yaml", d.read("trafficd.yaml")+"journals: {}\n")
			require.NoError(t, d.Start())
		}},
		{alerts: "TrafficdNotReady", name: "unready", inject: func(d *daemon) { d.replace("keys.yaml", "keys: []\n") }},
		{alerts: "TrafficdRestarts", name: "restarting"},
		{alerts: "TrafficdClockSkew", name: "skewed", prepare: func(d *daemon) {
			d.ops = falsify(t, d.Ops, "trafficd_ops_time_seconds", func(v float64) float64 { return v + 120 })
		}},
		{alerts: "TrafficdClockWrong", name: "ahead", inject: func(d *daemon) { // restarts it with a frame from the future
			d.addFrames(&batch.Batch{ProductInstance: d.name, ReceivedAt: time.Now().Add(100 * time.Hour).UnixNano()})
		}},
		// The delivery pauses for longer than the rig's two minutes.
		{alerts: "TrafficdBrokenPromise TrafficdStoreUnreachable", name: "promise", settings: clickhouse(archive, "promise"), inject: func(d *daemon) {
			b := batch.Batch{ProductInstance: d.name, ReceivedAt: time.Now().Add(-time.Hour).UnixNano(), Index: []uint32{0}}
			b.Extend(1)
			b.TypeText, b.TypeEnd = []byte("speed"), []uint32{5}
			later := b
			later.ReceivedAt += int64(time.Minute)
			d.addFrames(&later, &b)
		}},
		{alerts: "TrafficdCertificateExpires", name: "expiring", prepare: tls(10*24*time.Hour + time.Hour)},
		{
			alerts: "TrafficdCertificateInvalid", name: "wrong-key", prepare: tls(100 * 24 * time.Hour),
			inject: func(d *daemon) { d.replace("tls.key", "") },
		},
		{
			alerts: "TrafficdClientCertificateExpires", name: "client-expiring",
			settings: []string{
				"kafka.enabled=true", "kafka.brokers=" + encrypted, "kafka.create_topic.partitions=1",
				"kafka.tls.enabled=true", "kafka.tls.ca=server.crt", "kafka.tls.cert=client.crt", "kafka.tls.key=client.key",
			},
			prepare: func(d *daemon) {
				d.certificate(10*24*time.Hour + time.Hour)
				for _, name := range []string{"crt", "key"} {
					require.NoError(t, os.Rename(d.path("tls."+name), d.path("client."+name)))
				}
				broker := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
				require.NoError(t, os.WriteFile(d.path("server.crt"), broker, 0o600))
			},
			env: []string{"FILE=client.crt"},
		},
		{alerts: "TrafficdSettingsStale", name: "invalid", inject: func(d *daemon) {
			d.replace("trafficd.yaml", regexp.MustCompile(`level: \w+`).ReplaceAllString(d.read("trafficd.yaml"), "level: loud"))
			require.NoError(t, d.Process.Signal(unix.SIGHUP))
		}},
		{
			alerts: "TrafficdPanics", name: "panicking",
			prepare: func(d *daemon) {
				d.ops = falsify(t, d.Ops, "trafficd_api_panics_total", func(v float64) float64 { return v + metrics.Bool(panicked.Load()) })
			},
			inject: func(*daemon) { panicked.Store(true) },
		},
		{alerts: "TrafficdKeysInvalid", name: "keys", inject: func(d *daemon) {
			d.replace("keys.yaml", d.keys("- {name: new, rights: [ingets]}\n"))
		}},
		{
			alerts: "TrafficdStoreUnreachable", name: "no-archive", settings: clickhouse(lostArchive, "traffic"),
			inject: func(*daemon) { require.NoError(t, lostArchive.Kill()) },
		},
		{alerts: "TrafficdArchiveServersUnavailable", name: "replica", settings: []string{
			"clickhouse.enabled=true", "clickhouse.cluster=main", "clickhouse.addresses=" + cluster.Nodes[0].TCP + "," + unused, derived,
		}},
		{alerts: "TrafficdStoreUnreachable", name: "no-broker", settings: kafka(lostBroker), inject: killBroker},
		{
			alerts: "TrafficdDeliveryLag", name: "hung", settings: kafka(hungBroker, "kafka.request_timeout=5m"),
			inject: func(*daemon) { require.NoError(t, hungBroker.Pause()) },
		},
		{
			alerts: "TrafficdJournalFull TrafficdStoreUnreachable", name: "journal",
			settings: kafka(lostBroker, "kafka.topic=other", "journal.max_frame_bytes=1MiB", "journal.max_bytes=64MiB"),
			inject:   func(d *daemon) { d.items.Store(10_000); killBroker(d) },
		},
		{alerts: "TrafficdDiskLow", name: "disk", prepare: func(d *daemon) {
			free, err := exec.Command("df", "--output=avail", "--block-size=1", d.Dir).Output()
			require.NoError(t, err)
			bytes, err := strconv.ParseInt(strings.Fields(string(free))[1], 10, 64)
			require.NoError(t, err)
			d.replace("trafficd.yaml", strings.ReplaceAll(d.read("trafficd.yaml"), "min_free_bytes: 0", fmt.Sprint("min_free_bytes: ", bytes*2/3)))
		}},
		{
			alerts: "TrafficdJournalErrors", name: "moved", settings: []string{"journal.max_frame_bytes=8KiB", "journal.max_bytes=2MiB"},
			inject: func(d *daemon) { require.NoError(t, os.Rename(d.path("journal"), d.path("moved"))) },
		},
		{
			alerts: "TrafficdLogDeleted", name: "deleting", settings: append(clickhouse(archive, "deleting"),
				"journal.kind=kafka", "journal.log.topic=deleting", "journal.log.partitions=1", "journal.log.brokers="+broker.Brokers[0]),
			inject: func(d *daemon) { // restarts it after the broker has deleted a batch that waited for it
				require.NoError(t, d.Signal(unix.SIGTERM))
				<-d.Done()
				cfg := kafkalog.DefaultConfig()
				cfg.Brokers, cfg.Topic, cfg.Partitions = broker.Brokers, "deleting", 1
				log, err := kafkalog.Open(cfg, nil, time.Hour, zerolog.Nop())
				require.NoError(t, err)
				require.NoError(t, launch.Eventually(t.Context(), limit, func() error { return log.Ready("") }))
				e := &durable.Entry{Data: batch.AppendFrame(nil, &batch.Batch{ProductInstance: d.name, ReceivedAt: time.Now().UnixNano()}, nil)}
				require.NoError(t, log.Enqueue(e))
				require.NoError(t, errors.Join(e.Wait(), log.Close(t.Context())))
				client, err := kgo.NewClient(kgo.SeedBrokers(broker.Brokers...))
				require.NoError(t, err)
				defer client.Close()
				admin := kadm.NewClient(client)
				ends, err := admin.ListEndOffsets(t.Context(), "deleting")
				require.NoError(t, err)
				deleted, err := admin.DeleteRecords(t.Context(), ends.Offsets())
				require.NoError(t, errors.Join(err, deleted.Error()))
				d.start()
			},
		},
		{
			alerts: "TrafficdDeadLetters", name: "refusing", settings: clickhouse(archive, "refusing"),
			inject: func(d *daemon) {
				archive.Query(t, "ALTER TABLE refusing.measurements ADD CONSTRAINT plausible CHECK value < 1000")
				d.items.Store(1) // so that the sink finds the rejected row soon
				d.value.Store(5000)
				require.NoError(t, launch.Eventually(t.Context(), limit, func() error {
					m, err := d.Metrics(t.Context())
					if err == nil && !(m.Sum("trafficd_pipeline_dead_letters_total") > 0) {
						err = errors.New("no dead letter")
					}
					return err
				}))
				d.value.Store(5)
				d.items.Store(10)
			},
		},
		{
			alerts: "TrafficdRecordQuarantined", name: "foreign", settings: append(clickhouse(archive, "foreign"),
				"journal.kind=kafka", "journal.log.topic=foreign", "journal.log.partitions=1", "journal.log.brokers="+broker.Brokers[0]),
			inject: func(d *daemon) {
				client, err := kgo.NewClient(kgo.SeedBrokers(broker.Brokers...), kgo.DefaultProduceTopic("foreign"))
				require.NoError(t, err)
				defer client.Close()
				require.NoError(t, client.ProduceSync(t.Context(), kgo.StringRecord("not a batch")).FirstErr())
			},
		},
		{
			alerts: "TrafficdArchiveViewsStale", name: "underived", settings: clickhouse(archive, "underived"),
			inject: func(*daemon) {
				archive.Query(t, "RENAME TABLE underived.measurements_hours TO underived.away")
			},
		},
		{
			alerts: "TrafficdDetectorsStopped", name: "stopped", settings: clickhouse(archive, "stopped"),
			inject: found("stopped", "feed", "", "4711 detectors stopped sending speed together at 2026-01-02 03:00 UTC"),
		},
		{
			alerts: "TrafficdDetectorsSick", name: "sick", settings: clickhouse(archive, "sick"),
			inject: found("sick", "constant", "D1", "speed is 57 in all intervals of the last 8 hours"),
		},
		{alerts: "TrafficdClientSilent", name: "silent", inject: func(d *daemon) { d.silent.Store(true) }},
		{alerts: "TrafficdClientStale", name: "stale", inject: func(d *daemon) { d.stale.Store(time.Now().Unix()) }},
		{alerts: "TrafficdRejectionsJump", name: "jump", inject: func(d *daemon) { d.unknown.Store(true) }},
		{alerts: "TrafficdKeyExpires", name: "key-expiring", inject: func(d *daemon) {
			expires := time.Now().Add(10*24*time.Hour + time.Hour).UTC().Format(time.RFC3339)
			d.replace("keys.yaml", strings.Replace(d.keys(""), "rights:", "expires: "+expires+", rights:", 1))
		}},
		{alerts: "TrafficdPlacesMissing", name: "places", inject: func(d *daemon) {
			d.replace("detectors.csv", "code,longitude,latitude\nD1,0,0\nD2,10.2,56.1\n")
		}},
		{alerts: "TrafficdRegistryStale", name: "registry", inject: func(d *daemon) { require.NoError(t, os.Remove(d.path("detectors.csv"))) }},
		{
			alerts: "TrafficdForecastsStale", name: "forecasts", settings: []string{"forecasts.feed=kafka", "forecasts.kafka.brokers=" + broker.Brokers[0]},
			prepare: func(d *daemon) { publish(d, time.Now().Add(-3*time.Hour)) },
			env:     []string{"BROKERS=" + broker.Brokers[0]},
		},
	}
}

// TestFaults injects a fault into each of many daemons. It checks that exactly the alerts of the
// fault fire, that the commands in the alert's section of the runbook print what the section says,
// and that each panel of the dashboards has data.
func TestFaults(t *testing.T) {
	needs.Everything(t, "real stores and Prometheus")
	t.Parallel()
	programs, all := programs(t), faults(t)
	for _, a := range readAlerts(t) {
		if strings.HasPrefix(a.Alert, "TrafficdFeed") || a.Alert == "TrafficdForecasterFailing" {
			continue // see TestFeederFaults and TestForecasterFaults
		}
		require.True(t, slices.ContainsFunc(all, func(f fault) bool { return slices.Contains(strings.Fields(f.alerts), a.Alert) }), "no fault raises %s", a.Alert)
	}
	var daemons []*daemon
	for i := range all {
		f := &all[i]
		d := newDaemon(t, programs, f.name, f.settings...)
		if f.prepare != nil {
			f.prepare(d)
		}
		daemons = append(daemons, d)
	}
	for _, d := range daemons {
		d.start()
		d.load()
	}
	p := startPrometheus(t, daemons)
	// TrafficdRejectionsJump compares the share of rejected measurements with the share 15 minutes
	// before, which are 15 seconds here.
	p.await(fmt.Sprintf(`count(count_over_time(trafficd_ops_ready[5m]) > 16) == %d`, len(daemons)))
	for i, d := range daemons {
		if inject := all[i].inject; inject != nil {
			inject(d)
		}
		if all[i].name == "restarting" {
			for n := range 3 { // Prometheus must see each start
				require.NoError(t, d.Kill())
				d.start()
				p.await(fmt.Sprintf("changes(process_start_time_seconds{instance=%q}[5m]) > %d", d.name, n))
			}
		}
	}
	// fired returns the alerts about a daemon that have fired at any time. They may resolve while
	// the sections of other alerts are followed.
	fired := func(name string) (names []string, err error) {
		alerts, err := p.query(t.Context(), `max by (alertname, instance, client, product_instance) (max_over_time(ALERTS{alertstate="firing"}[10m]))`)
		for _, s := range alerts {
			if slices.Contains([]string{s.Metric["instance"], s.Metric["client"], s.Metric["product_instance"]}, name) {
				names = append(names, s.Metric["alertname"])
			}
		}
		slices.Sort(names)
		return names, err
	}
	runbooks := map[string]string{}
	for _, a := range readAlerts(t) {
		_, runbooks[a.Alert], _ = strings.Cut(a.Annotations["runbook_url"], "#")
	}
	for i, d := range daemons {
		t.Run(all[i].name, func(t *testing.T) {
			want := strings.Fields(all[i].alerts)
			require.NoError(t, launch.Eventually(t.Context(), limit, func() error {
				names, err := fired(d.name)
				if err == nil && !slices.Equal(names, slices.Sorted(slices.Values(want))) {
					err = fmt.Errorf("got alerts %v, want %v", names, want)
				}
				return err
			}))
			if len(want) > 0 {
				follow(t, d, runbooks[want[0]], all[i].env)
			}
		})
	}
	t.Run("dashboards", func(t *testing.T) {
		d := daemons[slices.IndexFunc(all, func(f fault) bool { return f.name == "healthy" })]
		d.t = t
		requireData(t, p, d, func(board string) bool {
			return !slices.Contains([]string{forecasterBoard, feederBoard, archiveDashboard}, board)
		}, func() {
			d.ctl("forecast", "get", "--url", d.url(), "--ca", d.path("tls.crt"), "--key", d.name)
			d.convert()
		})
	})
	for i, d := range daemons {
		names, err := fired(d.name)
		require.NoError(t, err)
		require.ElementsMatch(t, strings.Fields(all[i].alerts), names, "other alerts about %s have fired in the meantime", d.name)
	}
}

// falsify returns the address of a proxy of an operators' listener that reports another value of a
// metric without labels.
func falsify(t *testing.T, address, metric string, value func(float64) float64) string {
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(&url.URL{Scheme: "http", Host: address})
		r.Out.Header.Del("Accept-Encoding")
		r.Out.Header.Del("Accept") // the text format
	}}
	proxy.ErrorLog = log.New(io.Discard, "", 0) // clients disconnect when the test ends
	sample := regexp.MustCompile(`(?m)^` + metric + ` (.*)$`)
	proxy.ModifyResponse = func(r *http.Response) error {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return err
		}
		body = sample.ReplaceAllFunc(body, func(line []byte) []byte {
			v, _ := strconv.ParseFloat(strings.Fields(string(line))[1], 64)
			return fmt.Appendf(nil, "%s %s", metric, strconv.FormatFloat(value(v), 'f', -1, 64))
		})
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		r.Header.Set("Content-Length", strconv.Itoa(len(body)))
		return nil
	}
	server := httptest.NewServer(proxy)
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

// runbook is deployments/runbook.md.
var runbook = sync.OnceValue(func() string {
	text, err := os.ReadFile(filepath.Join(deployments, "runbook.md"))
	if err != nil {
		panic(err)
	}
	return string(text)
})

// sectionOf returns the text of the section with the anchor.
func sectionOf(t *testing.T, anchor string) string {
	t.Helper()
	for section := range strings.SplitSeq(runbook(), "\n## ") {
		if title, text, _ := strings.Cut(section, "\n"); strings.ToLower(title) == anchor {
			return text
		}
	}
	t.Fatalf("the runbook has no section #%s", anchor)
	return ""
}

// block matches a block of commands in the runbook, followed by their output for one of the faults.
var block = regexp.MustCompile("(?s)```sh\n(.*?)```\n(?:```text\n(.*?)```\n)?")

// follow runs the commands of a section of the runbook and compares what they print.
func follow(t *testing.T, d *daemon, anchor string, env []string) {
	t.Helper()
	blocks := block.FindAllStringSubmatch(sectionOf(t, anchor), -1)
	require.NotEmpty(t, blocks)
	for _, b := range blocks {
		cmd := exec.CommandContext(t.Context(), "bash", "-c", `logs() { cat "$LOG"; }`+"\n"+b[1])
		cmd.Dir = d.Dir
		cmd.Env = append(os.Environ(), append([]string{
			"PATH=" + d.programs + ":" + os.Getenv("PATH"), "OPS=" + d.ops, "CONFIG=" + d.config, "JOURNAL=" + d.path("journal"),
			"LOG=" + d.path("trafficd.log"), "CLIENT=" + d.name,
		}, env...)...)
		out, _ := cmd.CombinedOutput() // some commands fail because of the fault
		requirePrinted(t, b[2], string(out), b[1])
	}
}

// requirePrinted requires the lines of want in out, in this order. An ellipsis in a line of want
// matches any text.
func requirePrinted(t *testing.T, want, out, command string) {
	t.Helper()
	rest := out
	for line := range strings.Lines(want) {
		parts := strings.Split(strings.TrimSpace(line), "…")
		for i := range parts {
			parts[i] = regexp.QuoteMeta(parts[i])
		}
		at := regexp.MustCompile(strings.Join(parts, ".*")).FindStringIndex(rest)
		require.NotNil(t, at, "got output\n%s\nof\n%s\nwant\n%s\nfrom the runbook; missing line %q", out, command, want, strings.TrimSpace(line))
		rest = rest[at[1]:]
	}
}

// TestRunbook checks that each alert has a section with all parts.
func TestRunbook(t *testing.T) {
	needs.Everything(t, "real stores and Prometheus")
	for _, a := range readAlerts(t) {
		section := sectionOf(t, strings.ToLower(a.Alert))
		at := 0
		for _, part := range []string{"**Means.**", "**Look.**", "```sh\n", "**Do.**", "**Do not.**"} {
			next := strings.Index(section[at:], part)
			require.GreaterOrEqual(t, next, 0, "%s has no %q, or not in this order", a.Alert, part)
			at += next
		}
	}
}

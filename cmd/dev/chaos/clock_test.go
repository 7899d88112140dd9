package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"trafficd/cmd/dev/chaos/internal/faultinject"
	"trafficd/cmd/dev/devstores/stores"
	"trafficd/cmd/dev/launch"
	"trafficd/cmd/dev/needs"
	"trafficd/pipeline/lib/gunzip/compress"
	"trafficd/schemas/contract"
)

const (
	year      = 365 * 24 * time.Hour
	batchRows = 500
)

// skewed is a daemon whose clock the test sets, with real stores.
type skewed struct {
	t *testing.T
	launch.Daemon
	faults    *faultinject.Faults
	archive   *stores.ClickHouse
	broker    *stores.Kafka
	batches   int
	responses map[int]int // number of batches, by status
}

func startSkewed(t *testing.T, binary string, settings ...string) *skewed {
	archive := stores.StartClickHouse(t)
	broker := stores.StartKafka(t, stores.Broker(stores.Apache), stores.Topic("measurements", 4))
	faults, err := faultinject.New(filepath.Join(t.TempDir(), "faults"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, faults.Close()) })
	d := &skewed{t: t, faults: faults, archive: archive, broker: broker, responses: map[int]int{}}
	d.Daemon = launch.Daemon{Binary: binary, Dir: t.TempDir(), Env: []string{faults.Env()}}
	brokers := strings.Join(broker.Brokers, ",")
	require.NoError(t, d.Configure("city", "tk_skewed", "ingest", []string{"A"}, "journal.min_free_bytes=0",
		"clickhouse.addresses="+archive.TCP, "kafka.brokers="+brokers, "journal.log.brokers="+brokers))
	d.Set(settings...)
	return d
}

func (d *skewed) start() {
	d.t.Helper()
	require.NoError(d.t, d.Start())
	started := d.Process
	d.t.Cleanup(func() { _ = started.Kill() })
}

// skew sets how far the daemon's clock is ahead.
func (d *skewed) skew(ahead time.Duration) { require.NoError(d.t, d.faults.Skew(ahead)) }

// send sends a batch until the daemon responds with one of the given statuses.
func (d *skewed) send(statuses ...int) {
	d.t.Helper()
	var items [][]byte
	d.batches++
	begin := time.Now().UTC().Add(time.Duration(d.batches)*time.Minute - time.Hour) // no measurement replaces another one
	for i := range batchRows {
		at := begin.Add(time.Duration(i) * time.Millisecond)
		m := contract.Measurement{DetectorCode: "A", MeasureTypeCode: "speed", TimestampFrom: at, TimestampTo: at, Value: json.Number(strconv.Itoa(i))}
		items = append(items, m.AppendJSON(nil))
	}
	body := compress.Gzip(contract.Batch(items...))
	require.NoError(d.t, launch.Eventually(d.t.Context(), time.Minute, func() error {
		r, err := launch.Post(d.t.Context(), http.DefaultClient, "http://"+d.API, "tk_skewed", body)
		for _, want := range statuses {
			if err == nil && r.Status == want {
				d.responses[want]++
				return nil
			}
		}
		return fmt.Errorf("got status %d: %s %w", r.Status, r.Body, err)
	}))
}

// awaitReason waits until the daemon is not ready for a reason.
func (d *skewed) awaitReason(want string) {
	d.t.Helper()
	require.NoError(d.t, launch.Eventually(d.t.Context(), time.Minute, func() error {
		if status, body := d.Readyz(d.t.Context()); status != http.StatusServiceUnavailable || !strings.Contains(body, want) {
			return fmt.Errorf("got status %d, want the reason %q: %s", status, want, body)
		}
		return nil
	}))
	m, err := d.Metrics(d.t.Context())
	require.NoError(d.t, err)
	require.EqualValues(d.t, 1, m.Sum("trafficd_pipeline_clock_wrong"))
}

// awaitCounts waits until the stores have the rows of that many batches.
func (d *skewed) awaitCounts(archived, forwarded int) {
	d.t.Helper()
	var rows, records string
	require.NoError(d.t, launch.Eventually(d.t.Context(), time.Minute, func() error {
		text, err := d.archive.Do(d.t.Context(), "SELECT count(), uniqExact(batch_id, batch_index) FROM trafficd.measurements")
		if err != nil { // the daemon has not created the table yet
			return err
		}
		rows = strings.TrimSpace(text)
		records = fmt.Sprint(d.broker.Count(d.t, "measurements"))
		want := fmt.Sprintf("%d\t%d", archived*batchRows, archived*batchRows)
		if rows != want || records != fmt.Sprint(forwarded*batchRows) {
			return fmt.Errorf("got rows %q and records %q, want %q and %d", rows, records, want, forwarded*batchRows)
		}
		return nil
	}))
	d.t.Logf("sent %d, accepted %d, rejected %d; rows %s, records %s", batchRows*(d.responses[207]+d.responses[503]),
		batchRows*d.responses[207], batchRows*d.responses[503], strings.Fields(rows)[0], records)
}

// jump sets the clock ahead, which ends with 503s, and back.
func (d *skewed) jump() {
	d.t.Helper()
	d.skew(year)
	d.awaitReason("the clock has jumped ahead by 87")
	d.send(503)
	d.skew(0)
	d.send(207)
}

func (d *skewed) terminate() {
	d.t.Helper()
	require.NoError(d.t, d.Signal(syscall.SIGTERM))
	<-d.Done()
	require.Zero(d.t, d.State().ExitCode(), d.LogTail())
}

// TestClock starts a daemon with a wrong clock, accepts a batch and corrects the clock. Kafka
// refuses the batch. No further one is accepted until trafficctl journal restamp has corrected the
// journal; then both stores get each measurement once. Later jumps of the clock have no effect but
// 503s.
func TestClock(t *testing.T) {
	needs.Everything(t, "a second build of the daemon, with another clock")
	dir := t.TempDir()
	overlay, err := faultinject.Overlay(t.Context(), filepath.Join(dir, "overlay"))
	require.NoError(t, err)
	binary := filepath.Join(dir, "trafficd")
	require.NoError(t, launch.Build(t.Context(), overlay, "-o", binary, "./cmd/trafficd"))
	ctl, err := launch.Program(t.Context(), "trafficctl")
	require.NoError(t, err)
	runbook, err := os.ReadFile(filepath.Join("..", "..", "..", "deployments", "runbook.md"))
	require.NoError(t, err)

	t.Run("local", func(t *testing.T) {
		d := startSkewed(t, binary)
		d.skew(year)
		d.start()
		d.send(207)
		d.skew(0)
		rejecting := func() {
			t.Helper()
			d.awaitReason("ahead of the clock")
			d.send(503)
			d.awaitCounts(1, 0)
		}
		rejecting()
		require.NoError(t, d.Kill()) // with a block of Kafka in flight
		d.start()
		rejecting()
		require.Contains(t, d.Log(), "rejecting batches because of the clock")
		d.terminate()
		out, err := exec.Command(ctl, "journal", "restamp", filepath.Join(d.Dir, "journal")).CombinedOutput()
		require.NoError(t, err, string(out))
		t.Log(string(out))
		require.Contains(t, string(out), "restamped frames 1 to 1: received_at is now 20")
		require.Contains(t, string(out), "clickhouse has the measurements before frame 2 with their old received_at")
		d.start()
		d.send(207)
		d.awaitCounts(2, 2)

		d.jump()
		d.awaitCounts(3, 3)
		const ahead = "SELECT count() FROM trafficd.measurements WHERE received_at > now() + 60"
		require.Equal(t, fmt.Sprint(batchRows), strings.TrimSpace(d.archive.Query(t, ahead)), "the rows from before the correction")

		_, section, _ := strings.Cut(string(runbook), "\n## TrafficdClockWrong\n")
		_, section, _ = strings.Cut(section, "```sql\n")
		statements, _, _ := strings.Cut(section, "```")
		for statement := range strings.SplitSeq(strings.TrimSpace(statements), ";\n") {
			t.Log(strings.TrimSpace(d.archive.Query(t, strings.TrimSuffix(statement, ";"))))
		}
		require.Equal(t, "0", strings.TrimSpace(d.archive.Query(t, ahead)))
		d.terminate()
		out, err = exec.Command(binary, append([]string{"migrate"}, d.Args...)...).CombinedOutput()
		require.NoError(t, err, string(out))
		d.start()
		d.send(207)
		d.awaitCounts(4, 4)
		require.NoError(t, launch.Eventually(t.Context(), time.Minute, func() error {
			total, err := d.archive.Do(t.Context(), "SELECT sum(count) FROM trafficd.measurements_1h")
			if err == nil && strings.TrimSpace(total) != fmt.Sprint(4*batchRows) {
				err = fmt.Errorf("measurements_1h has %s measurements", total)
			}
			return err
		}))
	})

	t.Run("log in Kafka", func(t *testing.T) {
		d := startSkewed(t, binary, "journal.kind=kafka")
		d.skew(year)
		d.start()
		require.NoError(t, d.AwaitReady(t.Context(), time.Minute))
		d.send(503) // the brokers reject the timestamp
		d.skew(0)
		d.send(207)
		d.send(207)
		d.awaitCounts(2, 2)
		d.jump()
		d.awaitCounts(3, 3)
		d.terminate()
	})
}

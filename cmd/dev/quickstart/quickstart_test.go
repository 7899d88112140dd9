package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"trafficd/cmd/dev/launch"
	"trafficd/cmd/dev/needs"
	"trafficd/schemas/contract"
	pb "trafficd/schemas/proto/trafficd/v1"
)

func TestThousands(t *testing.T) {
	f := func(n uint64, want string) {
		t.Helper()
		require.Equal(t, want, thousands(n))
	}
	f(0, "0")
	f(999, "999")
	f(1000, "1,000")
	f(14274722, "14,274,722")
	f(counts{Final: 1}.minus(counts{Final: 1235}).Final, "-1,234")
}

func TestShippedProfile(t *testing.T) {
	root, err := launch.ModuleRoot()
	require.NoError(t, err)
	_, err = readProfile(filepath.Join(root, defaultProfile))
	require.NoError(t, err)
}

// TestFreePort checks that a port is not chosen again before anything listens on it, as by a
// quickstart that is started at the same time, and that a UDP server does not matter.
func TestFreePort(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	usual, err := launch.PickPort("a test", 0)
	require.NoError(t, err)
	udp, err := net.ListenPacket("udp", launch.Address(usual))
	require.NoError(t, err)
	defer udp.Close()
	require.Equal(t, usual, freePort("a test", usual))
	runtime.GC() // closes files that are no longer referenced
	require.NotEqual(t, usual, freePort("a test", usual))
}

// TestAwaitDelivered checks that quickstart waits as long as there is progress, and otherwise ends
// with the reason.
func TestAwaitDelivered(t *testing.T) {
	var scrapes atomic.Int32
	f := func(patience time.Duration, metrics func() string, want string) {
		t.Helper()
		mux := http.NewServeMux()
		mux.HandleFunc("/metrics", func(w http.ResponseWriter, _ *http.Request) { scrapes.Add(1); fmt.Fprint(w, metrics()) })
		mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, `{"components": {"clickhouse": {"state": "degraded", "reasons": ["no response"]}, "kafka": {"state": "ok"}}}`)
		})
		server := httptest.NewServer(mux)
		defer server.Close()
		err := awaitDelivered(t.Context(), &launch.Daemon{Binary: "bin/trafficd", Ops: server.Listener.Addr().String()}, patience)
		if want == "" {
			require.NoError(t, err)
		} else {
			require.EqualError(t, err, "cannot deliver to both stores: no progress for "+patience.String()+": "+want+"; clickhouse: no response")
		}
	}
	lag := func(frames int32) string {
		return fmt.Sprintf("trafficd_pipeline_lag_frames{sink=\"clickhouse\"} %d\ntrafficd_pipeline_lag_seconds{sink=\"clickhouse\"} %d\n", frames, frames)
	}
	f(time.Second, func() string { return lag(0) }, "")
	f(time.Second, func() string { return lag(7) }, "trafficd_pipeline_lag_frames is 7")
	f(time.Second, func() string { return "trafficd_pipeline_delay_frames 0\n" }, "trafficd_pipeline_lag_frames is NaN")
	scrapes.Store(0)
	f(time.Second, func() string { return lag(max(0, 20-scrapes.Load())) }, "") // takes longer than a second
}

// started is a running quickstart.
type started struct {
	cmd     *exec.Cmd
	log     string          // file with everything that it printed
	running context.Context // canceled when it exits
}

func startQuickstart(t *testing.T, binary, dir string, args ...string) *started {
	t.Helper()
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	require.NoError(t, err)
	defer log.Close()
	running, exited := context.WithCancelCause(context.Background())
	cmd := exec.Command(binary, append([]string{"--dir", dir, "--detectors", "200"}, args...)...)
	cmd.Stdout, cmd.Stderr = log, log
	require.NoError(t, cmd.Start())
	go func() { _ = cmd.Wait(); exited(errors.New("quickstart has exited")) }()
	t.Cleanup(func() { _ = cmd.Process.Kill(); <-running.Done() })
	return &started{cmd, log.Name(), running}
}

// printed returns everything that quickstart has printed.
func (s *started) printed() string {
	text, _ := os.ReadFile(s.log) // the file exists
	return string(text)
}

func (s *started) end(t *testing.T) (code int, out string) {
	t.Helper()
	select {
	case <-s.running.Done():
	case <-time.After(3 * time.Minute):
		t.Fatal("quickstart does not exit")
	}
	return s.cmd.ProcessState.ExitCode(), s.printed()
}

// child waits for a child process whose command line contains all words.
func (s *started) child(t *testing.T, words ...string) (pid int) {
	t.Helper()
	require.NoError(t, launch.Eventually(s.running, 2*time.Minute, func() error {
		for _, pid = range childrenOf(s.cmd.Process.Pid) {
			line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
			if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(string(line), w) }) {
				return nil
			}
		}
		return fmt.Errorf("quickstart has not started %v:\n%s", words, s.printed())
	}))
	return pid
}

func childrenOf(parent int) []int {
	var pids []int
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", parent))
	for _, file := range tasks {
		text, _ := os.ReadFile(file)
		for _, word := range strings.Fields(string(text)) {
			pid, _ := strconv.Atoi(word)
			pids = append(pids, pid)
		}
	}
	return pids
}

func descendantsOf(parent int) []int {
	var all []int
	for _, pid := range childrenOf(parent) {
		all = append(append(all, pid), descendantsOf(pid)...)
	}
	return all
}

// build returns the path of quickstart, beside which are the programs that it starts.
func build(t *testing.T) (binary string) {
	t.Helper()
	needs.Everything(t, "real stores")
	for _, name := range []string{"trafficd", "trafficctl", "forecaster", "feeder", "devstores", "quickstart"} {
		var err error
		binary, err = launch.Program(t.Context(), name)
		require.NoError(t, err)
	}
	return binary
}

// report waits for the report and returns everything that was printed.
func (s *started) report(t *testing.T) string {
	t.Helper()
	require.NoError(t, launch.Eventually(s.running, 2*time.Minute, func() error {
		if !strings.Contains(s.printed(), "Ctrl-C stops everything") {
			return fmt.Errorf("no report:\n%s", s.printed())
		}
		return nil
	}))
	return s.printed()
}

// interrupt sends the signal of Ctrl-C, and requires a clean exit.
func (s *started) interrupt(t *testing.T) {
	t.Helper()
	require.NoError(t, s.cmd.Process.Signal(os.Interrupt))
	code, text := s.end(t)
	require.Zero(t, code, text)
}

// TestQuickstart starts quickstart three times in the same directory. It kills the daemon during
// the second run. The third run is killed and leaves no process behind. The name of the directory
// has characters with a meaning in YAML.
func TestQuickstart(t *testing.T) {
	binary, dir := build(t), filepath.Join(t.TempDir(), "a: #1")

	first := startQuickstart(t, binary, dir, "--exit")
	code, text := first.end(t)
	require.Zero(t, code, text)
	require.Contains(t, text, "✓ every accepted measurement is in both stores, exactly once")
	require.NotContains(t, text, "earlier run")
	require.Contains(t, text, "Everything stops now")
	require.NotContains(t, text, "curl")

	slowDown(t, dir)
	second := startQuickstart(t, binary, dir, "--exit")
	sender := second.child(t, "trafficctl", "send")
	require.NoError(t, syscall.Kill(sender, syscall.SIGSTOP)) // so that the daemon is killed while it sends
	require.NoError(t, syscall.Kill(second.child(t, "bin/trafficd"), syscall.SIGKILL))
	require.NoError(t, syscall.Kill(sender, syscall.SIGCONT))
	code, text = second.end(t)
	require.Zero(t, code, text)
	require.Contains(t, text, "trafficd exited (signal: killed) and was restarted")
	require.Contains(t, text, "✓ every accepted measurement is in both stores, exactly once")
	require.Regexp(t, `[1-9][0-9,]* of them replaced the same measurements of an earlier run, or others of this run, in the archive`, text)

	third := startQuickstart(t, binary, dir)
	third.child(t, "trafficctl", "send")
	other := startQuickstart(t, binary, dir)
	code, text = other.end(t)
	require.Equal(t, 1, code)
	require.Contains(t, text, "another quickstart is running in")

	family := descendantsOf(third.cmd.Process.Pid)
	require.GreaterOrEqual(t, len(family), 3)
	require.NoError(t, third.cmd.Process.Kill())
	<-third.running.Done()
	deadline := time.Now().Add(time.Minute)
	for _, pid := range family {
		for launch.Alive(pid) && time.Now().Before(deadline) {
			time.Sleep(50 * time.Millisecond)
		}
		require.False(t, launch.Alive(pid), "process %d outlived a killed quickstart", pid)
	}
}

// slowDown makes later starts in dir send for several seconds, long enough for a busy machine to
// find the sender. To do so, it gives the key a rate limit.
func slowDown(t *testing.T, dir string) {
	t.Helper()
	path := filepath.Join(dir, keysFile)
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	limited := strings.Replace(string(text), "product_instance:", "items_per_second: 50000\n    product_instance:", 1)
	require.NoError(t, os.WriteFile(path, []byte(limited), 0o600))
}

// TestPrintedCommands checks that every printed command works unchanged, that measurements and
// forecasts continue afterwards, even if the daemon is killed, and that Ctrl-C is not an error and
// leaves no process behind.
func TestPrintedCommands(t *testing.T) {
	s := startQuickstart(t, build(t), t.TempDir())
	report := s.report(t)
	require.Regexp(t, `✓ the forecast layer is served: 200 streets, [0-9,]+ bytes \([0-9,]+ as gzip\)`, report)
	before, _, _ := strings.Cut(report, "· starting ClickHouse")
	require.Contains(t, before, "the web page will be at http://127.0.0.1:")

	_, report, _ = strings.Cut(report, "\n  # ")
	report, _, _ = strings.Cut(report, "\n\n  Live")
	commands := strings.Split(report, "\n  # ")
	wants := []string{"HTTP/1.1 207", "speed", "product-instance=quickstart", "streetForecast {", `"FeatureCollection"`, "speed of the street:", "POINT (1672357.22"}
	require.Len(t, commands, len(wants))
	root, err := launch.ModuleRoot()
	require.NoError(t, err)
	for i, want := range wants {
		about, command, _ := strings.Cut(commands[i], "\n")
		bash := exec.CommandContext(t.Context(), "bash", "-ec", command)
		bash.Dir = root
		out, err := bash.CombinedOutput()
		require.NoError(t, err, "%s: %s", about, out)
		require.Contains(t, string(out), want, about)
	}

	s.checkLive(t, 200, true)
	ops := &launch.Daemon{Ops: regexp.MustCompile(`web page +http://(\S+)`).FindStringSubmatch(s.report(t))[1]}
	status, body, err := ops.Get(t.Context(), "/street?street=1&fromnode=1") // from the forecaster
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, status, string(body))
	require.Contains(t, string(body), `"measured":`)
	require.Contains(t, string(body), `"forecast":`)
	require.NoError(t, syscall.Kill(s.child(t, "bin/trafficd"), syscall.SIGKILL))
	require.Eventually(t, func() bool { return strings.Contains(s.printed(), "was restarted") }, time.Minute, 50*time.Millisecond)
	s.checkLive(t, 200, true)
	family := descendantsOf(s.cmd.Process.Pid)
	s.interrupt(t)
	for _, pid := range family {
		require.False(t, launch.Alive(pid), "process %d outlived quickstart", pid)
	}
}

// TestLiveDataset checks that the streets of a data set have forecasts, and a day of it is
// replayed.
func TestLiveDataset(t *testing.T) {
	directory, profile := smallDataset(t)
	s := startQuickstart(t, build(t), t.TempDir(), "--data", directory, "--profile", profile)
	s.checkLive(t, 2, false)
	s.interrupt(t)
}

// checkLive requires that measurements arrive after the report, that all streets have forecasts
// and, if changes is set, that the forecasts change.
func (s *started) checkLive(t *testing.T, streets int, changes bool) {
	t.Helper()
	found := regexp.MustCompile(`web page +http://(\S+)`).FindStringSubmatch(s.report(t))
	require.Len(t, found, 2)
	ops := &launch.Daemon{Ops: found[1]}
	speeds := func() (all []float64) {
		status, body, err := ops.Get(t.Context(), contract.ForecastPath+"?horizon=0")
		if err != nil || status != http.StatusOK { // the daemon is restarting
			return nil
		}
		var layer pb.StreetForecastResponse
		require.NoError(t, proto.Unmarshal(body, &layer))
		for _, street := range layer.StreetForecast {
			all = append(all, street.Forecast[0].Speed)
		}
		return all
	}
	accepted := func() float64 {
		metrics, _ := ops.Metrics(t.Context()) // an error: the daemon is restarting
		return metrics.Sum("trafficd_ingest_items_accepted_total")
	}
	var before []float64
	require.Eventually(t, func() bool { before = speeds(); return len(before) == streets }, time.Minute, 50*time.Millisecond)
	items := accepted()
	require.Eventually(t, func() bool {
		now := speeds()
		return accepted() > items && len(now) == streets && (!changes || !slices.Equal(before, now))
	}, 2*time.Minute, 100*time.Millisecond)
	require.NotContains(t, s.printed(), "will retry")
}

func TestSummary(t *testing.T) {
	var s sent
	d := json.NewDecoder(strings.NewReader(`{"accepted":5,"rejected":1,"batches":2,"retries":3,"seconds":2,"codes":{"UNKNOWN_DETECTOR":1}}`))
	require.NoError(t, d.Decode(&s))
	require.True(t, s.arrived(counts{Inserted: 5, Records: 5}))
	require.False(t, s.arrived(counts{Inserted: 5, Records: 6}))
	require.False(t, s.arrived(counts{Inserted: 4, Records: 5}))
}

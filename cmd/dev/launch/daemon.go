package launch

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"trafficd/cmd/dev/must"
)

// Daemon is a trafficd or a forecaster that can be started again after it has exited. Only Get,
// Readyz and Metrics are safe for concurrent use.
type Daemon struct {
	Binary  string
	Dir     string // working directory; the file <name of the binary>.log in it receives the output of every start
	Args    []string
	Env     []string    // variables in addition to this process's environment
	OnDeath unix.Signal // sent to the daemon if this process dies; 0 = SIGKILL
	API     string      // host:port of the API
	Ops     string      // host:port of the operators' listener

	*Process       // the process of the last start; nil before the first
	logged   int64 // size of the log before the last start
}

// Configure picks free addresses, writes an API key and the registry of one product instance to
// d.Dir, and adds the settings, which are key=value as for --set.
func (d *Daemon) Configure(instance, key, rights string, detectors []string, settings ...string) (err error) {
	defer must.Return(&err, "cannot configure "+d.Name())
	d.API, d.Ops = must.Get(FreeAddress()), must.Get(FreeAddress())
	must.Do(os.WriteFile(d.path("detectors.csv"), []byte("code\n"+strings.Join(detectors, "\n")+"\n"), 0o600))
	must.Do(d.SetKeys(Key{Name: instance, Key: key, Instance: instance, Rights: rights}))
	d.Set("api.listen="+d.API, "ops.listen="+d.Ops, "journal.dir="+d.path("journal"),
		"api.drain_grace=100ms", "log.format=json")
	d.Set(settings...)
	return nil
}

// Key is an API key of a daemon.
type Key struct {
	Name, Key      string
	Instance       string // product instance
	Rights         string // list of rights, separated by commas
	ItemsPerSecond int    // rate limit; 0 = none
}

// SetKeys replaces the daemon's API keys. All of the keys' product instances use the registry that
// Configure wrote.
func (d *Daemon) SetKeys(keys ...Key) error {
	text, feeds := "keys:\n", map[string]string{}
	for _, k := range keys {
		text += fmt.Sprintf("- {name: %s, sha256: %x, product_instance: %s, rights: [%s], items_per_second: %d}\n",
			k.Name, sha256.Sum256([]byte(k.Key)), k.Instance, k.Rights, k.ItemsPerSecond)
		feeds[k.Instance] = fmt.Sprintf("{product_instance: %s, file: {path: %s, column: code}}", k.Instance, d.path("detectors.csv"))
	}
	d.Set("api.keys_file="+d.path("keys.yaml"), "registry.feeds=["+strings.Join(slices.Sorted(maps.Values(feeds)), ", ")+"]")
	return os.WriteFile(d.path("keys.yaml"), []byte(text), 0o600)
}

func (d *Daemon) path(name string) string { return filepath.Join(d.Dir, name) }

// Set adds settings, which are key=value, for all later starts. The last value of a key wins.
func (d *Daemon) Set(settings ...string) {
	for _, s := range settings {
		d.Args = append(d.Args, "--set", s)
	}
}

// Start starts the daemon. It does not wait for the daemon to be ready.
func (d *Daemon) Start() error {
	out, err := os.OpenFile(d.logFile(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return fmt.Errorf("cannot open the daemon's log: %w", err)
	}
	defer out.Close()
	if info, err := out.Stat(); err == nil {
		d.logged = info.Size()
	}
	cmd := exec.Command(d.Binary, d.Args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = d.Dir, out, out
	cmd.Env = append(cmd.Environ(), d.Env...)
	d.Process, err = StartGroup(cmd, cmp.Or(d.OnDeath, unix.SIGKILL))
	return err
}

// Kill calls [Process.Kill] of the current process. Unlike method values of the embedded Process,
// the method values d.Kill, d.Pause and d.Resume remain valid after another start.
func (d *Daemon) Kill() error { return d.Process.Kill() }

// Pause calls [Process.Pause] of the current process.
func (d *Daemon) Pause() error { return d.Process.Pause() }

// Resume calls [Process.Resume] of the current process.
func (d *Daemon) Resume() error { return d.Process.Resume() }

func (d *Daemon) logFile() string { return d.path(d.Name() + ".log") }

// Name returns the name of the program.
func (d *Daemon) Name() string { return filepath.Base(d.Binary) }

// Log returns what the daemon has logged since its last start.
func (d *Daemon) Log() string {
	f, err := os.Open(d.logFile())
	if err != nil {
		return "" // nothing was logged
	}
	defer f.Close()
	_, _ = f.Seek(d.logged, io.SeekStart)
	text, _ := io.ReadAll(f)
	return string(text)
}

// LogTail returns the end of Log, for error messages.
func (d *Daemon) LogTail() string {
	text := d.Log()
	return strings.TrimSpace(text[max(0, len(text)-2000):])
}

// AwaitReady waits until /readyz returns 200. It returns an error after limit, when the daemon
// exits or when ctx is done.
func (d *Daemon) AwaitReady(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	err := Eventually(ctx, limit, func() error {
		if d.Exited() {
			cancel(errors.New("it has exited"))
		}
		status, body := d.Readyz(ctx)
		if status == http.StatusOK {
			return nil
		}
		return fmt.Errorf("status %d: %s", status, body)
	})
	if err != nil {
		return fmt.Errorf("%s did not become ready: %w; its log ends:\n%s", d.Name(), err, d.LogTail())
	}
	return nil
}

// Readyz returns the response of /readyz. If there is none, status is 0 and body is the error text.
func (d *Daemon) Readyz(ctx context.Context) (status int, body string) {
	status, text, err := d.Get(ctx, "/readyz")
	if err != nil {
		return 0, err.Error()
	}
	return status, string(text)
}

// Get requests a path from the operators' listener.
func (d *Daemon) Get(ctx context.Context, path string) (status int, body []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second) // allows for a busy machine
	defer cancel()
	r, err := Request(ctx, http.DefaultClient, http.MethodGet, "http://"+d.Ops+path, nil)
	return r.Status, r.Body, err
}

// Metrics maps series, such as `trafficd_pipeline_lag_frames{sink="kafka"}`, to their values.
type Metrics map[string]float64

// Metrics reads the daemon's metrics.
func (d *Daemon) Metrics(ctx context.Context) (Metrics, error) {
	_, body, err := d.Get(ctx, "/metrics")
	if err != nil {
		return nil, fmt.Errorf("cannot read the metrics: %w", err)
	}
	return parseMetrics(string(body)), nil
}

// Delivered returns an error unless trafficd has delivered everything that it has accepted.
func (d *Daemon) Delivered(ctx context.Context) error {
	metrics, err := d.Metrics(ctx)
	if err != nil {
		return err
	}
	for _, name := range []string{"trafficd_pipeline_lag_frames", "trafficd_pipeline_lag_seconds"} {
		if n := metrics.Sum(name); n != 0 {
			return fmt.Errorf("%s is %v", name, n)
		}
	}
	return nil
}

func parseMetrics(text string) Metrics {
	m := Metrics{}
	for line := range strings.Lines(text) {
		series := line[:strings.LastIndexByte(line, ' ')+1]
		if v, err := strconv.ParseFloat(strings.TrimSpace(line[len(series):]), 64); err == nil && line[0] != '#' {
			m[strings.TrimSpace(series)] = v
		}
	}
	return m
}

// Sum returns the sum of all series of a metric, or NaN if there is none.
func (m Metrics) Sum(name string) float64 {
	sum := math.NaN()
	for series, v := range m {
		if base, _, _ := strings.Cut(series, "{"); base == name {
			if math.IsNaN(sum) {
				sum = 0
			}
			sum += v
		}
	}
	return sum
}

package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"trafficd/cmd/trafficd/ops"
	"trafficd/sources/ingest"
)

// binary is the daemon as it is shipped; TestMain builds it.
var binary string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "trafficd-test-")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(dir)
		binary = filepath.Join(dir, "trafficd")
		if out, err := exec.Command("go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
			panic(fmt.Sprintf("cannot build trafficd: %v\n%s", err, out))
		}
		return m.Run()
	}())
}

const (
	testKey  = "tk_test"
	instance = "city"
)

// detectors of the test's registry: D0000 … D0099.
func detector(i int) string { return fmt.Sprintf("D%04d", i%100) }

// process is a running trafficd.
type process struct {
	t    *testing.T
	dir  string
	args []string
	api  string
	ops  string
	cmd  *exec.Cmd
	log  *bytes.Buffer
	done chan struct{}
}

// newProcess prepares a folder with keys and registry, and a configuration with
// both stores switched off unless settings say otherwise.
func newProcess(t *testing.T, settings ...string) *process {
	t.Helper()
	d := &process{t: t, dir: t.TempDir(), api: freeAddress(t), ops: freeAddress(t)}
	digest := sha256.Sum256([]byte(testKey))
	keys := "keys:\n- {name: test, sha256: " + hex.EncodeToString(digest[:]) + ", product_instance: " + instance + ", rights: [ingest]}\n"
	require.NoError(t, os.WriteFile(filepath.Join(d.dir, "keys.yaml"), []byte(keys), 0o600))
	registry := "code\n"
	for i := range 100 {
		registry += detector(i) + "\n"
	}
	require.NoError(t, os.WriteFile(filepath.Join(d.dir, "detectors.csv"), []byte(registry), 0o600))
	d.set(
		"api.listen="+d.api, "ops.listen="+d.ops, "api.keys_file="+filepath.Join(d.dir, "keys.yaml"),
		"registry.feeds=[{product_instance: "+instance+", file: {path: "+filepath.Join(d.dir, "detectors.csv")+", column: code}}]",
		"journal.dir="+filepath.Join(d.dir, "journal"), "journal.min_free_bytes=0", "registry.settle=10ms", "api.drain_grace=100ms",
		"clickhouse.enabled=false", "kafka.enabled=false", "log.format=json")
	d.set(settings...)
	return d
}

func (d *process) set(settings ...string) {
	for _, s := range settings {
		d.args = append(d.args, "--set", s)
	}
}

// start runs the daemon; it is killed at the test's end if it still runs then.
func (d *process) start() *process {
	d.t.Helper()
	d.log, d.done = new(bytes.Buffer), make(chan struct{})
	d.cmd = exec.Command(binary, d.args...)
	d.cmd.Dir = d.dir
	d.cmd.Stderr = d.log
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(d.t, d.cmd.Start())
	cmd, log, done := d.cmd, d.log, d.done
	go func() { _ = cmd.Wait(); close(done) }()
	d.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-done
		if d.t.Failed() {
			d.t.Logf("log of the daemon:\n%s", lastBytes(log.Bytes(), 6000))
		}
	})
	return d
}

// end waits for the daemon's end and gives its exit code and its log.
func (d *process) end() (code int, log string) {
	d.t.Helper()
	select {
	case <-d.done:
	case <-time.After(45 * time.Second):
		d.t.Fatal("the daemon does not end")
	}
	return d.cmd.ProcessState.ExitCode(), d.log.String()
}

func (d *process) signal(s syscall.Signal) *process {
	d.t.Helper()
	require.NoError(d.t, d.cmd.Process.Signal(s))
	return d
}

// ready gives the answer of /readyz; state is empty where there is none.
func (d *process) ready() (status int, r ops.Readiness) {
	status, body := d.get("/readyz")
	_ = json.Unmarshal(body, &r)
	return status, r
}

func (d *process) get(path string) (status int, body []byte) {
	answer, err := http.Get("http://" + d.ops + path)
	if err != nil {
		return 0, nil
	}
	defer answer.Body.Close()
	body, _ = io.ReadAll(answer.Body)
	return answer.StatusCode, body
}

// await waits until the daemon answers /readyz with this status.
func (d *process) await(status int) ops.Readiness {
	d.t.Helper()
	var r ops.Readiness
	d.eventually(func() bool {
		var got int
		got, r = d.ready()
		return got == status
	}, "readiness %d", status)
	return r
}

// eventually waits for something that other processes bring about.
func (d *process) eventually(ok func() bool, what string, args ...any) {
	d.t.Helper()
	for deadline := time.Now().Add(60 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if ok() {
			return
		}
		select {
		case <-d.done:
			d.t.Fatalf("the daemon has ended; was waited for: "+what, args...)
		default:
		}
	}
	_, r := d.ready()
	d.t.Fatalf("not within a minute: "+what+"; readiness: %+v", append(args, r)...)
}

// metric is the sum of all metrics of this name, with whatever labels; NaN where there is none.
func (d *process) metric(name string) float64 { return d.sum(name, "") }

// metricOf is the metric of one sink.
func (d *process) metricOf(name, sink string) float64 {
	return d.sum(name, fmt.Sprintf("{sink=%q}", sink))
}

func (d *process) sum(name, labels string) float64 {
	_, body := d.get("/metrics")
	sum := math.NaN()
	for line := range strings.Lines(string(body)) {
		full, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if base, _, _ := strings.Cut(full, "{"); base == name && strings.HasPrefix(full[len(base):], labels) {
			var v float64
			_, _ = fmt.Sscan(value, &v)
			if math.IsNaN(sum) {
				sum = 0
			}
			sum += v
		}
	}
	return sum
}

// answer is what the contract 5.2 calls IngestResult.
type answer struct {
	status     int
	header     http.Header
	Accepted   int `json:"accepted"`
	Rejected   int `json:"rejected"`
	Rejections []struct {
		Index int `json:"index"`
		Error struct {
			ErrorCode string `json:"errorCode"`
			Parameter string `json:"parameter"`
		} `json:"error"`
	} `json:"rejections"`
	ErrorCode string `json:"errorCode"`
}

// post sends a batch; status 0 means that no answer came.
func (d *process) post(ctx context.Context, body, idempotencyKey string) (answer, error) {
	return d.postPacked(ctx, http.DefaultClient, pack(body), idempotencyKey)
}

func pack(body string) []byte {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = z.Write([]byte(body))
	_ = z.Close()
	return packed.Bytes()
}

func (d *process) postPacked(ctx context.Context, client *http.Client, packed []byte, idempotencyKey string) (answer, error) {
	req, err := d.request(ctx, packed, idempotencyKey)
	if err != nil {
		return answer{}, err
	}
	r, err := client.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer r.Body.Close()
	a := answer{status: r.StatusCode, header: r.Header}
	return a, json.NewDecoder(r.Body).Decode(&a)
}

func (d *process) request(ctx context.Context, packed []byte, idempotencyKey string) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+d.api+ingest.Path, bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "apiKey "+testKey)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Content-Encoding", "gzip")
	if idempotencyKey != "" {
		req.Header.Set("Idempotency-Key", idempotencyKey)
	}
	return req, nil
}

// freeAddress has a host of its own, one of Linux's 16 million loopback addresses. So nobody takes the port
// while its daemon is being started or is down: no other test, and no outgoing connection.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", fmt.Sprintf("127.%d.%d.%d:0", 1+rand.IntN(254), rand.IntN(256), 1+rand.IntN(254)))
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}

func lastBytes(b []byte, n int) []byte { return b[max(0, len(b)-n):] }

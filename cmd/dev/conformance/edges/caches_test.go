package edges

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"trafficd/cmd/dev/daemontest"

	"github.com/stretchr/testify/require"

	"trafficd/cmd/dev/launch"

	"trafficd/cmd/dev/needs"
)

// TestForecastCaches puts nginx and Varnish in front of the daemon, with their defaults and with
// settings that force them to cache layers. An invalid key never gets the layer of a valid one, and
// no key gets the layer of another time zone or format.
func TestForecastCaches(t *testing.T) {
	needs.Everything(t, "nginx and Varnish")
	d := daemontest.New(t, "layers.query_key=true", "api.cors_origins=https://maps.example")
	feed := d.SetForecastFile("forecasts.ndjson")
	d.Keys(daemontest.KeyEntry("map", "forecast", "Europe/Copenhagen"), daemontest.KeyEntry("tokyo", "forecast", "Asia/Tokyo"), daemontest.KeyEntry("city", "ingest", "UTC"))
	daemontest.ReplaceFile(t, feed, daemontest.StreetLine(7, 40))
	d.Run()
	d.AwaitLayer("map")

	for _, origin := range []string{"", "https://maps.example", "https://other.example"} {
		for _, headers := range [][]string{nil, {"If-None-Match", "*"}, {"Accept-Encoding", "identity", "Range", "bytes=0-9"}} {
			response, _ := d.Layer("map", "", append([]string{"Origin", origin}, headers...)...)
			require.Less(t, response.StatusCode, 400)
			const vary = "Authorization, Accept, Accept-Encoding, Origin"
			require.Equal(t, []string{vary}, response.Header.Values("Vary"), "one line, status %d", response.StatusCode)
		}
	}

	for _, cache := range []struct {
		name   string
		start  func(t *testing.T, upstream string) (address string)
		forced bool
	}{
		{"nginx", func(t *testing.T, upstream string) string { return startNginxCache(t, upstream, "") }, false},
		{"nginx forced", func(t *testing.T, upstream string) string {
			return startNginxCache(t, upstream, "proxy_ignore_headers Cache-Control Expires; proxy_cache_valid 200 10m;")
		}, true},
		{"Varnish", func(t *testing.T, upstream string) string { return startVarnish(t, upstream, "") }, false},
		{"Varnish forced", func(t *testing.T, upstream string) string {
			return startVarnish(t, upstream, `
sub vcl_recv { return (hash); }
sub vcl_backend_response { if (beresp.status == 200) { set beresp.ttl = 10m; return (deliver); } }
`)
		}, true},
	} {
		t.Run(cache.name, func(t *testing.T) {
			address := cache.start(t, d.API)
			hits := 0
			f := func(status int, key, origin, accept, query, want string) {
				t.Helper()
				for range 2 { // the second time perhaps from the cache
					response, body := layerFrom(t, address, key, query, "Origin", origin, "Accept", accept, "Accept-Encoding", "identity")
					require.Equal(t, status, response.StatusCode, "%s", body)
					require.Contains(t, string(body), want)
					if strings.Contains(response.Header.Get("X-Cache"), "HIT") {
						hits++
					}
				}
			}
			const protobuf, json, page = "application/x-protobuf", "application/json", "https://maps.example"
			for range 2 { // the second time, after all the other requests
				for _, origin := range []string{"", page} {
					f(http.StatusOK, "map", origin, protobuf, "", "Europe/Copenhagen")
					f(http.StatusUnauthorized, "wrong", origin, protobuf, "", "GENERAL_UNAUTHENTICATED")
					f(http.StatusUnauthorized, "", origin, protobuf, "", "GENERAL_UNAUTHENTICATED")
					f(http.StatusForbidden, "city", origin, protobuf, "", "GENERAL_FORBIDDEN")
					f(http.StatusOK, "tokyo", origin, protobuf, "", "Asia/Tokyo")
					f(http.StatusOK, "map", origin, json, "", `"timezone":"Europe/Copenhagen"`)
					f(http.StatusOK, "", origin, json, "?apiKey=map", `"timezone":"Europe/Copenhagen"`)
					f(http.StatusUnauthorized, "", origin, json, "?apiKey=wrong", "GENERAL_UNAUTHENTICATED")
					f(http.StatusUnauthorized, "wrong", origin, json, "?apiKey=map", "GENERAL_UNAUTHENTICATED")
				}
			}
			if cache.forced {
				require.Positive(t, hits, "the cache was never used")
			} else {
				require.Zero(t, hits, "no-cache or private was ignored")
			}
		})
	}
}

// layerFrom gets the layer from a cache.
func layerFrom(t *testing.T, address, key, query string, headers ...string) (*http.Response, []byte) {
	t.Helper()
	cache := &daemontest.Trafficd{T: t}
	cache.API = address
	return cache.Layer(key, query, headers...)
}

// startNginxCache starts an nginx with a cache in front of the daemon.
func startNginxCache(t *testing.T, upstream, settings string) (address string) {
	address = daemontest.FreeAddress(t)
	runNginx(t, address, fmt.Sprintf(`
  proxy_cache_path %s keys_zone=layers:1m;
  server {
    listen %s;
    location / { proxy_pass http://%s; proxy_cache layers; %s add_header X-Cache $upstream_cache_status always; }
  }
`, t.TempDir(), address, upstream, settings))
	return address
}

// runNginx runs an nginx with the text in its http context.
func runNginx(t *testing.T, address, text string) {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "nginx.conf")
	require.NoError(t, os.WriteFile(path, []byte(launch.NginxConfig(dir, text)), 0o600))
	startServer(t, address, "nginx", "-c", path, "-e", filepath.Join(dir, "error.log"))
}

// startVarnish starts a Varnish in front of the daemon.
func startVarnish(t *testing.T, upstream, rules string) (address string) {
	address, dir := daemontest.FreeAddress(t), t.TempDir()
	host, port, _ := strings.Cut(upstream, ":")
	config := fmt.Sprintf(`vcl 4.1;
backend default { .host = %q; .port = %q; }
%s
sub vcl_deliver { if (obj.hits > 0) { set resp.http.X-Cache = "HIT"; } else { set resp.http.X-Cache = "MISS"; } }
`, host, port, rules)
	path := filepath.Join(dir, "cache.vcl")
	require.NoError(t, os.WriteFile(path, []byte(config), 0o600))
	startServer(t, address, "varnishd", "-F", "-T", "none", "-j", "none", "-n", filepath.Join(dir, "work"), "-a", address, "-f", path, "-s", "malloc,16m")
	return address
}

// startServer starts a server from a Debian package, waits until it accepts connections, and stops
// it when the test ends.
func startServer(t *testing.T, address, name string, args ...string) {
	t.Helper()
	needs.Everything(t, name)
	log := new(bytes.Buffer)
	cmd := exec.Command(name, args...)
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = log, log, &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	require.NoError(t, cmd.Start(), "install the Debian packages nginx-light, haproxy and varnish")
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		<-ended
	})
	for {
		if c, err := net.Dial("tcp", address); err == nil {
			_ = c.Close()
			return
		}
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("%s does not start: %v\n%s", name, err, log)
		case <-t.Context().Done():
			t.Fatalf("the test ended before %s started", name)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

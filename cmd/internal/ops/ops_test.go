package ops

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"trafficd/cmd/dev/launch"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func get(t *testing.T, h http.Handler, method, path string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, path, nil))
	return w
}

func TestRoutes(t *testing.T) {
	check := func() Readiness { return NewReadiness(map[string]Component{"journal": {State: OK}}) }
	plain := Handler(Config{}, check, map[string]http.Handler{"GET /{$}": http.RedirectHandler("/elsewhere", http.StatusFound)})
	profiled := Handler(Config{Pprof: true}, check, map[string]http.Handler{"GET /": http.RedirectHandler("/elsewhere", http.StatusFound)})
	f := func(h http.Handler, method, path string, status int, contains string) {
		t.Helper()
		w := get(t, h, method, path)
		require.Equal(t, status, w.Code)
		require.Contains(t, w.Body.String(), contains)
	}
	f(plain, "GET", "/metrics", 200, "process_resident_memory_bytes")
	f(plain, "GET", "/metrics", 200, "trafficd_ops_ready 1\n")
	f(plain, "GET", "/healthz", 200, "ok")
	f(plain, "GET", "/readyz", 200, `"state": "ok"`)
	f(plain, "GET", "/", 302, "elsewhere")
	f(plain, "POST", "/readyz", 405, "")
	f(plain, "GET", "/nothing", 404, "")
	f(plain, "GET", "/debug/pprof/", 404, "")
	f(profiled, "GET", "/debug/pprof/", 200, "goroutine")
	f(profiled, "GET", "/debug/pprof/goroutine?debug=1", 200, "goroutine profile")
}

func TestReadiness(t *testing.T) {
	f := func(components map[string]Component, status int, state State) {
		t.Helper()
		w := get(t, Handler(Config{}, func() Readiness { return NewReadiness(components) }, nil), "GET", "/readyz")
		require.Equal(t, status, w.Code)
		var got Readiness
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &got))
		for name, c := range got.Components {
			c.entries = components[name].entries
			got.Components[name] = c
		}
		require.Equal(t, Readiness{State: state, Components: components}, got)
		require.Equal(t, status == 200, got.ready() == 1)
	}
	with := func(state State, reason string) Component {
		c := Component{State: OK}
		c.Add(state, Unready, reason)
		return c
	}
	f(map[string]Component{"journal": {State: OK, Detail: map[string]any{"bytes": 12.0}}}, 200, OK)
	f(map[string]Component{"journal": {State: OK}, "kafka": with(Degraded, "away")}, 200, Degraded)
	f(map[string]Component{"journal": with(NotReady, "full"), "kafka": with(Degraded, "away")}, 503, NotReady)
}

// TestReadinessByPurpose checks the status of /readyz?for=PURPOSE.
func TestReadinessByPurpose(t *testing.T) {
	f := func(r Readiness, purpose string, status int) {
		t.Helper()
		require.Equal(t, status, get(t, Handler(Config{}, func() Readiness { return r }, nil), "GET", "/readyz?for="+purpose).Code)
	}
	r := NewReadiness(map[string]Component{"journal": {State: Degraded, Reasons: []string{"full"}}})
	r.Serves = map[string]bool{"ingest": false, "forecast": true}
	f(r, "ingest", 503)
	f(r, "forecast", 200)
	f(r, "ingset", 400)
	r.State = NotReady
	f(r, "forecast", 503)
	f(NewReadiness(map[string]Component{"daemon": {State: NotReady, Reasons: []string{"starting"}}}), "ingest", 503)
}

func TestAddKeepsWorstState(t *testing.T) {
	c := Component{State: OK}
	c.Add(NotReady, JournalFull, "first")
	c.Add(Degraded, Unready, "second")
	c.Add(NotReady, JournalFull, "first")
	require.Equal(t, NotReady, c.State)
	require.Equal(t, []string{"first; see the runbook, TrafficdJournalFull", "second; see the runbook, TrafficdNotReady"}, c.Reasons)
}

func TestServerStartsAndStops(t *testing.T) {
	check := func() Readiness { return NewReadiness(nil) }
	address, err := launch.FreeAddress() // which no other program uses after Stop
	require.NoError(t, err)
	s, err := Start(Config{Listen: address}, check, nil, zerolog.Nop())
	require.NoError(t, err)
	require.Equal(t, address, s.Address())
	r, err := http.Get("http://" + s.Address() + "/healthz")
	require.NoError(t, err)
	body, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	r.Body.Close()
	require.Equal(t, "ok\n", string(body))

	_, err = Start(Config{Listen: s.Address()}, check, nil, zerolog.Nop())
	require.ErrorContains(t, err, s.Address()) // the address is taken

	s.Stop(context.Background())
	_, err = net.Dial("tcp", s.Address())
	require.Error(t, err)
	http.DefaultClient.CloseIdleConnections()

	none, err := Start(Config{}, check, nil, zerolog.Nop())
	require.NoError(t, err)
	none.Stop(context.Background())
}

func TestValidate(t *testing.T) {
	require.NoError(t, DefaultConfig().Validate())
	require.NoError(t, Config{}.Validate())
	require.NoError(t, Config{Listen: ":http"}.Validate())
	for _, address := range []string{"8081", "127.0.0.1:", ":99999", ":-1", ":no-such-service"} {
		require.ErrorContains(t, Config{Listen: address}.Validate(), "host:port", address)
	}
}

// TestForeignHost checks that a web page of another name that resolves to the listener gets
// nothing.
func TestForeignHost(t *testing.T) {
	f := func(host string, status int) {
		t.Helper()
		c := Config{Listen: "ops.example.org:8081", Hosts: []string{"replica-1.example.org"}}
		r, w := httptest.NewRequest("GET", "/status", nil), httptest.NewRecorder()
		r.Host = host
		c.guard(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).ServeHTTP(w, r)
		require.Equal(t, status, w.Code, host)
	}
	for _, own := range []string{
		"", "localhost:8081", "127.0.0.1:8081", "[::1]:8081", "::1", "trafficd-0:8081", "ops.example.org", "Replica-1.example.org.:80",
	} {
		f(own, 200)
	}
	f("evil.example.net:8081", 421)
	f("127.0.0.1.example.net", 421)
}

// TestSlowRequests checks that requests with bodies that never arrive are answered and closed, that
// they cannot use up the connections, and that the server logs to the daemon's log.
func TestSlowRequests(t *testing.T) {
	t.Parallel()
	s, err := Start(Config{Listen: "127.0.0.1:0"}, func() Readiness { return NewReadiness(nil) }, nil, zerolog.Nop())
	require.NoError(t, err)
	defer s.Stop(context.Background())
	require.NotNil(t, s.http.ErrorLog)
	var slow []net.Conn
	for range 2 * maxConnections {
		c, err := net.Dial("tcp", s.Address())
		require.NoError(t, err)
		defer c.Close()
		_, err = io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n")
		require.NoError(t, err)
		slow = append(slow, c)
	}
	r, err := http.Get("http://" + s.Address() + "/healthz")
	require.NoError(t, err)
	require.NoError(t, r.Body.Close())
	require.Equal(t, http.StatusOK, r.StatusCode)
	for _, c := range slow {
		require.NoError(t, c.SetReadDeadline(time.Now().Add(time.Minute)))
		text, err := io.ReadAll(c)
		require.NoError(t, err)
		require.Contains(t, string(text), "400 Bad Request")
	}
}

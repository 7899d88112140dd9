package api

import (
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"trafficd/schemas/contract"
)

// TestOrigins checks that a script may read responses, including errors, if its origin is in the
// settings.
func TestOrigins(t *testing.T) {
	f := func(allowed []string, origin, wantAllowed string, wantVary []string) {
		t.Helper()
		s := start(t, &probe{}, func(c *Config) { c.CORSOrigins = allowed })
		for target, status := range map[string]int{"/base/map": 200, "/base/in": 405, "/base/nothing": 404} {
			a := dial(t, s).send("GET " + target + " HTTP/1.1\r\n" + good + "Origin: " + origin + "\r\n\r\n").response()
			require.Equal(t, status, a.StatusCode)
			require.Equal(t, wantAllowed, a.Header.Get("Access-Control-Allow-Origin"))
			require.Equal(t, wantAllowed != "", strings.Contains(a.Header.Get("Access-Control-Expose-Headers"), "Forecast-Version"))
			require.Equal(t, wantVary, a.Header.Values("Vary"))
		}
	}
	const mine, other = "https://map.example.org", "http://localhost:8000"
	f(nil, mine, "", nil)
	f([]string{"*"}, mine, "*", nil)
	f([]string{"*"}, "null", "*", nil) // a page from a file
	f([]string{"*"}, "", "*", nil)     // so that a cache may use the response for a page
	f([]string{other, mine}, mine, mine, []string{"Origin"})
	f([]string{other, mine}, other, other, []string{"Origin"})
	f([]string{mine}, other, "", []string{"Origin"})
	f([]string{mine}, mine+".evil.org", "", []string{"Origin"})
	f([]string{mine}, "null", "", []string{"Origin"})
}

// TestExposedHeaders checks that a script may read the response headers of contract 6.3, except
// those that every script may read and those that only HTTP clients and caches use.
func TestExposedHeaders(t *testing.T) {
	text, err := os.ReadFile("../../schemas/contract/contract.md")
	require.NoError(t, err)
	_, table, _ := strings.Cut(string(text), "### 6.3 Response headers")
	table, _, _ = strings.Cut(table, "\n###")
	others := strings.Fields("Accept-Encoding Allow Cache-Control Connection Content-Type Date Last-Modified Location Vary WWW-Authenticate")
	var want []string
	for _, row := range regexp.MustCompile(`(?m)^\| ([A-Z][A-Za-z, -]+) \|`).FindAllStringSubmatch(table, -1)[1:] {
		for name := range strings.SplitSeq(row[1], ", ") {
			if !slices.Contains(others, name) && !strings.HasPrefix(name, "Access-Control-") {
				want = append(want, name)
			}
		}
	}
	require.ElementsMatch(t, want, strings.Split(exposed, ", "))
}

// TestVaryIsOneLine checks that Vary is a single line with Origin and the names that the endpoint
// sets, because some caches read only one.
func TestVaryIsOneLine(t *testing.T) {
	p := &probe{serve: func(c *contract.Client, ctx *fasthttp.RequestCtx) (int, error) {
		ctx.Response.Header.Set("Vary", "Authorization, Accept")
		return 0, nil
	}}
	s := start(t, p, func(c *Config) { c.CORSOrigins = []string{"https://map.example.org"} })
	a := dial(t, s).send("GET /base/map HTTP/1.1\r\n" + good + "Origin: https://map.example.org\r\n\r\n").response()
	require.Equal(t, []string{"Authorization, Accept, Origin"}, a.Header.Values("Vary"))
}

// TestPreflight checks that a preflight gets a response without a key, and without a call to the
// endpoint.
func TestPreflight(t *testing.T) {
	p := &probe{}
	s := start(t, p, func(c *Config) { c.CORSOrigins = []string{"https://map.example.org"} })
	const ask = "Origin: https://map.example.org\r\nAccess-Control-Request-Method: GET\r\nAccess-Control-Request-Headers: authorization\r\n"

	c := dial(t, s)
	a := c.send("OPTIONS /base/map HTTP/1.1\r\nHost: h\r\n" + ask + "\r\n").responseTo("OPTIONS")
	require.Equal(t, http.StatusNoContent, a.StatusCode)
	require.Equal(t, "https://map.example.org", a.Header.Get("Access-Control-Allow-Origin"))
	require.Equal(t, "GET, HEAD", a.Header.Get("Access-Control-Allow-Methods"))
	require.Contains(t, a.Header.Get("Access-Control-Allow-Headers"), "Authorization")
	require.Contains(t, a.Header.Get("Access-Control-Allow-Headers"), "If-None-Match")
	require.Len(t, a.Header.Get("Trace-Id"), 32)
	require.Zero(t, p.asked.Load()+p.served.Load())
	require.Equal(t, 200, c.send("GET /base/map HTTP/1.1\r\n"+good+"\r\n").response().StatusCode, "on the same connection")

	none := func(target, header string, status int, code contract.Code) {
		t.Helper()
		a := dial(t, s).send("OPTIONS " + target + " HTTP/1.1\r\nHost: h\r\n" + header + "\r\n").response()
		requireError(t, a, status, code)
		require.Empty(t, a.Header.Get("Access-Control-Allow-Methods"))
	}
	none("/base/nothing", ask, fasthttp.StatusNotFound, contract.NotFound)
	none("/base/map", "Origin: https://map.example.org\r\n", fasthttp.StatusMethodNotAllowed, contract.MethodNotAllowed)
	none("/base/map", strings.Replace(ask, "map.", "evil.", 1), fasthttp.StatusMethodNotAllowed, contract.MethodNotAllowed)
	none("/base/map", strings.Replace(ask, "Origin", "No-Origin", 1), fasthttp.StatusMethodNotAllowed, contract.MethodNotAllowed)
}

func TestOriginSettings(t *testing.T) {
	f := func(origin string, fine bool) {
		t.Helper()
		cfg := testConfig()
		cfg.CORSOrigins = []string{origin}
		err := cfg.Validate()
		if fine {
			require.NoError(t, err)
			return
		}
		require.ErrorContains(t, err, "cors_origins has ")
		require.ErrorContains(t, err, "https://map.example.org")
	}
	f("*", true)
	f("https://map.example.org", true)
	f("http://localhost:8000", true)
	f("", false)
	f("map.example.org", false)
	f("https://map.example.org/", false)
	f("https://map.example.org/map", false)
	f("https://Map.example.org", false)
	f("https://user@map.example.org", false)
	f("https://*.example.org", false)
	f("https://map.example.org?x", false)
}

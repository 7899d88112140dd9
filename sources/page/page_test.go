package page

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"
)

// get requests a file of the page.
func get(t *testing.T, p Page, name string, headers ...string) *fasthttp.Response {
	t.Helper()
	require.Contains(t, p, name)
	var ctx fasthttp.RequestCtx
	for i := 0; i < len(headers); i += 2 {
		ctx.Request.Header.Set(headers[i], headers[i+1])
	}
	require.NoError(t, p[name](&ctx), name)
	return &ctx.Response
}

func header(r *fasthttp.Response, name string) string { return string(r.Header.Peek(name)) }

// TestStreet checks the proxy for street details, and that only the page for operators uses it.
func TestStreet(t *testing.T) {
	forecaster := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write([]byte(r.URL.String())) }))
	c := Config{Forecaster: strings.TrimPrefix(forecaster.URL, "http://")}
	street := func(query string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		c.Streets().ServeHTTP(w, httptest.NewRequest(http.MethodGet, ForecasterPaths[0]+query, nil))
		return w
	}
	require.Equal(t, "/street?street=7&fromnode=1", street("?street=7&fromnode=1").Body.String())
	forecaster.Close()
	w := street("")
	require.Equal(t, http.StatusBadGateway, w.Code)
	require.Contains(t, w.Body.String(), "cannot reach the forecaster (ui.forecaster): ")
	settings := func(entry string) string { return string(get(t, New(c, Settings{}, entry), "settings.json").Body()) }
	require.Contains(t, settings(operatorsEntry), `"forecaster":true`)
	require.Contains(t, settings("map.html"), `"forecaster":false`)
}

// TestFiles requests every file of the page: uncompressed, compressed, and with If-None-Match.
func TestFiles(t *testing.T) {
	p := New(Config{}, Settings{Horizons: []int{0, 30}, StaleAfter: 60}, "index.html")
	total := 0
	for name := range p {
		plain := get(t, p, name)
		require.Equal(t, http.StatusOK, plain.StatusCode(), name)
		require.NotEmpty(t, header(plain, "Content-Type"), name)
		require.Equal(t, "nosniff", header(plain, "X-Content-Type-Options"))
		require.Equal(t, "no-referrer", header(plain, "Referrer-Policy"))
		require.Equal(t, "Accept-Encoding", header(plain, "Vary"))
		require.NotEmpty(t, header(plain, "Content-Security-Policy"))
		require.NotContains(t, header(plain, "Content-Security-Policy"), "unsafe")
		caching := "public, no-cache"
		if strings.HasPrefix(name, "assets/") {
			caching = "public, max-age=31536000, immutable"
		}
		require.Equal(t, caching, header(plain, "Cache-Control"), name)
		packed := get(t, p, name, "Accept-Encoding", "br, gzip")
		require.Equal(t, "gzip", header(packed, "Content-Encoding"), name)
		require.NotEqual(t, header(plain, "ETag"), header(packed, "ETag"))
		same := get(t, p, name, "If-None-Match", header(plain, "ETag"))
		require.Equal(t, http.StatusNotModified, same.StatusCode())
		require.Empty(t, same.Body())
		total += len(packed.Body())
		z, err := gzip.NewReader(bytes.NewReader(packed.Body()))
		require.NoError(t, err, name)
		text, err := io.ReadAll(z)
		require.NoError(t, err, name)
		require.Equal(t, string(plain.Body()), string(text), name)
	}
	require.Less(t, total, 800_000, "total size in bytes, compressed with gzip")
	require.JSONEq(t, `{"horizons":[0,30],"staleAfter":60,"forecasts":false,"leftHand":false,"basemap":false,"forecaster":false,"sites":false}`,
		string(get(t, p, "settings.json").Body()))
	for _, name := range []string{"index.html", "map.html", "assets/", basemapName} {
		require.NotContains(t, p, name)
	}
	own := string(get(t, New(Config{}, Settings{Sites: true}, "index.html"), "settings.json").Body())
	require.Contains(t, own, `"sites":true`)
	require.NotContains(t, string(get(t, New(Config{}, Settings{Sites: true}, "map.html"), "settings.json").Body()), `"sites":true`)
	require.NotEqual(t, string(get(t, p, "").Body()), string(get(t, New(Config{}, Settings{}, "map.html"), "").Body()))
}

// TestDocument changes a document.
func TestDocument(t *testing.T) {
	p := Page{"old": Document("application/yaml", []byte("a: 1")), "new": Document("application/yaml", []byte("a: 2"))}
	r := get(t, p, "old")
	require.Equal(t, "a: 1", string(r.Body()))
	require.Equal(t, "application/yaml", header(r, "Content-Type"))
	require.Equal(t, "public, no-cache", header(r, "Cache-Control"))
	require.Equal(t, http.StatusNotModified, get(t, p, "old", "If-None-Match", header(r, "ETag")).StatusCode())
	require.Equal(t, "a: 2", string(get(t, p, "new", "If-None-Match", header(r, "ETag")).Body()))
}

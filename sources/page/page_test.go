package page

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func get(h http.Handler, path string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, path, nil)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// TestStreet checks the proxy for street details, and that only the page for operators uses it.
func TestStreet(t *testing.T) {
	forecaster := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write([]byte(r.URL.String())) }))
	c := Config{Forecaster: strings.TrimPrefix(forecaster.URL, "http://")}
	require.Equal(t, "/street?street=7&fromnode=1", get(c.Street(), StreetPath+"?street=7&fromnode=1").Body.String())
	forecaster.Close()
	w := get(c.Street(), StreetPath)
	require.Equal(t, http.StatusBadGateway, w.Code)
	require.Contains(t, w.Body.String(), "cannot reach the forecaster (ui.forecaster): ")
	require.Contains(t, get(New(c, Settings{}, operatorsEntry), "/settings.json").Body.String(), `"forecaster":true`)
	require.Contains(t, get(New(c, Settings{}, "map.html"), "/settings.json").Body.String(), `"forecaster":false`)
}

// TestFiles requests every file of the page: uncompressed, compressed, and with If-None-Match.
func TestFiles(t *testing.T) {
	h := New(Config{}, Settings{Horizons: []int{0, 30}, StaleAfter: 60}, "index.html")
	total := 0
	for name := range h {
		plain := get(h, "/"+name)
		require.Equal(t, http.StatusOK, plain.Code, name)
		require.NotEmpty(t, plain.Header().Get("Content-Type"), name)
		require.Equal(t, "nosniff", plain.Header().Get("X-Content-Type-Options"))
		require.NotContains(t, plain.Header().Get("Content-Security-Policy"), "unsafe")
		require.Equal(t, strings.HasPrefix(name, "assets/"), strings.Contains(plain.Header().Get("Cache-Control"), "immutable"), name)
		packed := get(h, "/"+name, "Accept-Encoding", "br, gzip")
		require.Equal(t, "gzip", packed.Header().Get("Content-Encoding"), name)
		require.NotEqual(t, plain.Header().Get("ETag"), packed.Header().Get("ETag"))
		require.Equal(t, http.StatusNotModified, get(h, "/"+name, "If-None-Match", plain.Header().Get("ETag")).Code)
		total += packed.Body.Len()
		z, err := gzip.NewReader(packed.Body)
		require.NoError(t, err, name)
		text, err := io.ReadAll(z)
		require.NoError(t, err, name)
		require.Equal(t, plain.Body.String(), string(text), name)
	}
	require.Less(t, total, 800_000, "total size in bytes, compressed with gzip")
	require.JSONEq(t, `{"horizons":[0,30],"staleAfter":60,"forecasts":false,"leftHand":false,"basemap":false,"forecaster":false}`, get(h, "/settings.json").Body.String())
	for _, path := range []string{"/index.html", "/map.html", "/assets/", "/assets/none.js", "/../page.go"} {
		require.Equal(t, http.StatusNotFound, get(h, path).Code, path)
	}
	require.NotEqual(t, get(h, "/").Body.String(), get(New(Config{}, Settings{}, "map.html"), "/").Body.String())
}

package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"trafficd/sinks/layers"
)

// mapStreets are some hundreds of the layer's buckets, each with deflate blocks of its
// own in the gzip body.
const mapStreets = 20_000

// A real browser unpacks the layer to the bytes of the identity body, by gzip and by
// zstd, and keeps it: what has not changed is not sent again.
func TestForecastInBrowser(t *testing.T) {
	d := newProcess(t)
	feed := filepath.Join(d.dir, "forecasts.pb")
	d.set("forecasts.feed=file", "forecasts.file.path="+feed, "forecasts.file.settle=10ms")
	replaceFile(t, filepath.Join(d.dir, "keys.yaml"), "keys:\n"+keyEntry("map", "forecast", "Europe/Copenhagen"))
	publishFile(t, feed, 1)
	d.start().await(http.StatusOK)
	d.awaitLayer("map")
	chrome := startBrowser(t)

	f := func(accepts, wantEncoding string) {
		t.Helper()
		proxy := startProxy(t, d.api, accepts)
		page := chrome.open(t, proxy.URL+"/map.html")
		for _, accept := range []string{"application/x-protobuf", "application/json"} {
			for _, query := range []string{"", "?horizon=30"} {
				path := layers.Path + query
				want := d.identity(query, accept)

				require.Equal(t, want.as(wantEncoding), page.get(t, path, accept, "reload"), path)
				require.Equal(t, []passed{{http.StatusOK, wantEncoding}}, proxy.passed(), path)
				require.Equal(t, want.as(wantEncoding), page.get(t, path, accept, "no-cache"), path)
				require.Equal(t, []passed{{http.StatusNotModified, ""}}, proxy.passed(), path)
			}
		}
	}
	f("gzip", "gzip")
	f("zstd", "zstd")
	f("identity", "")
	f("", "zstd") // what the browser says itself

	proxy := startProxy(t, d.api, "gzip")
	page := chrome.open(t, proxy.URL+"/map.html")
	const accept = "application/x-protobuf"
	before := page.get(t, layers.Path, accept, "no-cache")
	publishFile(t, feed, 2)
	d.eventually(func() bool { return d.identity("", accept).Digest != before.Digest }, "the new layer")
	require.Equal(t, d.identity("", accept).as("gzip"), page.get(t, layers.Path, accept, "no-cache"))
	require.Equal(t, []passed{{http.StatusOK, "gzip"}, {http.StatusOK, "gzip"}}, proxy.passed())
}

// publishFile makes a file of forecasts. Their periods last so long that none begins
// or ends during a test.
func publishFile(t *testing.T, path string, seed int) {
	t.Helper()
	start := time.Now().UTC().Truncate(time.Hour)
	mustRun(t, trafficctl(t), "forecast", "generate", "--streets", fmt.Sprint(mapStreets), "--seed", fmt.Sprint(seed),
		"--from", start.Format(time.RFC3339), "--periods", "3", "--step", "6h", "--output", path+".new.pb")
	require.NoError(t, os.Rename(path+".new.pb", path))
}

// awaitLayer waits until the layer is there.
func (d *process) awaitLayer(key string) {
	d.t.Helper()
	d.eventually(func() bool { a, _ := d.layer(key, ""); return a.StatusCode == http.StatusOK }, "a layer")
}

// arrived is what the page says of an answer.
type arrived struct {
	Status   int    `json:"status"`
	Encoding string `json:"encoding"`
	Size     int    `json:"size"`
	Digest   string `json:"digest"`
}

// as is the same content in another encoding.
func (a arrived) as(encoding string) arrived {
	a.Encoding = encoding
	return a
}

// identity is the layer without any compression, got without a browser.
func (d *process) identity(query, accept string) arrived {
	d.t.Helper()
	answer, body := d.layer("map", query, "Accept", accept, "Accept-Encoding", "identity")
	require.Equal(d.t, http.StatusOK, answer.StatusCode)
	require.Equal(d.t, accept, answer.Header.Get("Content-Type"))
	digest := sha256.Sum256(body)
	return arrived{answer.StatusCode, "", len(body), hex.EncodeToString(digest[:])}
}

// proxy stands between the browser and the daemon: page and layer have one origin,
// and the browser can be held to one encoding.
type proxy struct {
	*httptest.Server
	mu  sync.Mutex
	log []passed
}

// passed is what the daemon sent.
type passed struct {
	status   int
	encoding string
}

// startProxy replaces Accept-Encoding, unless accepts is empty.
func startProxy(t *testing.T, daemon, accepts string) *proxy {
	t.Helper()
	p := &proxy{}
	forward := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "http", Host: daemon})
			if accepts != "" {
				r.Out.Header.Set("Accept-Encoding", accepts)
			}
		},
		ModifyResponse: func(r *http.Response) error {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.log = append(p.log, passed{r.StatusCode, r.Header.Get("Content-Encoding")})
			return nil
		},
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /map.html", func(w http.ResponseWriter, r *http.Request) {
		http.ServeFile(w, r, filepath.Join("testdata", "clients", "map.html"))
	})
	mux.Handle(layers.Path, forward)
	p.Server = httptest.NewServer(mux)
	t.Cleanup(p.Close)
	return p
}

// passed gives what has passed since it was asked last.
func (p *proxy) passed() []passed {
	p.mu.Lock()
	defer p.mu.Unlock()
	log := p.log
	p.log = nil
	return log
}

// browser is a running Chromium, tab one of its tabs.
type (
	browser struct{ ctx context.Context }
	tab     struct{ ctx context.Context }
)

// startBrowser runs Chromium with an empty profile until the test's end.
func startBrowser(t *testing.T) browser {
	t.Helper()
	program, err := exec.LookPath("chromium")
	require.NoError(t, err, "chromium (package chromium)")
	ctx, cancel := chromedp.NewContext(t.Context(), chromedp.WithErrorf(t.Logf), chromedp.WithAllocatorOptions(
		chromedp.ExecPath(program), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true),
		chromedp.WSURLReadTimeout(time.Minute), // a busy machine
	))
	t.Cleanup(cancel)
	require.NoError(t, chromedp.Do(ctx), "cannot start %s", program)
	return browser{ctx}
}

func (b browser) open(t *testing.T, address string) tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(b.ctx)
	t.Cleanup(cancel)
	require.NoError(t, chromedp.Do(ctx, chromedp.Navigate(address)))
	return tab{ctx}
}

// get has the page fetch the layer; cache is fetch's mode.
func (p tab) get(t *testing.T, path, accept, cache string) arrived {
	t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, time.Minute)
	defer cancel()
	script := fmt.Sprintf("get(%q, %q, %q)", path, accept, cache)
	a, err := chromedp.Run(ctx, chromedp.Evaluate[arrived](script, chromedp.EvalAwaitPromise))
	require.NoError(t, err)
	return a
}

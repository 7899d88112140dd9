package browser

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
	"sync"
	"testing"
	"time"

	"trafficd/cmd/dev/daemontest"
	"trafficd/cmd/dev/traffic/town"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"trafficd/cmd/dev/needs"
	pb "trafficd/schemas/proto/trafficd/v1"
	"trafficd/sinks/layers"
)

// mapStreets is enough for dozens of cells of the layer, each with its own deflate blocks in the
// gzip body.
const mapStreets = 20_000

// TestForecastInBrowser checks that a real browser decompresses the layer to the bytes of the
// identity body, after a full build and after some streets have changed. It caches the layer: an
// unchanged one is not sent again.
func TestForecastInBrowser(t *testing.T) {
	needs.Everything(t, "Chromium")
	d := daemontest.New(t)
	feed := d.SetForecastFile("forecasts.pb")
	d.Keys(daemontest.KeyEntry("map", "forecast", "Europe/Copenhagen"))
	publishFile(t, feed)
	d.Run().Await(http.StatusOK)
	d.AwaitLayer("map")
	chrome := startBrowser(t)

	maps := []*mapPage{
		chrome.open(t, d, "gzip", "gzip"),
		chrome.open(t, d, "identity", ""),
		chrome.open(t, d, "", "gzip"), // as sent by the browser
	}
	for _, m := range maps {
		m.checkAll(t)
	}

	before := identity(d, "", protobufType).Digest
	changeFile(t, feed)
	d.Eventually(func() bool { return identity(d, "", protobufType).Digest != before }, "the new layer")
	for _, m := range maps {
		m.check(t, "", jsonType, "no-cache", passed{http.StatusOK, m.encoding}) // the cached one
		m.checkAll(t)
	}
}

// TestForecastFromAnotherOrigin checks that a page of another origin gets the layer directly from
// the daemon if the settings name its origin. The browser sends a preflight before the request
// with the key.
func TestForecastFromAnotherOrigin(t *testing.T) {
	needs.Everything(t, "Chromium")
	chrome := startBrowser(t)
	page := chrome.open(t, &daemontest.Trafficd{}, "", "gzip") // its proxy serves only the page
	f := func(origin, wantError string) {
		t.Helper()
		d := daemontest.New(t, "api.cors_origins=["+origin+"]")
		d.Keys(daemontest.KeyEntry("map", "forecast", "UTC"))
		publishFile(t, d.SetForecastFile("forecasts.pb"))
		d.Run().Await(http.StatusOK)
		d.AwaitLayer("map")
		url := "http://" + d.API + layers.Path
		for _, cache := range []string{"reload", "no-cache"} {
			got, err := page.fetch(t, url, protobufType, cache)
			if wantError != "" {
				require.ErrorContains(t, err, wantError)
				continue
			}
			require.NoError(t, err)
			want := identity(d, "", protobufType)
			want.Encoding = "gzip"
			require.Equal(t, want, got)
		}
	}
	f(page.proxy.URL, "")
	f("'*'", "")
	f("https://map.example.org", "Failed to fetch")
	f("", "Failed to fetch")
}

const (
	protobufType = "application/x-protobuf"
	jsonType     = "application/json"
)

// checkAll gets each form of the layer, bypassing the cache, then revalidates it.
func (m *mapPage) checkAll(t *testing.T) {
	t.Helper()
	for _, accept := range []string{protobufType, jsonType} {
		for _, query := range []string{"?horizon=30", ""} {
			m.check(t, query, accept, "reload", passed{http.StatusOK, m.encoding})
			m.check(t, query, accept, "no-cache", passed{http.StatusNotModified, ""})
		}
	}
}

// check has the page fetch the layer with a cache mode. The page must get the bytes that a client
// without compression gets, and the daemon must have sent the response that want describes.
func (m *mapPage) check(t *testing.T, query, accept, cache string, want passed) {
	t.Helper()
	whole := identity(m.daemon, query, accept)
	whole.Encoding = m.encoding
	require.Equal(t, whole, m.get(t, layers.Path+query, accept, cache), "%s %s %s", query, accept, cache)
	require.Equal(t, []passed{want}, m.proxy.passed(), "%s %s %s", query, accept, cache)
}

// publishFile writes a file of forecasts, whose periods neither begin nor end during a test.
func publishFile(t *testing.T, path string) {
	t.Helper()
	cfg := town.DefaultForecastConfig()
	cfg.Streets, cfg.Periods, cfg.Step, cfg.From = mapStreets, 3, 6*time.Hour, time.Now().UTC().Truncate(time.Hour)
	require.NoError(t, town.WriteForecasts(path, cfg))
}

// changeFile changes and removes streets throughout the file.
func changeFile(t *testing.T, path string) {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	var layer pb.StreetForecastResponse
	require.NoError(t, proto.Unmarshal(text, &layer))
	var kept []*pb.StreetForecast
	for i, s := range layer.StreetForecast {
		if i%500 == 100 {
			s.Forecast[0].Speed += 7.25
		}
		if i%1000 > 3 {
			kept = append(kept, s)
		}
	}
	layer.StreetForecast = kept
	text, err = proto.Marshal(&layer)
	require.NoError(t, err)
	daemontest.ReplaceFile(t, path, string(text))
}

// arrived describes a response as the page received it.
type arrived struct {
	Status   int    `json:"status"`
	Encoding string `json:"encoding"`
	Size     int    `json:"size"`
	Digest   string `json:"digest"`
}

// identity returns the uncompressed layer, requested without a browser.
func identity(d *daemontest.Trafficd, query, accept string) arrived {
	d.T.Helper()
	response, body := d.Layer("map", query, "Accept", accept, "Accept-Encoding", "identity")
	require.Equal(d.T, http.StatusOK, response.StatusCode)
	require.Equal(d.T, accept, response.Header.Get("Content-Type"))
	digest := sha256.Sum256(body)
	return arrived{response.StatusCode, "", len(body), hex.EncodeToString(digest[:])}
}

// proxy forwards requests of the browser to the daemon, so that page and layer have one origin, and
// can restrict the browser to one encoding.
type proxy struct {
	*httptest.Server
	mu  sync.Mutex
	log []passed
}

// passed describes a response that the proxy forwarded.
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
	mux.Handle("/", http.FileServer(http.Dir("testdata")))
	mux.Handle(layers.Path, forward)
	p.Server = httptest.NewServer(mux)
	t.Cleanup(p.Close)
	return p
}

// passed returns the responses forwarded since the last call.
func (p *proxy) passed() []passed {
	p.mu.Lock()
	defer p.mu.Unlock()
	log := p.log
	p.log = nil
	return log
}

// browser is a running Chromium.
type browser struct{ ctx context.Context }

// startBrowser runs Chromium with an empty profile until the test ends.
func startBrowser(t *testing.T) browser {
	t.Helper()
	needs.Everything(t, "Chromium")
	program, err := exec.LookPath("chromium")
	require.NoError(t, err, "chromium (package chromium)")
	ctx, cancel := chromedp.NewContext(context.Background(), chromedp.WithErrorf(t.Logf), chromedp.WithAllocatorOptions(
		chromedp.ExecPath(program), chromedp.NoSandbox, chromedp.Flag("use-angle", "swiftshader-webgl"), chromedp.Flag("enable-unsafe-swiftshader", true), // as without a graphics processor
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true),
		chromedp.WSURLReadTimeout(time.Minute), // for a busy machine
	))
	t.Cleanup(func() {
		defer cancel()
		within, done := context.WithTimeout(ctx, time.Minute)
		defer done()
		require.NoError(t, chromedp.Cancel(within)) // a killed browser leaves files behind
	})
	require.NoError(t, chromedp.Do(ctx), "cannot start %s", program)
	return browser{ctx}
}

// mapPage is an open page that gets the layer from the daemon in one encoding.
type mapPage struct {
	ctx      context.Context
	daemon   *daemontest.Trafficd
	proxy    *proxy
	encoding string // Content-Encoding; empty: identity
}

// open opens the page in a new tab. See startProxy for accepts.
func (b browser) open(t *testing.T, d *daemontest.Trafficd, accepts, encoding string) *mapPage {
	t.Helper()
	m := &mapPage{daemon: d, proxy: startProxy(t, d.API, accepts), encoding: encoding}
	var cancel context.CancelFunc
	m.ctx, cancel = chromedp.NewContext(b.ctx)
	t.Cleanup(cancel)
	require.NoError(t, chromedp.Do(m.ctx, chromedp.Navigate(m.proxy.URL+"/map.html")))
	return m
}

// get has the page fetch the layer; cache is the cache mode of fetch.
func (m *mapPage) get(t *testing.T, path, accept, cache string) arrived {
	t.Helper()
	a, err := m.fetch(t, path, accept, cache)
	require.NoError(t, err)
	return a
}

func (m *mapPage) fetch(t *testing.T, path, accept, cache string) (arrived, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(m.ctx, time.Minute)
	defer cancel()
	script := fmt.Sprintf("get(%q, %q, %q)", path, accept, cache)
	return chromedp.Run(ctx, chromedp.Evaluate[arrived](script, chromedp.EvalAwaitPromise))
}

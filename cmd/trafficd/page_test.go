package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	pb "trafficd/schemas/proto/trafficd/v1"
)

// pageStreets is the number of streets on the map.
const pageStreets = 2000

// withForecasts gives a daemon a file of forecasts, and keys.
func withForecasts(t *testing.T, d *process) (_ *process, feed string) {
	t.Helper()
	feed = filepath.Join(d.Dir, "forecasts.pb")
	d.set("forecasts.feed=file", "forecasts.file.path="+feed, "forecasts.file.settle=10ms")
	replaceFile(t, filepath.Join(d.Dir, "keys.yaml"), "keys:\n"+keyEntry("map", "forecast", "Europe/Copenhagen")+keyEntry("acme", "ingest", "UTC")+keyEntry("ring-road", "ingest", "UTC"))
	start := time.Now().UTC().Truncate(15 * time.Minute)
	mustRun(t, trafficctl(t), "forecast", "generate", "--streets", fmt.Sprint(pageStreets),
		"--from", start.Format(time.RFC3339), "--periods", "16", "--step", "15m", "--output", feed+".new.pb")
	require.NoError(t, os.Rename(feed+".new.pb", feed))
	return d, feed
}

// withPage starts a daemon with a forecast layer and a key for it. The feed is returned.
func withPage(t *testing.T, settings ...string) (d *process, feed string) {
	d, feed = withForecasts(t, newProcess(t, settings...))
	d.start().await(http.StatusOK)
	d.awaitLayer("map")
	return d, feed
}

// tab is a page in the browser that fails the test if it writes to the console or requests another host.
type tab struct {
	t   *testing.T
	ctx context.Context

	mu       sync.Mutex
	messages []string
	urls     []string
}

func (b browser) tab(t *testing.T, width, height int64, scheme string) *tab {
	t.Helper()
	p := &tab{t: t}
	var cancel context.CancelFunc
	p.ctx, cancel = chromedp.NewContext(b.ctx)
	t.Cleanup(cancel)
	require.NoError(t, chromedp.Listen(p.ctx, func(event any) {
		p.mu.Lock()
		defer p.mu.Unlock()
		switch e := event.(type) {
		case *runtime.EventConsoleAPICalled:
			for _, a := range e.Args {
				p.messages = append(p.messages, string(a.Value)+a.Description)
			}
		case *runtime.EventExceptionThrown:
			p.messages = append(p.messages, e.ExceptionDetails.Text)
		case *log.EventEntryAdded:
			p.messages = append(p.messages, e.Entry.Text+" "+e.Entry.URL)
		case *network.EventRequestWillBeSent:
			p.urls = append(p.urls, e.Request.URL)
			if u := e.Request.URL; !strings.HasPrefix(u, "http://127.") && !strings.HasPrefix(u, "data:") && !strings.HasPrefix(u, "blob:") {
				p.messages = append(p.messages, "request to another host: "+u)
			}
		}
	}))
	for _, err := range []error{
		call(p.ctx, log.Enable, cdp.Empty{}), call(p.ctx, runtime.Enable, cdp.Empty{}), call(p.ctx, network.Enable, network.EnableParams{}),
		call(p.ctx, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: width, Height: height, DeviceScaleFactor: 1, Mobile: width < 600}),
		call(p.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
		}),
	} {
		require.NoError(t, err)
	}
	return p
}

func call[P any](ctx context.Context, command cdp.Command[P, cdp.Empty], params P) error {
	_, err := chromedp.Call(ctx, command, params)
	return err
}

func (p *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, time.Minute)
	defer cancel()
	require.NoError(p.t, chromedp.Do(ctx, actions...))
}

// eval returns the value of a script, which may be a promise, as JSON.
func (p *tab) eval(to any, script string, args ...any) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, time.Minute)
	defer cancel()
	text, err := chromedp.Run(ctx, chromedp.Evaluate[string](
		"Promise.resolve("+fmt.Sprintf(script, args...)+").then(v => JSON.stringify(v) ?? 'null')", chromedp.EvalAwaitPromise))
	require.NoError(p.t, err)
	require.NoError(p.t, json.Unmarshal([]byte(text), to))
}

// until waits for a script to be true.
func (p *tab) until(script string, args ...any) {
	p.t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		var ok bool
		if p.eval(&ok, "!!("+script+")", args...); ok {
			return
		}
	}
	var text string
	p.eval(&text, "document.body.innerText")
	p.t.Fatalf("never true: "+script+"\n%s\n%v", append(args, text, p.taken())...)
}

// taken returns the messages since the last call.
func (p *tab) taken() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	m := p.messages
	p.messages = nil
	return m
}

// requested returns the addresses of all requests.
func (p *tab) requested() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.urls)
}

// shown is what the map draws.
type shown struct {
	Horizon  int     `json:"horizon"`
	Scale    string  `json:"scale"`
	Street   []int32 `json:"street"`
	Fromnode []int32 `json:"fromnode"`
	Steps    []int   `json:"steps"`
}

const readShown = `window.shown && {...window.shown, street: [...window.shown.street], fromnode: [...window.shown.fromnode], steps: [...window.shown.steps]}`

// wantSteps computes the colour of each street from the layers themselves.
func wantSteps(d *process, scale string, horizon int, horizons []int) map[[2]int32]int {
	d.t.Helper()
	free, speed := map[[2]int32]float64{}, map[[2]int32]float64{}
	for _, h := range horizons {
		a, body := d.layer("map", fmt.Sprintf("?horizon=%d", h))
		require.Equal(d.t, http.StatusOK, a.StatusCode)
		var all pb.StreetForecastResponse
		require.NoError(d.t, proto.Unmarshal(body, &all))
		for _, s := range all.StreetForecast {
			id := [2]int32{s.Street, s.Fromnode}
			free[id] = max(free[id], s.Forecast[0].Speed)
			if h == horizon {
				speed[id] = s.Forecast[0].Speed
			}
		}
	}
	bounds := map[string][]float64{"relative": {.25, .5, .75, .9}, "absolute": {15, 30, 50, 80}}[scale]
	steps := map[[2]int32]int{}
	for id, f := range free {
		v, ok := speed[id]
		if scale == "relative" {
			v = float64(float32(v)) / float64(float32(f)) // as the page keeps them
		}
		if steps[id] = 0; !ok || math.IsNaN(v) {
			steps[id] = 255
			continue
		}
		for _, b := range bounds {
			if v >= b {
				steps[id]++
			}
		}
	}
	return steps
}

// TestMapPage compares the colour of every street, at every horizon and in both scales, with the layer.
func TestMapPage(t *testing.T) {
	d, _ := withPage(t)
	chrome := startBrowser(t)
	p := chrome.tab(t, 1440, 900, "light")
	p.do(chromedp.Navigate("http://" + d.Ops + "/#map"))
	horizons := []int{0, 15, 30, 45, 60}
	p.until("window.shown && window.shown.street.length == %d && window.layersLoaded == %d", pageStreets, len(horizons))
	for i, horizon := range horizons {
		p.eval(new(any), `(() => { const e = document.querySelector("input[type=range]"); e.value = %d; e.dispatchEvent(new Event("input", {bubbles: true})) })()`, i)
		for _, scale := range []string{"relative", "absolute"} {
			p.eval(new(any), `document.querySelectorAll("input[name=scale]")[%d].click()`, map[string]int{"relative": 0, "absolute": 1}[scale])
			p.until("window.shown.horizon == %d && window.shown.scale == %q", horizon, scale)
			var s shown
			p.eval(&s, readShown)
			got := map[[2]int32]int{}
			for k, id := range s.Street {
				got[[2]int32{id, s.Fromnode[k]}] = s.Steps[k]
			}
			want := wantSteps(d, scale, horizon, horizons)
			require.Len(t, want, pageStreets)
			for id, step := range want {
				require.Equal(t, step, got[id], "street %d, horizon %d, %s", id, horizon, scale)
			}
			require.Len(t, got, pageStreets)
		}
	}
	require.Empty(t, p.taken())
}

// TestMapPageNeedsAKey follows a client from the wrong key to the map.
func TestMapPageNeedsAKey(t *testing.T) {
	d, _ := withPage(t)
	p := startBrowser(t).tab(t, 390, 844, "dark")
	p.do(chromedp.Navigate("http://" + d.API + "/map/"))
	enter := func(key string) {
		p.do(chromedp.WaitVisible(chromedp.CSS("input[name=key]")), chromedp.SendKeys(chromedp.CSS("input[name=key]"), key), chromedp.Click(chromedp.CSS("button[type=submit]")))
	}
	enter("wrong")
	p.until(`document.querySelector("[role=alert]")?.innerText.includes("key")`)
	p.taken() // Chromium reports the 401
	enter("map")
	p.until("window.shown && window.shown.street.length == %d", pageStreets)
	var where string
	p.eval(&where, "location.href + JSON.stringify({...sessionStorage}) + JSON.stringify({...localStorage})")
	require.Equal(t, "http://"+d.API+"/map/{}{}", where, "the key is in memory only")
	p.do(chromedp.Click(chromedp.CSS("header button")), chromedp.WaitVisible(chromedp.CSS("input[name=keep]")), chromedp.Click(chromedp.CSS("input[name=keep]")))
	enter("map")
	p.until("window.shown && window.shown.street.length == %d", pageStreets)
	p.eval(&where, "location.href + JSON.stringify({...sessionStorage}) + JSON.stringify({...localStorage})")
	require.Equal(t, "http://"+d.API+`/map/{"trafficd-key":"map"}{}`, where, "for the session, as the user asked")
	p.do(chromedp.Navigate("http://" + d.API + "/map/"))
	p.until("window.shown && window.shown.street.length == %d", pageStreets)
	require.Empty(t, p.taken())
	for _, u := range p.requested() {
		require.NotContains(t, u, "map?", u)
		require.NotContains(t, strings.ToLower(u), "key", u)
	}
}

// TestMapFollowsChanges changes some streets and removes others while the map is open.
func TestMapFollowsChanges(t *testing.T) {
	d, feed := withPage(t)
	p := startBrowser(t).tab(t, 1440, 900, "light")
	p.do(chromedp.Navigate("http://" + d.Ops + "/#map"))
	p.until("window.layersLoaded == 5")
	changeFile(t, feed)
	p.eval(new(any), `document.querySelectorAll("input[name=scale]")[1].click()`)
	p.until(`window.shown.scale == "absolute"`)
	var s shown
	d.eventually(func() bool {
		want := wantSteps(d, "absolute", 30, []int{30})
		p.eval(&s, readShown)
		for k, id := range s.Street {
			step, kept := want[[2]int32{id, s.Fromnode[k]}]
			if !kept {
				step = 255
			}
			if step != s.Steps[k] {
				return false
			}
		}
		return len(want) < len(s.Street) // streets were removed
	}, "the steps of the changed layer")
	require.Empty(t, p.taken())
}

// TestMapFiles: the files of the map are found below a base path, and a body that comes with a request for one is not read.
func TestMapFiles(t *testing.T) {
	d := newProcess(t, "api.base_path=/traffic", "ops.pprof=true").start()
	d.await(http.StatusOK)
	url := "http://" + d.API + "/traffic/map/"
	ask := func(method, etag string) *http.Response {
		r, err := http.NewRequestWithContext(t.Context(), method, url, nil)
		require.NoError(t, err)
		r.Header.Set("Accept-Encoding", "identity")
		r.Header.Set("If-None-Match", etag)
		answer, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		answer.Body.Close()
		return answer
	}
	answer := ask(http.MethodGet, "")
	require.Equal(t, http.StatusOK, answer.StatusCode)
	require.Contains(t, answer.Header.Get("Content-Type"), "text/html")
	require.Equal(t, answer.ContentLength, ask(http.MethodHead, "").ContentLength)
	require.Equal(t, http.StatusNotModified, ask(http.MethodGet, answer.Header.Get("ETag")).StatusCode)
	endless, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, zeros{})
	require.NoError(t, err)
	endless.ContentLength = -1
	before := d.metric("process_resident_memory_bytes")
	if got, err := http.DefaultTransport.RoundTrip(endless); err == nil { // the connection may be reset before the answer is read
		got.Body.Close()
	}
	require.Less(t, d.metric("process_resident_memory_bytes")-before, 64e6)
}

// zeros never ends.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// TestStalePage shows a layer whose forecasts have ended as stale.
func TestStalePage(t *testing.T) {
	d, feed := withPage(t, "layers.stale_after=1m")
	p := startBrowser(t).tab(t, 1440, 900, "light")
	p.do(chromedp.Navigate("http://" + d.Ops + "/#map"))
	p.until("window.shown && window.shown.street.length == %d", pageStreets)
	p.until(`!document.querySelector(".banner") && !document.querySelector(".stale")`)
	old := time.Now().Add(-2 * time.Hour)
	mustRun(t, trafficctl(t), "forecast", "generate", "--streets", fmt.Sprint(pageStreets), "--seed", "2",
		"--from", old.UTC().Truncate(15*time.Minute).Format(time.RFC3339), "--periods", "4", "--step", "15m", "--output", feed+".new.pb")
	require.NoError(t, os.Chtimes(feed+".new.pb", old, old))
	require.NoError(t, os.Rename(feed+".new.pb", feed))
	p.until(`document.querySelector(".stale .banner[role=alert]")?.innerText.startsWith("Stale")`)
}

// TestOperationsPage watches ClickHouse stop and start again, and follows rejections.
func TestOperationsPage(t *testing.T) {
	d, c, _ := onRealStores(t)
	d.set("clickhouse.delivery.retry_max=150ms", "kafka.delivery.retry_max=150ms")
	d.start().await(http.StatusOK)
	p := startBrowser(t).tab(t, 1440, 900, "dark")
	p.do(chromedp.Navigate("http://" + d.Ops + "/"))
	summary := func(text string) { p.until(`document.querySelector(".summary")?.innerText.includes(%q)`, text) }
	send := func(items ...string) {
		a, err := d.post(t.Context(), batchOf(items...), "")
		require.NoError(t, err)
		require.Equal(t, http.StatusMultiStatus, a.status)
	}
	summary("All is well.")
	p.do(chromedp.Click(chromedp.CSS(".tail button")))
	p.eval(new(any), `fetch("status").then(r => r.json()).then(s => s.time)`) // a request after that of the tail
	d.eventually(func() bool {                                                // the tail may not follow yet
		send(item(1, 0), strings.Replace(item(2, 0), detector(2), "nowhere", 1))
		var found bool
		p.eval(&found, `document.querySelector(".tail").innerText.includes("nowhere")`)
		return found
	}, "the rejection in the tail")
	d.awaitDelivered()
	require.NoError(t, c.Stop())
	summary("ClickHouse has taken no measurements")
	send(item(3, 1), item(4, 1))
	summary("; 2 measurements are waiting in the journal, which ")
	p.until(`[...document.querySelectorAll(".tables tr.bad td")].map(d => d.innerText).join().match(/^clickhouse,2,\d+ s,0,.*refused/)`)
	require.NoError(t, c.Restart())
	summary("All is well.")
	require.Empty(t, p.taken())
}

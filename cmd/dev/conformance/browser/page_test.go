package browser

import (
	"bufio"
	"context"
	encoding "encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"trafficd/cmd/dev/conformance/foreign"
	"trafficd/cmd/dev/daemontest"
	"trafficd/cmd/dev/traffic/town"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"trafficd/cmd/dev/devstores/stores"
	"trafficd/cmd/dev/needs"
	"trafficd/cmd/trafficd/status"
	"trafficd/pipeline"
	pb "trafficd/schemas/proto/trafficd/v1"
)

// pageStreets is the number of streets on the map.
const pageStreets = 2000

// withForecasts configures a daemon with a file of forecasts and with keys.
func withForecasts(t *testing.T, d *daemontest.Trafficd) (_ *daemontest.Trafficd, feed string) {
	t.Helper()
	feed = d.SetForecastFile("forecasts.pb")
	d.Keys(daemontest.KeyEntry("map", "forecast", "Europe/Copenhagen"), daemontest.KeyEntry("acme", "ingest", "UTC"), daemontest.KeyEntry("ring-road", "ingest", "UTC"))
	forecastsFrom(t, feed, time.Now(), time.Now())
	return d, feed
}

// forecastsFrom replaces the forecasts with forecasts for the four hours from then on, in a file
// with the given modification time. No period ends within 13 minutes, so that the page does not
// change during a test.
func forecastsFrom(t *testing.T, feed string, then, written time.Time) {
	t.Helper()
	require.NoError(t, town.WriteForecasts(feed+".new.pb", pageForecasts(justBefore(then))))
	require.NoError(t, os.Chtimes(feed+".new.pb", written, written))
	require.NoError(t, os.Rename(feed+".new.pb", feed))
}

// pageForecasts describes forecasts for the four hours from a time on.
func pageForecasts(from time.Time) town.ForecastConfig {
	cfg := town.DefaultForecastConfig()
	cfg.Streets, cfg.Periods, cfg.From, cfg.Details = pageStreets, 16, from, true
	return cfg
}

// justBefore returns a whole minute from one to two minutes before a time.
func justBefore(then time.Time) time.Time { return then.UTC().Add(-time.Minute).Truncate(time.Minute) }

// withPage starts a daemon with a forecast layer and a key for it. The feed is returned.
func withPage(t *testing.T, settings ...string) (d *daemontest.Trafficd, feed string) {
	d, feed = withForecasts(t, daemontest.New(t, settings...))
	d.Run().Await(http.StatusOK)
	d.AwaitLayer("map")
	return d, feed
}

// tab is a page in the browser that fails the test if it writes to the console or requests another
// host.
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
			if thrown := e.ExceptionDetails.Exception; thrown != nil {
				p.messages = append(p.messages, thrown.Description)
			}
		case *log.EventEntryAdded:
			if !strings.Contains(e.Entry.Text, "GL Driver Message") { // Chromium's, about how it copies the picture of the map
				p.messages = append(p.messages, e.Entry.Text+" "+e.Entry.URL)
			}
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
	} {
		require.NoError(t, err)
	}
	p.scheme(scheme)
	return p
}

// scheme selects the light or dark theme.
func (p *tab) scheme(scheme string) {
	p.t.Helper()
	require.NoError(p.t, call(p.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
	}))
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

// until waits until a script returns true.
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
	p.t.Fatalf("timed out waiting for: "+script+"\n%s\n%v", append(args, text, p.takeMessages())...)
}

// takeMessages returns the messages since the last call.
func (p *tab) takeMessages() []string {
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

// shown describes what the map draws.
type shown struct {
	Horizon  int     `json:"horizon"`
	Scale    string  `json:"scale"`
	Street   []int32 `json:"street"`
	Fromnode []int32 `json:"fromnode"`
	Steps    []int   `json:"steps"`

	Speed    []*float64 `json:"speed"` // null: unknown
	Low      []*float64 `json:"low"`
	High     []*float64 `json:"high"`
	FreeFlow []*float64 `json:"freeFlow"`
	Delay    []*float64 `json:"delay"`
	Worst    []int      `json:"worst"` // indexes of streets
}

const readShown = `window.shown && Object.fromEntries(Object.entries(window.shown).map(([k, v]) => [k, ArrayBuffer.isView(v) ? [...v] : v]))`

// wantStreets returns the streets of the layer with a horizon, with their optional members.
func wantStreets(d *daemontest.Trafficd, horizon int) map[[2]int32]*pb.StreetForecast {
	d.T.Helper()
	a, body := d.Layer("map", fmt.Sprintf("?fields=all&horizon=%d", horizon))
	require.Equal(d.T, http.StatusOK, a.StatusCode)
	var all pb.StreetForecastResponse
	require.NoError(d.T, proto.Unmarshal(body, &all))
	streets := map[[2]int32]*pb.StreetForecast{}
	for _, s := range all.StreetForecast {
		streets[[2]int32{s.Street, s.Fromnode}] = s
	}
	return streets
}

// wantStep computes the colour of a street from the layer itself.
func wantStep(s *pb.StreetForecast, scale string) (step int) {
	v := s.Forecast[0].Speed
	if scale == "relative" {
		v = float64(float32(v)) / float64(float32(s.GetFreeFlowSpeed())) // as the page keeps them
	}
	for _, b := range map[string][]float64{"relative": {.25, .5, .75, .9}, "absolute": {15, 30, 50, 80}}[scale] {
		if v >= b {
			step++
		}
	}
	return step
}

// wantDelay computes the delay on a street in minutes as the contract says.
func wantDelay(s *pb.StreetForecast) float64 {
	return max(0, 3.6*s.GetLength()*(1/s.Forecast[0].Speed-1/s.GetFreeFlowSpeed())) / 60
}

// TestMapPage follows one layer on the map: its colours, a street, a client with a key, changes,
// and how it becomes stale.
func TestMapPage(t *testing.T) {
	needs.Everything(t, "Chromium")
	d, feed := withPage(t)
	chrome := startBrowser(t)
	run := func(name string, part func(*testing.T, *daemontest.Trafficd, browser, string)) {
		t.Run(name, func(t *testing.T) {
			own := *d
			own.T = t
			part(t, &own, chrome, feed)
		})
	}
	run("colours", mapColours)
	run("street", mapStreet)
	run("reset", mapReset)
	run("key", mapClient)
	run("delays", mapDelays)
	run("lost", mapLost)
	run("changes", mapChanges)
	run("stale", mapStale)
}

// mapColours compares the colour of every street, at every horizon and in both scales, with the
// layer.
func mapColours(t *testing.T, d *daemontest.Trafficd, chrome browser, _ string) {
	p := chrome.tab(t, 1440, 900, "light")
	p.do(chromedp.Navigate("http://" + d.Ops + "/#map"))
	horizons := []int{0, 15, 30, 45, 60, 75, 90, 105}
	p.until("window.shown && window.shown.street.length == %d && window.layersLoaded == %d", pageStreets, len(horizons))
	for i, horizon := range horizons {
		p.eval(new(any), `(() => { const e = document.querySelector("input[type=range]"); e.value = %d; e.dispatchEvent(new Event("input", {bubbles: true})) })()`, i)
		want := wantStreets(d, horizon)
		require.Len(t, want, pageStreets)
		for _, scale := range []string{"relative", "absolute"} {
			p.eval(new(any), `document.querySelector("input[name=scale][value=%s]").click()`, scale)
			p.until("window.shown.horizon == %d && window.shown.scale == %q", horizon, scale)
			var s shown
			p.eval(&s, readShown)
			require.Len(t, s.Street, pageStreets)
			worst := 0.0
			for k, id := range s.Street {
				w := want[[2]int32{id, s.Fromnode[k]}]
				require.NotNil(t, w, "street %d", id)
				require.Equal(t, wantStep(w, scale), s.Steps[k], "street %d, horizon %d, %s", id, horizon, scale)
				for _, v := range []struct {
					want float64
					got  *float64
				}{
					{w.Forecast[0].Speed, s.Speed[k]},
					{w.Forecast[0].GetSpeedLow(), s.Low[k]},
					{w.Forecast[0].GetSpeedHigh(), s.High[k]},
					{w.GetFreeFlowSpeed(), s.FreeFlow[k]},
				} {
					require.NotNil(t, v.got, "street %d", id)
					require.InDelta(t, float32(v.want), *v.got, 0, "street %d, horizon %d", id, horizon)
				}
				require.InDelta(t, wantDelay(w), *s.Delay[k], 1e-5, "street %d, horizon %d", id, horizon)
				worst = max(worst, wantDelay(w))
			}
			if horizon == 0 {
				require.Len(t, s.Worst, 10)
				require.InDelta(t, worst, *s.Delay[s.Worst[0]], 1e-5)
			}
		}
	}
	require.Empty(t, p.takeMessages())
}

// mapStreet finds a street by its id and by a click on its side of the road, and follows the
// horizon by keyboard.
func mapStreet(t *testing.T, d *daemontest.Trafficd, chrome browser, _ string) {
	p := chrome.tab(t, 1440, 900, "light")
	p.do(chromedp.Navigate("http://" + d.Ops + "/#map"))
	p.until("window.shown && window.streets.drawn && window.layersLoaded == 8")
	var s shown
	p.eval(&s, readShown)
	_, body := d.Layer("map", fmt.Sprintf("?street=%d", s.Street[0]))
	var all pb.StreetForecastResponse
	require.NoError(t, proto.Unmarshal(body, &all))
	find := func() {
		p.do(chromedp.Click(chromedp.CSS(".search input")), chromedp.SendKeys(chromedp.CSS(".search input"), "\r"))
	}
	p.eval(new(any), `document.querySelector(".search input").value = %d`, s.Street[0])
	for i := range all.StreetForecast { // a further search finds the next direction
		find()
		p.until(`document.querySelector(".search .note").innerText == %q`, fmt.Sprintf("Direction %d of %d.", i+1, len(all.StreetForecast)))
		var text string
		p.until(`document.querySelector(".street dl")`)
		p.eval(&text, `document.querySelector(".street").innerText`)
		for _, f := range all.StreetForecast {
			if strings.Contains(text, fmt.Sprintf("from node %d\n", f.Fromnode)) {
				require.Contains(t, text, f.OpenLRcode)
				require.Contains(t, text, fmt.Sprintf("%d periods", len(f.Forecast)))
				require.Contains(t, text, f.Forecast[0].GetTimezone())
			}
		}
		p.until(`document.querySelector(".street .uplot canvas")`)
	}
	p.do(chromedp.SendKeys(chromedp.CSS(".search input"), kb.Escape))
	p.until(`!document.querySelector(".street")`)
	for i := range 2 { // both directions of a street, each on its side
		p.chooseByClick(i)
		p.until(`document.querySelector(".street[aria-label='Street %d'] small")?.innerText == "from node %d"`, s.Street[i], s.Fromnode[i])
		p.do(chromedp.Click(chromedp.CSS(".street button")))
	}
	p.do(chromedp.SendKeys(chromedp.CSS("input[type=range]"), kb.ArrowRight))
	p.until(`window.shown.horizon == 15 && document.querySelector("output").innerText.endsWith(" in 15 min")`)
	p.do(chromedp.SendKeys(chromedp.CSS(".panel button"), " "))
	p.until(`window.shown.horizon != 15`) // it plays
	p.until(`document.body.innerText.includes("they do not follow the road")`)
	require.Empty(t, p.takeMessages())
}

// mapReset resets the graphics processor, as a laptop may do that wakes up. The browser has none,
// so the test gives it another name to make the page use it.
func mapReset(t *testing.T, d *daemontest.Trafficd, chrome browser, _ string) {
	p := chrome.tab(t, 1440, 900, "light")
	_, err := chromedp.Call(p.ctx, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{
		Source: `WebGL2RenderingContext.prototype.getParameter = new Proxy(WebGL2RenderingContext.prototype.getParameter, {
			apply: (get, gl, [name]) => [gl.RENDERER, 0x9246].includes(name) ? "graphics" : get.call(gl, name)})`,
	})
	require.NoError(t, err)
	p.do(chromedp.Navigate("http://" + d.Ops + "/#map"))
	p.until("window.streets?.drawn && window.streets.id")
	p.until("window.streets.gl.getUniform(window.streets.program, window.streets.location.rimWidth) == 3") // a chosen street has a rim
	require.Empty(t, p.takeMessages())
	p.eval(new(any), `(window.graphics = window.map.getCanvas().getContext("webgl2").getExtension("WEBGL_lose_context")).loseContext()`)
	p.until("!window.map.style")
	p.takeMessages() // MapLibre warns that it does not restore the streets
	p.eval(new(any), "window.streets.drawn = false")
	p.eval(new(any), "window.graphics.restoreContext()")
	p.until("window.streets.drawn")
	require.Empty(t, p.takeMessages())
}

// mapDelays chooses the worst delay in the list by keyboard. The panel shows the values of the
// layer and does not cover the street, and the address shows the same again. Then the next one is
// chosen, and the pointer shows the street below it.
func mapDelays(t *testing.T, d *daemontest.Trafficd, chrome browser, _ string) {
	p := chrome.tab(t, 1440, 900, "light")
	p.do(chromedp.Navigate("http://" + d.Ops + "/#map"))
	p.until(`window.streets?.drawn && window.layersLoaded == 8 && document.querySelectorAll(".worst li").length == 10`)
	var s shown
	p.eval(&s, readShown)
	id := [2]int32{s.Street[s.Worst[0]], s.Fromnode[s.Worst[0]]}
	want := wantStreets(d, 0)[id]
	p.eval(new(any), `document.querySelector(".worst li button").focus()`)
	p.do(chromedp.KeyEvent(kb.Enter))
	panel := fmt.Sprintf(`document.querySelector(".panel.street[aria-label='Street %d']")`, id[0])
	p.until(panel + `?.querySelector("dl")`)
	var text string
	p.eval(&text, "%s", panel+`.querySelector(".shown").innerText`)
	require.Contains(t, text, fmt.Sprintf(" (%.0f to %.0f)", want.Forecast[0].GetSpeedLow(), want.Forecast[0].GetSpeedHigh()))
	require.Contains(t, text, fmt.Sprintf("free flow %.0f km/h", want.GetFreeFlowSpeed()))
	require.Contains(t, text, "delay ")
	middle := fmt.Sprintf(`(() => {
		const k = window.streets.geometry.owner.indexOf(%d), s = window.streets.geometry.segments.subarray(4 * k, 4 * k + 4);
		return window.map.project([(s[0] + s[2]) / 2, (s[1] + s[3]) / 2]);
	})()`, s.Worst[0])
	p.until(`(({ x }) => x > document.querySelector(".panel").getBoundingClientRect().right && x < `+panel+`.getBoundingClientRect().left)(%s)`, middle)
	var hash string
	p.eval(&hash, "location.hash")
	require.Contains(t, hash, fmt.Sprintf("street=%d/%d", id[0], id[1]))
	p.do(chromedp.Reload()) // a script that navigates may never return
	p.until(`window.streets?.drawn && ` + panel + `?.querySelector("dl")`)
	p.do(chromedp.Click(chromedp.CSS(".panel.street .row button")))
	p.until(`location.hash.includes("street=") && location.hash !== %q`, hash)
	p.eval(new(any), `document.querySelector(".panel.street h2 button").click()`)
	p.until(`!document.querySelector(".panel.street")`)
	p.eval(new(any), `window.map.jumpTo({center: window.map.unproject(%s)}) && 1`, middle)
	var at struct{ X, Y float64 }
	p.eval(&at, `(({ x, y }) => { const b = window.map.getContainer().getBoundingClientRect(); return { X: b.x + x, Y: b.y + y } })(%s)`, middle)
	p.do(chromedp.MouseEvent("mouseMoved", at.X, at.Y))
	p.until(`/km\/h.*free flow/.test(document.querySelector(".hover")?.innerText)`)
	require.Empty(t, p.takeMessages())
}

// mapLost stops the daemon while the map waits for a change: its connections stay open.
func mapLost(t *testing.T, d *daemontest.Trafficd, chrome browser, _ string) {
	p := chrome.tab(t, 390, 844, "light")
	p.do(chromedp.Navigate("http://" + d.Ops + "/#map"))
	p.until("window.layersLoaded == 8 && !document.querySelector('.banner')")
	require.NoError(t, d.Pause())
	p.until(`document.querySelector(".stale .banner")?.innerText.startsWith("The daemon cannot be reached.")`)
	require.NoError(t, d.Resume())
	p.until(`!document.querySelector(".banner")`)
	require.Empty(t, p.takeMessages())
}

// mapClient follows a client from the wrong key to the map.
func mapClient(t *testing.T, d *daemontest.Trafficd, chrome browser, _ string) {
	p := chrome.tab(t, 390, 844, "dark")
	p.do(chromedp.Navigate("http://" + d.API + "/map/"))
	p.enterKey("wrong")
	p.until(`document.querySelector("[role=alert]")?.innerText.includes("key")`)
	p.takeMessages() // Chromium reports the 401
	p.enterKey("map")
	p.until("window.shown && window.shown.street.length == %d", pageStreets)
	var where string
	p.eval(&where, "location.href + JSON.stringify({...sessionStorage}) + JSON.stringify({...localStorage})")
	require.Equal(t, "http://"+d.API+"/map/{}{}", where, "the key is in memory only")
	p.do(chromedp.Click(chromedp.CSS("header button")), chromedp.WaitVisible(chromedp.CSS("input[name=keep]")), chromedp.Click(chromedp.CSS("input[name=keep]")))
	p.enterKey("map")
	p.until("window.shown && window.shown.street.length == %d", pageStreets)
	p.eval(&where, "location.href + JSON.stringify({...sessionStorage}) + JSON.stringify({...localStorage})")
	require.Equal(t, "http://"+d.API+`/map/{"trafficd-key":"map"}{}`, where, "for the session, as the user asked")
	p.do(chromedp.Navigate("http://" + d.API + "/map/"))
	p.until("window.shown && window.shown.street.length == %d", pageStreets)
	require.Empty(t, p.takeMessages())
	for _, u := range p.requested() {
		require.NotContains(t, u, "map?", u)
		require.NotContains(t, strings.ToLower(u), "key", u)
	}
}

// enterKey enters the key of a client.
func (p *tab) enterKey(key string) {
	p.t.Helper()
	p.do(chromedp.WaitVisible(chromedp.CSS("input[name=key]")), chromedp.SendKeys(chromedp.CSS("input[name=key]"), key), chromedp.Click(chromedp.CSS("button[type=submit]")))
}

// mapChanges changes some streets and removes others while the map is open.
func mapChanges(t *testing.T, d *daemontest.Trafficd, chrome browser, feed string) {
	p := chrome.tab(t, 1440, 900, "light")
	p.do(chromedp.Navigate("http://" + d.Ops + "/#map"))
	p.until("window.layersLoaded == 8")
	changeFile(t, feed)
	p.eval(new(any), `document.querySelector("input[name=scale][value=absolute]").click()`)
	p.until(`window.shown.scale == "absolute"`)
	var s shown
	d.Eventually(func() bool {
		want := wantStreets(d, 0)
		p.eval(&s, readShown)
		for k, id := range s.Street {
			step := 255
			if w := want[[2]int32{id, s.Fromnode[k]}]; w != nil {
				step = wantStep(w, "absolute")
			}
			if step != s.Steps[k] {
				return false
			}
		}
		return len(want) < len(s.Street) // streets were removed
	}, "the steps of the changed layer")
	require.Empty(t, p.takeMessages())
}

// mapStale checks that old forecasts, and forecasts whose periods have ended, are shown as stale
// until there are new ones. A page that is opened without any says what is missing and what to do.
func mapStale(t *testing.T, d *daemontest.Trafficd, chrome browser, feed string) {
	now := time.Now()
	forecastsFrom(t, feed, now.Add(-30*time.Minute), now.Add(-3*time.Hour))
	p := chrome.tab(t, 1440, 900, "light")
	p.do(chromedp.Navigate("http://" + d.Ops + "/#map"))
	banner := func(want string) {
		t.Helper()
		p.until(`document.querySelector(".stale .banner[role=alert]")?.innerText.startsWith(%q)`, "Stale forecasts. "+want)
	}
	banner("The newest data is 3 h old")
	forecastsFrom(t, feed, now.Add(-5*time.Hour), now)
	banner("No street has a current or future forecast.")
	operator, client := chrome.tab(t, 1440, 900, "light"), chrome.tab(t, 390, 844, "dark") // for them, the layer is empty
	operator.do(chromedp.Navigate("http://" + d.Ops + "/#map"))
	client.do(chromedp.Navigate("http://" + d.API + "/map/"))
	client.enterKey("map")
	for _, e := range []*tab{operator, client} {
		e.until(`document.querySelector(".freshness[role=status]")?.innerText.startsWith("No street has a current or future forecast. Streets appear here with the next ones. ")`)
		e.until(`!document.querySelector(".banner, .stale, .time, .search, .legend, .worst") && window.map.getLayer("land")`)
		var overflow bool
		e.eval(&overflow, "document.documentElement.scrollWidth > innerWidth")
		require.False(t, overflow)
	}
	operator.until(`document.querySelector(".freshness a").innerText == "TrafficdForecastsStale"`)
	client.until(`document.querySelector(".freshness").innerText.endsWith("tell the operator of this service.")`)
	operator.save(t, "empty-operator")
	client.save(t, "empty-client")
	forecastsFrom(t, feed, now, now)
	for _, e := range []*tab{p, operator, client} {
		e.until(`document.querySelector(".freshness b").innerText == "2,000 streets" && window.streets.drawn && document.querySelector(".time")`)
		e.until(`!document.querySelector(".banner") && !document.querySelector(".stale")`)
		require.Empty(t, e.takeMessages())
	}
}

// TestMapWithoutForecasts checks that the map says what is missing, with a feed that is not set and
// with one that has no forecasts yet.
func TestMapWithoutForecasts(t *testing.T) {
	needs.Everything(t, "Chromium")
	chrome := startBrowser(t)
	f := func(want string, settings ...string) {
		d := daemontest.New(t, settings...)
		d.Run().Await(http.StatusOK)
		p := chrome.tab(t, 390, 844, "light")
		p.do(chromedp.Navigate("http://" + d.Ops + "/#map"))
		p.until(`document.querySelector(".banner[role=alert]")?.innerText == %q`, want)
	}
	f("No forecasts are configured: the operator must set forecasts.feed.")
	f("no forecasts yet: try again later", "forecasts.feed=kafka", "forecasts.kafka.brokers=127.0.0.1:1")
}

// TestMapWithoutWebGL checks that a browser that cannot draw the map says so, and that the search
// and the list of delays work.
func TestMapWithoutWebGL(t *testing.T) {
	needs.Everything(t, "Chromium")
	d, _ := withPage(t)
	p := startBrowser(t).tab(t, 1440, 900, "light")
	_, err := chromedp.Call(p.ctx, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{
		Source: `HTMLCanvasElement.prototype.getContext = new Proxy(HTMLCanvasElement.prototype.getContext, {
			apply: (get, canvas, [kind, ...rest]) => kind.startsWith("webgl") ? null : get.call(canvas, kind, ...rest)})`,
	})
	require.NoError(t, err)
	p.do(chromedp.Navigate("http://" + d.Ops + "/#map"))
	p.until(`document.querySelector(".map .empty[role=alert]")?.innerText.startsWith("This browser cannot draw the map, because WebGL is not available")`)
	p.until(`window.layersLoaded == 8 && document.querySelectorAll(".worst li").length == 10`)
	p.eval(new(any), `document.querySelector(".worst li button").click()`)
	p.until(`document.querySelector(".panel.street .uplot canvas")`)
	p.do(chromedp.KeyEvent(kb.Escape))
	p.until(`!document.querySelector(".panel.street")`)
	p.eval(new(any), `(() => { document.querySelector(".search input").value = window.shown.street[0]; document.querySelector("form.search").requestSubmit() })()`)
	p.until(`document.querySelector(".panel.street .uplot canvas")`)
	require.Empty(t, p.takeMessages())
}

// TestMapWithoutHorizons checks that the map shows the whole layer if there are no horizons.
func TestMapWithoutHorizons(t *testing.T) {
	needs.Everything(t, "Chromium")
	d, _ := withPage(t, "layers.horizons=[]")
	p := startBrowser(t).tab(t, 390, 844, "light")
	p.do(chromedp.Navigate("http://" + d.Ops + "/#map"))
	p.until("window.streets?.drawn && window.shown.street.length == %d", pageStreets)
	p.chooseByClick(0)
	p.until(`document.querySelector(".street .uplot canvas")`)
	var text string
	p.eval(&text, "document.body.innerText")
	require.NotRegexp(t, "Stale|undefined|Invalid", text)
	require.Empty(t, p.takeMessages())
}

// TestBasemap checks that both listeners show the vector tiles of an archive under the streets,
// with left-hand traffic.
func TestBasemap(t *testing.T) {
	needs.Everything(t, "Chromium")
	path := filepath.Join(t.TempDir(), "city.pmtiles")
	require.NoError(t, os.WriteFile(path, waterArchive(), 0o600))
	d, _ := withPage(t, "ui.basemap="+path, "ui.left_hand=true")
	chrome := startBrowser(t)
	p := chrome.tab(t, 1440, 900, "light")
	p.do(chromedp.Navigate("http://" + d.Ops + "/#map"))
	p.until("window.streets?.drawn && window.map.getLayer('water-areas') && window.map.areTilesLoaded()")
	p.until(`window.map.queryRenderedFeatures([20, 800], {layers: ["water-areas"]}).length > 0`)
	require.Empty(t, p.takeMessages())
	mapStreet(t, d, chrome, "")
}

// TestBasemapRequests requests the archive, and ranges of it, from both listeners: also a large
// one, and one that is missing.
func TestBasemapRequests(t *testing.T) {
	path := filepath.Join(t.TempDir(), "city.pmtiles")
	require.NoError(t, os.WriteFile(path, waterArchive(), 0o600))
	d := daemontest.New(t, "ui.basemap="+path).Run()
	d.Await(http.StatusOK)
	clients, operators := "http://"+d.API+"/map/basemap.pmtiles", "http://"+d.Ops+"/basemap.pmtiles"
	for _, url := range []string{clients, operators} {
		whole, text := daemontest.WithoutKey(t, http.MethodGet, url)
		require.Equal(t, http.StatusOK, whole.StatusCode)
		require.Equal(t, string(waterArchive()), text)
		size := len(text)
		require.EqualValues(t, size, whole.ContentLength)
		require.Equal(t, "application/vnd.pmtiles", whole.Header.Get("Content-Type"))
		require.Equal(t, "nosniff", whole.Header.Get("X-Content-Type-Options"))
		require.Equal(t, "public, no-cache", whole.Header.Get("Cache-Control"))
		require.Equal(t, "bytes", whole.Header.Get("Accept-Ranges"))
		f := func(asked, want string, status int, contentRange string) {
			t.Helper()
			part, text := daemontest.WithoutKey(t, http.MethodGet, url, "Range", asked)
			require.Equal(t, status, part.StatusCode)
			require.Equal(t, want, text)
			require.EqualValues(t, len(want), part.ContentLength)
			require.Equal(t, contentRange, part.Header.Get("Content-Range"))
		}
		f("bytes=0-6", "PMTiles", http.StatusPartialContent, fmt.Sprintf("bytes 0-6/%d", size))
		f("bytes=7-", text[7:], http.StatusPartialContent, fmt.Sprintf("bytes 7-%d/%d", size-1, size))
		f("bytes=-5", text[size-5:], http.StatusPartialContent, fmt.Sprintf("bytes %d-%d/%d", size-5, size-1, size))
		f("bytes=0-1,3-4", text, http.StatusOK, "")
		for _, ignored := range []string{"lines=0-1", "bytes=5-2", "bytes=x-"} {
			f(ignored, text, http.StatusOK, "")
		}
		f(fmt.Sprintf("bytes=%d-", size), "", http.StatusRequestedRangeNotSatisfiable, fmt.Sprintf("bytes */%d", size))
		head, text := daemontest.WithoutKey(t, http.MethodHead, url)
		require.EqualValues(t, size, head.ContentLength)
		require.Empty(t, text)
		same, text := daemontest.WithoutKey(t, http.MethodGet, url, "If-None-Match", whole.Header.Get("ETag"))
		require.Equal(t, http.StatusNotModified, same.StatusCode)
		require.Empty(t, text)
		other, _ := daemontest.WithoutKey(t, http.MethodGet, url, "Range", "bytes=0-6", "If-Range", `"other"`)
		require.Equal(t, http.StatusOK, other.StatusCode)
	}

	const large = 256 << 20
	require.NoError(t, os.Truncate(path, large))
	before := d.Metric("process_resident_memory_bytes")
	for _, url := range []string{clients, operators} {
		response, err := http.Get(url)
		require.NoError(t, err)
		n, err := io.Copy(io.Discard, response.Body)
		require.NoError(t, err)
		require.EqualValues(t, large, n)
		response.Body.Close()
	}
	require.Less(t, d.Metric("process_resident_memory_bytes")-before, 64e6, "the archive is not read into memory")

	require.NoError(t, os.Remove(path))
	failed, text := daemontest.WithoutKey(t, http.MethodGet, clients)
	require.Equal(t, http.StatusInternalServerError, failed.StatusCode)
	require.Equal(t, "application/json", failed.Header.Get("Content-Type"))
	require.Contains(t, text, failed.Header.Get("Trace-Id"))
	require.Contains(t, text, `"GENERAL_INTERNAL_ERROR"`)
	failed, text = daemontest.WithoutKey(t, http.MethodGet, operators)
	require.Equal(t, http.StatusInternalServerError, failed.StatusCode)
	require.Equal(t, "cannot open the basemap (ui.basemap): open "+path+": no such file or directory\n", text)
}

// waterArchive returns an archive with one vector tile, which is all water.
func waterArchive() []byte {
	bytesField := func(b []byte, field protowire.Number, value []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), value)
	}
	number := func(b []byte, field protowire.Number, value uint64) []byte {
		return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), value)
	}
	var shape []byte // moves to 0,0, draws lines to 4096,0 to 4096,4096 to 0,4096, and closes; in zigzag
	for _, v := range []uint64{9, 0, 0, 26, 8192, 0, 0, 8192, 8191, 0, 15} {
		shape = protowire.AppendVarint(shape, v)
	}
	feature := bytesField(number(nil, 3, 3), 4, shape)
	layer := number(number(bytesField(bytesField(nil, 1, []byte("water")), 2, feature), 5, 4096), 15, 2)
	tile := bytesField(nil, 3, layer)
	metadata := []byte(`{"vector_layers":[{"id":"water","fields":{}}]}`)
	root := protowire.AppendVarint([]byte{1, 0, 1}, uint64(len(tile))) // one entry: tile 0, once, its length
	root = append(root, 1)                                             // its offset, plus 1

	b := make([]byte, 127, 127+len(root)+len(metadata)+len(tile))
	copy(b, "PMTiles\x03")
	at := len(b)
	for i, part := range [][]byte{root, metadata, nil, tile} {
		encoding.LittleEndian.PutUint64(b[8+16*i:], uint64(at))
		encoding.LittleEndian.PutUint64(b[16+16*i:], uint64(len(part)))
		at += len(part)
	}
	for i := range 3 {
		encoding.LittleEndian.PutUint64(b[72+8*i:], 1)
	}
	b[96], b[97], b[98], b[99] = 1, 1, 1, 1 // clustered, not compressed, vector tiles
	for i, degrees := range []int32{-180, -85, 180, 85} {
		encoding.LittleEndian.PutUint32(b[102+4*i:], uint32(degrees*10_000_000))
	}
	return append(append(append(b, root...), metadata...), tile...)
}

// TestMapFiles checks how both listeners serve the files of the page, for clients below a base
// path, and that the body of a request for one is not read.
func TestMapFiles(t *testing.T) {
	d := daemontest.New(t, "api.base_path=/traffic", "ops.pprof=true", "layers.horizons=[60, 0, 15]").Run()
	d.Await(http.StatusOK)
	clients, operators := "http://"+d.API+"/traffic/map/", "http://"+d.Ops+"/"
	for _, url := range []string{clients, operators} {
		response, text := daemontest.WithoutKey(t, http.MethodGet, url, "Accept-Encoding", "identity")
		require.Equal(t, http.StatusOK, response.StatusCode)
		require.EqualValues(t, len(text), response.ContentLength)
		require.Equal(t, "text/html; charset=utf-8", response.Header.Get("Content-Type"))
		require.Contains(t, response.Header.Get("Content-Security-Policy"), "default-src 'none'")
		require.Equal(t, "public, no-cache", response.Header.Get("Cache-Control"))
		require.Equal(t, "Accept-Encoding", response.Header.Get("Vary"))
		require.Equal(t, url == clients, response.Header.Get("Trace-Id") != "")
		head, none := daemontest.WithoutKey(t, http.MethodHead, url, "Accept-Encoding", "identity")
		require.Equal(t, response.ContentLength, head.ContentLength)
		require.Empty(t, none)
		same, none := daemontest.WithoutKey(t, http.MethodGet, url, "Accept-Encoding", "identity", "If-None-Match", response.Header.Get("ETag"))
		require.Equal(t, http.StatusNotModified, same.StatusCode)
		require.Equal(t, response.Header.Get("ETag"), same.Header.Get("ETag"))
		require.Empty(t, none)
		packed, compressed := daemontest.WithoutKey(t, http.MethodGet, url, "Accept-Encoding", "gzip")
		require.Equal(t, "gzip", packed.Header.Get("Content-Encoding"))
		require.Less(t, len(compressed), len(text))
	}
	_, settings := daemontest.WithoutKey(t, http.MethodGet, clients+"settings.json")
	require.Contains(t, settings, `"horizons":[0,15,60]`)
	missing, text := daemontest.WithoutKey(t, http.MethodGet, clients+"none.js")
	require.Equal(t, http.StatusNotFound, missing.StatusCode)
	require.Equal(t, "application/json", missing.Header.Get("Content-Type"))
	require.Contains(t, text, `"NOT_FOUND"`)
	for _, path := range []string{"none.js", "index.html", "assets/", "docs/none"} {
		missing, _ = daemontest.WithoutKey(t, http.MethodGet, operators+path)
		require.Equal(t, http.StatusNotFound, missing.StatusCode, path)
	}
	base := strings.TrimSuffix(clients, "map/")
	for from, to := range map[string]string{base + "map": clients, base + "docs/": base + "docs", operators + "docs/": operators + "docs"} {
		redirect, _ := daemontest.WithoutKey(t, http.MethodGet, from)
		require.Equal(t, http.StatusMovedPermanently, redirect.StatusCode, from)
		location, err := redirect.Location()
		require.NoError(t, err)
		require.Equal(t, to, location.String())
	}
	url := clients
	endless, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, zeros{})
	require.NoError(t, err)
	endless.ContentLength = -1
	before := d.Metric("process_resident_memory_bytes")
	if got, err := http.DefaultTransport.RoundTrip(endless); err == nil { // the connection may be reset before the response is read
		got.Body.Close()
	}
	require.Less(t, d.Metric("process_resident_memory_bytes")-before, 64e6)
}

// zeros is an endless body.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// TestMeasureTypes checks that operators see the unit and the bounds of each measure type.
func TestMeasureTypes(t *testing.T) {
	needs.Everything(t, "Chromium")
	d := daemontest.New(t, "pipeline.validate.measure_types=[{code: speed, min: 0, max: 250, unit: km/h}, {code: flow, min: 0, unit: veh/h}, {code: x}]").Run()
	d.Await(http.StatusOK)
	p := startBrowser(t).tab(t, 1440, 900, "light")
	p.do(chromedp.Navigate("http://" + d.Ops + "/"))
	p.until(`[...document.querySelectorAll("[aria-label='Measure types'] tbody tr")].map(r => [...r.cells].map(c => c.innerText).join()).join(";") == %q`,
		"speed,0,250,km/h;flow,0,–,veh/h;x,–,–,–")
	require.Empty(t, p.takeMessages())
	_, settings := daemontest.WithoutKey(t, http.MethodGet, "http://"+d.API+"/map/settings.json")
	require.NotContains(t, settings, "measureTypes")
}

// operationsOutage watches ClickHouse stop and start again, and follows rejections.
func operationsOutage(t *testing.T, d *daemontest.Trafficd, c *stores.ClickHouse, chrome browser) {
	p := chrome.tab(t, 1440, 900, "dark")
	p.do(chromedp.Navigate("http://" + d.Ops + "/"))
	summary := func(text string) { p.until(`document.querySelector(".summary")?.innerText.includes(%q)`, text) }
	send := func(items ...string) {
		status, err := sendAs(t.Context(), d, "acme", items...)
		require.NoError(t, err)
		require.Equal(t, http.StatusMultiStatus, status)
	}
	summary("All is well.")
	p.do(chromedp.Click(chromedp.CSS(".tail button")))
	p.eval(new(any), `fetch("status").then(r => r.json()).then(s => s.time)`) // a request after that of the tail
	d.Eventually(func() bool {                                                // the tail might not follow yet
		send(daemontest.Item(1, 0), strings.Replace(daemontest.Item(2, 0), daemontest.Detector(2), "nowhere", 1))
		var found bool
		p.eval(&found, `document.querySelector(".tail").innerText.includes("nowhere")`)
		return found
	}, "the rejection in the tail")
	d.AwaitDelivered()
	terminal(t, d, func() { send(daemontest.Item(5, 1)) })
	d.AwaitDelivered()
	require.NoError(t, c.Stop())
	summary("ClickHouse has accepted no measurements")
	send(daemontest.Item(3, 1), daemontest.Item(4, 1))
	summary(" measurements are waiting in the journal, which ")
	p.until(`document.querySelector(".summary a")?.href.endsWith("/runbook/TrafficdStoreUnreachable")`)
	p.until(`[...document.querySelectorAll(".tables tr.bad td")].map(d => d.innerText).join().match(/^clickhouse,\d+,\d+ s,0,.*refused/)`)
	require.NoError(t, c.Restart())
	summary("All is well.")
	require.NoError(t, d.Pause()) // accepts connections, but does not respond
	summary("The daemon cannot be reached")
	require.NoError(t, d.Resume())
	summary("All is well.")
	require.Empty(t, p.takeMessages())
}

// terminal requires that trafficctl shows what the page shows.
func terminal(t *testing.T, d *daemontest.Trafficd, send func()) {
	t.Helper()
	var s status.Status
	require.NoError(t, json.Unmarshal(foreign.Run(t, foreign.Trafficctl(t), "top", "--json", "--url", "http://"+d.Ops), &s))
	require.Empty(t, s.Summary)
	require.Len(t, s.Stores, 2)

	code, text := d.Fetch("/rejections?code=FOO")
	require.Equal(t, http.StatusBadRequest, code)
	require.Contains(t, string(text), `code "FOO" must be one of BATCH_LIMIT_EXCEEDED, `)

	tap := exec.CommandContext(t.Context(), foreign.Trafficctl(t),
		"tap", "--accepted", "--client", "acme", "--detector", daemontest.Detector(5), "--json", "--url", "http://"+d.Ops)
	out, err := tap.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, tap.Start())
	lines := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(out).ReadString('\n') // an empty one fails the test
		lines <- line
	}()
	var line string
	d.Eventually(func() bool { // the tap might not follow yet
		send()
		select {
		case line = <-lines:
			return true
		default:
			return false
		}
	}, "an accepted measurement in the tap")
	require.NoError(t, tap.Process.Kill())
	_ = tap.Wait() // killed
	var item pipeline.TapItem
	require.NoError(t, json.Unmarshal([]byte(line), &item))
	require.Equal(t, "acme", item.Client)
	require.Equal(t, daemontest.Detector(5), item.Detector)
	require.NotNil(t, item.Value)
}

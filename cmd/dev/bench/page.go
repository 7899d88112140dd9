package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os/exec"
	"sync"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/systeminfo"
	"github.com/chromedp/chromedp"
	"github.com/prometheus/procfs"
	"github.com/valyala/fasthttp"

	"trafficd/cmd/dev/launch"
	"trafficd/cmd/internal/must"
	"trafficd/sinks/layers"
	"trafficd/sources/page"
)

const (
	pagePeriods  = 12
	pageSteps    = 25              // horizon steps that are timed
	pageFrames   = 3 * time.Second // how long the slider moves
	pageViewers  = 50              // number of open pages
	pageRounds   = 4               // each measures with and without open pages
	pageBatches  = 200             // per measurement
	pageInterval = 60 * time.Millisecond
)

// pageSize measures the total compressed size of the page's files.
func (o options) pageSize(context.Context) {
	size := 0
	for _, serve := range page.New(page.DefaultConfig(), page.Settings{}, "index.html") {
		var file fasthttp.RequestCtx
		file.Request.Header.Set(fasthttp.HeaderAcceptEncoding, "gzip")
		must.Do(serve(&file))
		size += len(file.Response.Body())
	}
	o.line("page_gzip_kb", float64(size)/1e3, "kB")
}

// pageView measures the map in a browser with software rendering.
func (o options) pageView(ctx context.Context) {
	fmt.Fprintln(o.notes, "page: headless Chromium without a GPU, software WebGL (SwiftShader), 1440 × 900 px")
	o.withMap(ctx, 20_000, func(b *tab) {
		o.line("page_fps_20k", b.number(moveSlider, pageFrames.Milliseconds()), "frames/s")
	})
	o.withMap(ctx, layerStreets, func(b *tab) {
		o.line("page_first_view_100k_ms", b.number("window.firstView"), "ms")
		var steps []float64
		for i := range pageSteps {
			steps = append(steps, b.number(stepHorizon, (i+1)%len(layers.DefaultConfig().Horizons)))
		}
		o.line("page_step_100k_ms", median(steps), "ms")
		o.line("page_heap_100k_mb", rendererMB(b.browser), "MB")
	})
}

const (
	// watchFirstView stores the time from navigation until the streets are drawn.
	watchFirstView = `(function poll() {
		if (!window.streets?.drawn) return requestAnimationFrame(poll);
		window.firstView = performance.now();
	})()`
	setHorizon = `const e = document.querySelector("input[type=range]"); e.value = n; e.dispatchEvent(new Event("input", {bubbles: true}))`
	// stepHorizon returns the time in milliseconds from an input event on the slider until the streets
	// are drawn.
	stepHorizon = `new Promise(done => {
		const n = %d, began = performance.now(), before = window.shown.steps;
		` + setHorizon + `;
		(function poll() {
			if (window.shown.steps === before || !window.streets.drawn) return setTimeout(poll, 0);
			done(performance.now() - began);
		})();
	})`
	// moveSlider moves the slider before each frame, and returns the number of frames per second in
	// which the streets were drawn.
	moveSlider = `(async () => {
		let frames = 0, n = 0;
		const began = performance.now(), limit = %d;
		while (performance.now() - began < limit) {
			n = (n + 1) %% 5;
			` + setHorizon + `;
			await new Promise(r => setTimeout(r));
			await new Promise(r => requestAnimationFrame(r));
			if (window.streets.drawn) frames++;
		}
		return 1000 * frames / (performance.now() - began);
	})()`
)

// withMap opens the map with a layer of the given number of streets, waits for all horizons, and
// calls measure.
func (o options) withMap(ctx context.Context, streets int, measure func(*tab)) {
	d := o.layerDaemon(ctx, o.network(ctx, streets, pagePeriods, quarter()))
	defer d.stop()
	for _, query := range horizons { // the daemon builds only representations that a client has requested
		must.Do(d.get(ctx, query))
	}
	b := openTab(ctx)
	defer b.close()
	must.Do(chromedp.Do(b.browser, chromedp.Navigate("http://"+d.Ops+"/#map")))
	b.number("(() => { %s; return 1 })()", watchFirstView)
	b.number(`new Promise(function poll(done) {
		if (window.firstView && window.layersLoaded === 5 && window.shown.street.length === %d &&
			window.map.getLayer("land") && window.map.areTilesLoaded()) return done(1);
		setTimeout(poll, 50, done);
	})`, streets)
	measure(b)
}

// tab is a browser with one page.
type tab struct {
	browser context.Context
	close   func()
}

func openTab(parent context.Context) *tab {
	program := must.Get(exec.LookPath("chromium"))
	ctx, cancel := chromedp.NewContext(parent, chromedp.WithErrorf(func(string, ...any) {}), chromedp.WithAllocatorOptions(
		chromedp.ExecPath(program), chromedp.NoSandbox, chromedp.WindowSize(1440, 900), chromedp.Flag("use-angle", "swiftshader-webgl"),
		chromedp.Flag("enable-unsafe-swiftshader", true), chromedp.WSURLReadTimeout(time.Minute)))
	closeTab := func() {
		_ = chromedp.Cancel(ctx) // the profile is temporary, so an error does not matter
		cancel()
	}
	if err := chromedp.Do(ctx); err != nil {
		closeTab()
		must.Do(fmt.Errorf("cannot start %s: %w", program, err))
	}
	return &tab{browser: ctx, close: closeTab}
}

// number evaluates a script and returns its result. If that is a promise, number awaits it.
func (b *tab) number(script string, args ...any) (v float64) {
	ctx, cancel := context.WithTimeout(b.browser, 2*time.Minute)
	defer cancel()
	if len(args) > 0 {
		script = fmt.Sprintf(script, args...)
	}
	text, err := chromedp.Run(ctx, chromedp.Evaluate[string]("Promise.resolve("+script+").then(v => JSON.stringify(v))",
		chromedp.EvalAwaitPromise))
	if err == nil {
		err = json.Unmarshal([]byte(text), &v)
	}
	if err != nil {
		must.Do(fmt.Errorf("cannot evaluate %.60q in the page: %w", script, err))
	}
	return v
}

// rendererMB returns the memory of the browser's largest renderer process in units of 10⁶ bytes,
// including its share of shared memory.
func rendererMB(ctx context.Context) (largest float64) {
	all := must.Get(cdp.Call(ctx, chromedp.FromContext(ctx).Browser, systeminfo.GetProcessInfo, cdp.Empty{}))
	for _, info := range all.ProcessInfo {
		if info.Type == "renderer" {
			memory := must.Get(must.Get(procfs.NewProc(int(info.ID))).ProcSMapsRollup())
			largest = max(largest, float64(memory.Pss)/1e6)
		}
	}
	if largest == 0 {
		must.Do(errors.New("the browser has no renderer process"))
	}
	return largest
}

// pageLoad measures the latency of batches and the memory used by the daemon, with and without open
// pages.
func (o options) pageLoad(ctx context.Context) {
	b := synthetic()
	d := newDaemon(o.daemon, b.detectors)
	defer d.stop()
	d.startWith(ctx, o.network(ctx, 20_000, pagePeriods, quarter()))
	latency := func() float64 { return p99(d.latencies(b, pageBatches, pageInterval)) }
	var before, after float64
	o.medians(pageRounds, func(add series) {
		alone := latency()
		if before == 0 {
			before = d.rssMB()
		}
		defer inBackground(ctx, pageViewers, d.view)()
		pause(ctx, 6*time.Second) // until all pages have loaded the layer
		watched := latency()
		after = max(after, d.rssMB())
		add("page_ingest_p99_ms", alone, "ms")
		add("page_ingest_p99_50_pages_ms", watched, "ms")
		add("page_ingest_p99_50_pages_ratio", watched/alone, "ratio")
	})
	o.line("page_rss_50_pages_mb", after-before, "MB")
}

// view sends the requests that an open page with both views sends, until ctx is done: /status every
// five seconds, the rejections, and the layer of each horizon, followed by its changes. The first
// request is delayed in proportion to the page number, so that the pages open one by one.
func (d *daemon) view(ctx context.Context, page int) {
	launch.Sleep(ctx, time.Duration(page)*100*time.Millisecond)
	c := &http.Client{Transport: &http.Transport{}}
	defer c.CloseIdleConnections()
	get := func(path string, headers ...string) http.Header {
		headers = append(headers, "Accept-Encoding", "gzip, deflate, br, zstd")
		r, _ := launch.Request(ctx, c, http.MethodGet, "http://"+d.Ops+path, nil, headers...) // it fails only when ctx is done
		return r.Header
	}
	var open sync.WaitGroup
	defer open.Wait()
	open.Go(func() { get("/rejections") })
	open.Go(func() {
		for ctx.Err() == nil {
			get("/status")
			launch.Sleep(ctx, 5*time.Second)
		}
	})
	known := map[string]http.Header{}
	for ctx.Err() == nil {
		for i, horizon := range horizons {
			path, headers := layers.Path+horizon, []string{"Accept", "application/x-protobuf"}
			if last := known[horizon]; last.Get("Forecast-Version") != "" {
				path += "&since=" + url.QueryEscape(last.Get("Forecast-Version"))
				headers = append(headers, "If-None-Match", last.Get("ETag"))
				if i == 0 {
					headers = append(headers, "Prefer", "wait=25")
				}
			}
			known[horizon] = get(path, headers...)
		}
		launch.Sleep(ctx, time.Second)
	}
}

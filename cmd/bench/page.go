package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/chromedp/chromedp"

	"trafficd/sinks/layers"
	"trafficd/sources/page"
)

const (
	pagePeriods  = 12
	pageSteps    = 25               // horizon steps that are timed
	pageFrames   = 3 * time.Second  // how long the slider moves
	pageViewers  = 50               // open pages
	pageRounds   = 4                // each without and with open pages
	pageRound    = 12 * time.Second // how long batches are sent
	pageInterval = 60 * time.Millisecond
)

// pageSize measures the compressed size of the page's files.
func (o options) pageSize(context.Context) error {
	size := 0
	files := page.New(page.DefaultConfig(), page.Settings{}, "index.html")
	for name := range files {
		f, _ := files.File(name, true)
		size += len(f.Body)
	}
	o.line("page_gzip_kb", float64(size)/1e3, "kB")
	return nil
}

// pageView measures the map in a browser with software rendering.
func (o options) pageView(ctx context.Context) error {
	fmt.Fprintln(o.notes, "page: Chromium without a window or a graphics processor, WebGL in software (SwiftShader), 1440 × 900 px")
	if err := o.withMap(ctx, 20_000, func(b *tab) error {
		fps, err := b.number(moveSlider, pageFrames.Milliseconds())
		o.line("page_fps_20k", fps, "frames/s")
		return err
	}); err != nil {
		return err
	}
	return o.withMap(ctx, layerStreets, func(b *tab) error {
		first, err := b.number("window.firstView")
		if err != nil {
			return err
		}
		o.line("page_first_view_100k_ms", first, "ms")
		var steps []float64
		for i := range pageSteps {
			ms, err := b.number(stepHorizon, (i+1)%len(layers.DefaultConfig().Horizons))
			if err != nil {
				return err
			}
			steps = append(steps, ms)
		}
		o.line("page_step_100k_ms", median(steps), "ms")
		mb, err := rendererMB(b.browser)
		o.line("page_heap_100k_mb", mb, "MB")
		return err
	})
}

const (
	// watchFirstView stores the time from the navigation until the streets are on the screen.
	watchFirstView = `(function look() {
		if (!window.streets?.drawn) return requestAnimationFrame(look);
		window.firstView = performance.now();
	})()`
	setHorizon = `const e = document.querySelector("input[type=range]"); e.value = n; e.dispatchEvent(new Event("input", {bubbles: true}))`
	// stepHorizon returns the milliseconds from an input event of the slider until the streets are
	// drawn.
	stepHorizon = `new Promise(done => {
		const n = %d, began = performance.now(), before = window.shown.steps;
		` + setHorizon + `;
		(function look() {
			if (window.shown.steps === before || !window.streets.drawn) return setTimeout(look, 0);
			done(performance.now() - began);
		})();
	})`
	// moveSlider moves the slider before each frame, and returns the rate of frames in which the
	// streets were drawn.
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

// withMap opens the map with a layer of the given number of streets and waits for all horizons.
func (o options) withMap(ctx context.Context, streets int, measure func(*tab) error) error {
	all, err := o.network(ctx, streets, pagePeriods, quarter())
	if err != nil {
		return err
	}
	d, err := o.layerDaemon(ctx, all)
	if err != nil {
		return err
	}
	defer d.stop()
	for _, query := range horizons { // the daemon builds only representations that a client has requested
		if err := d.get(ctx, query); err != nil {
			return err
		}
	}
	b, err := openTab(ctx)
	if err != nil {
		return err
	}
	defer b.close()
	if err := b.show("http://" + d.Ops + "/#map"); err != nil {
		return err
	}
	const loaded = `new Promise(function look(done) {
		if (window.firstView && window.layersLoaded === 5 && window.shown.street.length === %d &&
			window.map.getLayer("land") && window.map.areTilesLoaded()) return done(1);
		setTimeout(look, 50, done);
	})`
	if _, err := b.number(loaded, streets); err != nil {
		return err
	}
	return measure(b)
}

// tab is a page in a new browser.
type tab struct {
	browser context.Context
	close   func()
}

func openTab(parent context.Context) (*tab, error) {
	program, err := exec.LookPath("chromium")
	if err != nil {
		return nil, fmt.Errorf("bench page needs Chromium: %w", err)
	}
	ctx, cancel := chromedp.NewContext(parent, chromedp.WithErrorf(func(string, ...any) {}), chromedp.WithAllocatorOptions(
		chromedp.ExecPath(program), chromedp.NoSandbox, chromedp.WindowSize(1440, 900), chromedp.Flag("use-angle", "swiftshader-webgl"),
		chromedp.Flag("enable-unsafe-swiftshader", true), chromedp.WSURLReadTimeout(time.Minute)))
	closing := func() {
		_ = chromedp.Cancel(ctx) // its profile is temporary
		cancel()
	}
	if err := chromedp.Do(ctx); err != nil {
		closing()
		return nil, fmt.Errorf("cannot start %s: %w", program, err)
	}
	return &tab{browser: ctx, close: closing}, nil
}

// show opens a page and watches for its first view.
func (b *tab) show(address string) error {
	if err := chromedp.Do(b.browser, chromedp.Navigate(address)); err != nil {
		return fmt.Errorf("cannot open %s: %w", address, err)
	}
	_, err := b.number("(() => { %s; return 1 })()", watchFirstView)
	return err
}

// number returns the value of a script, or of the promise that it returns.
func (b *tab) number(script string, args ...any) (float64, error) {
	ctx, cancel := context.WithTimeout(b.browser, 2*time.Minute)
	defer cancel()
	if len(args) > 0 {
		script = fmt.Sprintf(script, args...)
	}
	text, err := chromedp.Run(ctx, chromedp.Evaluate[string]("Promise.resolve("+script+").then(v => JSON.stringify(v))",
		chromedp.EvalAwaitPromise))
	if err != nil {
		return 0, fmt.Errorf("the page fails in %.60q: %w", script, err)
	}
	var v float64
	return v, json.Unmarshal([]byte(text), &v)
}

// rendererMB returns the memory of the browser's largest renderer process, including its share of
// shared memory, in units of 10⁶ bytes.
func rendererMB(ctx context.Context) (largest float64, err error) {
	process := chromedp.FromContext(ctx).Browser.Process()
	if process == nil {
		return 0, errors.New("the browser is not a child process")
	}
	out, err := exec.CommandContext(ctx, "pgrep", "-f", "--", "--type=renderer").Output()
	if err != nil {
		return 0, fmt.Errorf("cannot list the browser's processes: %w", err)
	}
	for _, pid := range strings.Fields(string(out)) {
		text, err := os.ReadFile("/proc/" + pid + "/smaps_rollup")
		if err != nil || !descends(pid, process.Pid) {
			continue // it has exited, or belongs to another browser
		}
		for line := range strings.Lines(string(text)) {
			if rest, ok := strings.CutPrefix(line, "Pss:"); ok {
				kib, _ := strconv.ParseFloat(strings.Fields(rest)[0], 64)
				largest = max(largest, kib*1024/1e6)
			}
		}
	}
	if largest == 0 {
		err = errors.New("the browser has no renderer process")
	}
	return largest, err
}

// descends reports whether a process is ancestor or descends from it.
func descends(pid string, ancestor int) bool {
	for pid != "0" && pid != "" {
		if pid == strconv.Itoa(ancestor) {
			return true
		}
		text, _ := os.ReadFile("/proc/" + pid + "/stat")
		_, rest, _ := bytes.Cut(text, []byte(") "))
		fields := bytes.Fields(rest)
		if len(fields) < 2 {
			return false
		}
		pid = string(fields[1])
	}
	return false
}

// pageAccess counts the violations that axe finds in both views.
func (o options) pageAccess(ctx context.Context) error {
	axe, err := os.ReadFile(o.axe)
	if err != nil {
		return fmt.Errorf("cannot read axe-core (--axe): %w", err)
	}
	violations := 0.0
	for _, view := range []string{"#operations", "#map"} {
		err := o.withMap(ctx, 2000, func(b *tab) error {
			if _, err := b.number(`(() => { location.hash = %q; %s; return 1 })()`, view, axe); err != nil {
				return err
			}
			n, err := b.number(`new Promise(r => setTimeout(r, 1000)).then(() => axe.run()).then(r => r.violations.length)`)
			violations += n
			return err
		})
		if err != nil {
			return err
		}
	}
	o.line("page_axe_violations", violations, "violations")
	return nil
}

// pageLoad measures the latency of batches, and the daemon's memory, without and with open pages.
func (o options) pageLoad(ctx context.Context) error {
	all, err := o.network(ctx, 20_000, pagePeriods, quarter())
	if err != nil {
		return err
	}
	b := synthetic()
	d, err := newDaemon(o.daemon, b.detectors)
	if err != nil {
		return err
	}
	defer d.stop()
	d.Set("forecasts.feed=file", "forecasts.file.path="+d.feed(), "forecasts.file.settle=10ms")
	if err := errors.Join(d.publish(all), d.start(ctx), d.served(ctx, 0)); err != nil {
		return err
	}
	if _, err := d.latencies(b); err != nil { // warm-up
		return err
	}
	var without, with, ratios []float64
	var before, after float64
	for range pageRounds {
		alone, err := d.latencies(b)
		if err != nil {
			return err
		}
		if before == 0 {
			if before, err = d.memoryMB("VmRSS"); err != nil {
				return err
			}
		}
		viewing, stop := context.WithCancel(ctx)
		var viewers sync.WaitGroup
		for i := range pageViewers {
			viewers.Go(func() { d.view(viewing, time.Duration(i)*100*time.Millisecond) })
		}
		err = pause(ctx, 6*time.Second) // until all of them have the layer
		watched, failed := d.latencies(b)
		rss, gone := d.memoryMB("VmRSS")
		after = max(after, rss)
		stop()
		viewers.Wait()
		if err := errors.Join(err, failed, gone); err != nil {
			return err
		}
		without, with, ratios = append(without, p99(alone)), append(with, p99(watched)), append(ratios, p99(watched)/p99(alone))
	}
	o.line("page_ingest_p99_ms", median(without), "ms")
	o.line("page_ingest_p99_50_pages_ms", median(with), "ms")
	o.line("page_ingest_p99_50_pages_ratio", median(ratios), "ratio")
	o.line("page_rss_50_pages_mb", after-before, "MB")
	return nil
}

// latencies sends batches at a steady rate and returns the milliseconds to each 207.
func (d *daemon) latencies(b body) (ms []float64, err error) {
	c, err := d.dial()
	if err != nil {
		return nil, err
	}
	defer c.Close()
	tick := time.NewTicker(pageInterval)
	defer tick.Stop()
	for end := time.Now().Add(pageRound); time.Now().Before(end); <-tick.C {
		began := time.Now()
		if err := c.post(b); err != nil {
			return nil, err
		}
		ms = append(ms, float64(time.Since(began).Microseconds())/1000)
	}
	return ms, nil
}

func p99(ms []float64) float64 {
	slices.Sort(ms)
	return ms[len(ms)*99/100]
}

// view sends the requests of an open page with both views until ctx ends: /status every five
// seconds, the rejections, and the layer of each horizon, then its changes.
func (d *daemon) view(ctx context.Context, after time.Duration) {
	if pause(ctx, after) != nil {
		return
	}
	c := &http.Client{Transport: &http.Transport{DisableCompression: true}}
	defer c.CloseIdleConnections()
	get := func(path string, headers ...string) http.Header {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+d.Ops+path, nil)
		if err != nil {
			return http.Header{}
		}
		req.Header.Set("Accept-Encoding", "gzip, deflate, br, zstd")
		for i := 0; i < len(headers); i += 2 {
			req.Header.Set(headers[i], headers[i+1])
		}
		resp, err := c.Do(req)
		if err != nil {
			return http.Header{}
		}
		defer resp.Body.Close()
		_, _ = io.Copy(io.Discard, bufio.NewReader(resp.Body)) // it ends with ctx
		return resp.Header
	}
	var open sync.WaitGroup
	defer open.Wait()
	open.Go(func() { get("/rejections") })
	open.Go(func() {
		for ctx.Err() == nil {
			get("/status")
			_ = pause(ctx, 5*time.Second)
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
		_ = pause(ctx, time.Second)
	}
}

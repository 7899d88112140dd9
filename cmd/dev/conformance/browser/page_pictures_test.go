package browser

import (
	"bytes"
	"context"
	"fmt"
	"image"
	"image/draw"
	"image/png"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"trafficd/cmd/dev/daemontest"
	"trafficd/cmd/dev/launch"
	"trafficd/cmd/dev/needs"
	"trafficd/cmd/dev/traffic/town"
	"trafficd/pipeline/lib/gunzip/compress"
	pb "trafficd/schemas/proto/trafficd/v1"
)

// pictures is the directory of the committed screenshots, which the README shows.
const pictures = "../../../../sources/page/screenshots"

// rushHour is the time for which the forecasts of the pictures are generated.
var rushHour = time.Date(2026, 11, 2, 7, 0, 0, 0, time.UTC)

// TestPages checks every view in both themes, on a screen and on a phone: axe finds no violation,
// nothing is written to the console, and the view looks like the committed picture. SCREENSHOTS=5m
// rewrites the pictures, after traffic of that duration. Then it watches an outage.
func TestPages(t *testing.T) {
	needs.Everything(t, "Chromium")
	axe, err := os.ReadFile(filepath.Join(pageModules(t), "axe-core", "axe.min.js"))
	require.NoError(t, err)
	d, c, _ := daemontest.OnRealStores(t)
	_, feed := withForecasts(t, d)
	d.Run().Await(http.StatusOK)
	atRushHour(t, feed)
	d.Eventually(func() bool { return d.Metric("trafficd_layers_builds_total") > 1 }, "the layer of the rush hour")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); traffic(ctx, d) }()
	defer func() { cancel(); <-ended }()
	if text := os.Getenv(writePictures); text != "" {
		traffic, err := time.ParseDuration(text)
		require.NoError(t, err)
		time.Sleep(traffic)
	}

	chrome := startBrowser(t)
	for _, view := range []string{"key", "map", "operations"} { // the last one shows the traffic since the start
		for _, width := range []int64{1440, 390} {
			t.Run(fmt.Sprintf("%s_%d", view, width), func(t *testing.T) {
				p := chrome.tab(t, width, 900, "light")
				p.open(d, view, width > 1000)
				p.eval(new(any), "(() => { %s; return true })()", axe)
				var last *image.RGBA
				for _, scheme := range []string{"light", "dark"} {
					if scheme == "dark" {
						p.darken(view)
					}
					var violations []string
					p.eval(&violations, `axe.run().then(r => r.violations.map(v => v.id + ": " + v.nodes.map(n => n.html + " " + n.failureSummary).join("; ")))`)
					require.Empty(t, violations)
					last = p.picture()
					checkPicture(t, fmt.Sprintf("%s-%s-%d.png", view, scheme, width), last)
				}
				checkTolerance(t, p, view, last)
				require.Empty(t, p.takeMessages())
				if view == "map" && width > 1000 {
					checkGraphics(t, chrome.tab(t, width, 900, "dark"), d, last)
				}
			})
		}
	}
	cancel()
	<-ended
	t.Run("outage", func(t *testing.T) { operationsOutage(t, d, c, chrome) })
}

// writePictures is the environment variable that makes the test rewrite the pictures.
const writePictures = "SCREENSHOTS"

// mapComplete is true when the map and its ground are drawn.
const mapComplete = `window.streets?.drawn && window.map.getLayer("ground") && window.map.loaded() && !window.map._render_queued`

// darken changes to the dark theme and waits until everything is redrawn.
func (p *tab) darken(view string) {
	p.t.Helper()
	const ground = `window.map?.getLayer("ground") && window.map.getPaintProperty("ground", "background-color")`
	var before string
	if view == "map" {
		p.eval(&before, ground)
	}
	p.scheme("dark")
	if view == "map" {
		p.until(ground+` !== %q && `+mapComplete, before)
	}
	p.eval(new(any), "new Promise(r => requestAnimationFrame(() => requestAnimationFrame(() => r(1))))")
}

// checkGraphics requires that the map looks the same if a graphics processor draws the streets.
func checkGraphics(t *testing.T, p *tab, d *daemontest.Trafficd, want *image.RGBA) {
	t.Helper()
	hidden := page.AddScriptToEvaluateOnNewDocumentParams{Source: `{
		const all = WebGL2RenderingContext.prototype, get = all.getExtension;
		all.getExtension = function(name) { return name === "WEBGL_debug_renderer_info" ? null : get.call(this, name); };
	}`}
	_, err := chromedp.Call(p.ctx, page.AddScriptToEvaluateOnNewDocument, hidden)
	require.NoError(t, err)
	p.open(d, "map", true)
	p.until(`window.map.getLayer("streets") && !document.querySelector("canvas.streets")`)
	share := difference(want, p.picture())
	t.Logf("%.3f different with a graphics processor", share)
	require.Less(t, share, tolerance/2)
	require.Empty(t, p.takeMessages())
}

// checkPicture compares a picture with the committed one, or replaces it.
func checkPicture(t *testing.T, name string, got *image.RGBA) {
	t.Helper()
	path := filepath.Join(pictures, name)
	if os.Getenv(writePictures) != "" {
		var b bytes.Buffer
		require.NoError(t, (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&b, coarse(got)))
		require.Less(t, b.Len(), 200_000, path)
		require.NoError(t, os.WriteFile(path, b.Bytes(), 0o600))
	}
	if share := difference(readPicture(t, path), got); share > tolerance {
		failed := filepath.Join(os.TempDir(), "failed-"+name)
		var b bytes.Buffer
		require.NoError(t, png.Encode(&b, got))
		require.NoError(t, os.WriteFile(failed, b.Bytes(), 0o600))
		t.Errorf("%.0f%% of %s differs from %s; SCREENSHOTS=5m go test -run TestPages rewrites the pictures", 100*share, failed, path)
	}
}

// open shows a view, with a street chosen if there is room for its panel.
func (p *tab) open(d *daemontest.Trafficd, view string, wide bool) {
	p.t.Helper()
	switch view {
	case "operations":
		p.do(chromedp.Navigate("http://" + d.Ops + "/"))
		p.until(`document.querySelector(".summary") && document.querySelectorAll(".uplot").length == 3`)
		p.do(chromedp.Click(chromedp.CSS(".tail button")))
		p.until(`document.querySelectorAll(".tail tbody tr").length > 3`)
		p.eval(new(any), `document.querySelector(".ops").scrollTo(0, 0)`)
	case "map":
		p.do(chromedp.Navigate("http://" + d.Ops + "/#map"))
		p.until("window.shown && window.shown.street.length == %d && "+mapComplete, pageStreets)
		if wide {
			p.chooseByClick(0)
			p.until(`document.querySelector(".street dl") && ` + mapComplete)
		}
	case "key":
		p.do(chromedp.Navigate("http://" + d.API + "/map/"))
		p.until(`document.querySelector("input[name=key]")`)
	}
}

// chooseByClick clicks on the middle of a street's first segment, on the side of its direction.
func (p *tab) chooseByClick(street int) {
	p.t.Helper()
	var at [2]float64
	p.eval(&at, `(() => {
		const k = window.streets.geometry.owner.indexOf(%d), s = window.streets.geometry.segments.subarray(4 * k, 4 * k + 4);
		const a = window.map.project([s[0], s[1]]), b = window.map.project([s[2], s[3]]), n = Math.hypot(b.x - a.x, b.y - a.y);
		const side = window.streets.leftHand ? -3 : 3, box = window.map.getContainer().getBoundingClientRect();
		return [box.x + (a.x + b.x) / 2 - side * (b.y - a.y) / n, box.y + (a.y + b.y) / 2 + side * (b.x - a.x) / n];
	})()`, street)
	p.do(chromedp.MouseClickXY(at[0], at[1]))
}

// atRushHour replaces the forecasts with those of a rush hour, as if it were now: the picture is
// the same at any time of day.
func atRushHour(t *testing.T, feed string) {
	t.Helper()
	seq, err := town.Forecasts(pageForecasts(rushHour))
	require.NoError(t, err)
	all := pb.StreetForecastResponse{StreetForecast: slices.Collect(seq)}
	later := justBefore(time.Now()).Sub(rushHour)
	for _, s := range all.StreetForecast {
		for _, p := range s.Forecast {
			for _, at := range []*string{&p.Start, &p.End} {
				then, err := time.Parse(time.RFC3339, *at)
				require.NoError(t, err)
				*at = then.Add(later).Format(time.RFC3339)
			}
		}
	}
	text, err := proto.Marshal(&all)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(feed+".new.pb", text, 0o600))
	require.NoError(t, os.Rename(feed+".new.pb", feed))
}

// traffic sends batches of two clients, some of whose measurements are rejected, until ctx is done.
func traffic(ctx context.Context, d *daemontest.Trafficd) {
	for n := 0; ctx.Err() == nil; n++ {
		var items []string
		for i := range 60 + int(40*math.Sin(float64(n)/40)) {
			items = append(items, daemontest.Item(i, n))
		}
		items = append(items, strings.Replace(daemontest.Item(1, n), daemontest.Detector(1), fmt.Sprintf("closed-%d", n%7), 1))
		if n%3 == 0 {
			items = append(items, strings.Replace(daemontest.Item(2, n), `"value":2.5`, `"value":"x"`, 1))
		}
		_, _ = sendAs(ctx, d, []string{"acme", "acme", "ring-road"}[n%3], items...) // the next batch follows regardless of the response
		select {
		case <-ctx.Done():
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// sendAs sends a batch with a key.
func sendAs(ctx context.Context, d *daemontest.Trafficd, key string, items ...string) (status int, err error) {
	r, err := launch.Post(ctx, http.DefaultClient, "http://"+d.API, key, compress.Gzip(daemontest.BatchOf(items...)))
	return r.Status, err
}

func (p *tab) picture() *image.RGBA {
	p.t.Helper()
	text, err := chromedp.Run(p.ctx, chromedp.CaptureScreenshot())
	require.NoError(p.t, err)
	return decode(p.t, text)
}

func readPicture(t *testing.T, path string) *image.RGBA {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return decode(t, text)
}

func decode(t *testing.T, text []byte) *image.RGBA {
	t.Helper()
	picture, err := png.Decode(bytes.NewReader(text))
	require.NoError(t, err)
	plain := image.NewRGBA(picture.Bounds())
	draw.Draw(plain, plain.Bounds(), picture, picture.Bounds().Min, draw.Src)
	return plain
}

// coarse returns a picture with 32 levels of each colour, whose file is much smaller.
func coarse(p *image.RGBA) *image.RGBA {
	c := image.NewRGBA(p.Bounds())
	for i, v := range p.Pix {
		c.Pix[i] = v&0xf8 | v>>5
	}
	return c
}

const (
	blockSize = 30   // px; larger than what another font or another figure moves
	tolerance = 0.12 // share of the blocks that may look different; see checkTolerance
)

// difference returns the share of blocks that look different, by their mean colour or by the
// standard deviation of their brightness.
func difference(a, b *image.RGBA) float64 {
	if a.Bounds() != b.Bounds() {
		return 1
	}
	different, all := 0, 0
	for y := 0; y < a.Bounds().Dy(); y += blockSize {
		for x := 0; x < a.Bounds().Dx(); x += blockSize {
			block := image.Rect(x, y, x+blockSize, y+blockSize).Intersect(a.Bounds())
			p, q := look(a, block), look(b, block)
			d := math.Hypot(math.Hypot(p[0]-q[0], p[1]-q[1]), p[2]-q[2])
			if d > 18 || math.Abs(p[3]-q[3]) > 22 {
				different++
			}
			all++
		}
	}
	return float64(different) / float64(all)
}

// look returns the mean red, green and blue of a block, and the standard deviation of its
// brightness.
func look(p *image.RGBA, block image.Rectangle) (m [4]float64) {
	n, squares, sum := 0.0, 0.0, 0.0
	for y := block.Min.Y; y < block.Max.Y; y++ {
		for x := block.Min.X; x < block.Max.X; x++ {
			at := p.PixOffset(x, y)
			r, g, b := float64(p.Pix[at]), float64(p.Pix[at+1]), float64(p.Pix[at+2])
			light := (r + g + b) / 3
			m[0], m[1], m[2] = m[0]+r, m[1]+g, m[2]+b
			sum, squares, n = sum+light, squares+light*light, n+1
		}
	}
	for i := range 3 {
		m[i] /= n
	}
	m[3] = math.Sqrt(max(0, squares/n-sum/n*sum/n))
	return m
}

// checkTolerance requires that a view looks like its picture in another font, but not without its
// style or without its map.
func checkTolerance(t *testing.T, p *tab, view string, before *image.RGBA) {
	t.Helper()
	f := func(script string, within bool) {
		t.Helper()
		p.eval(new(any), `(() => { %s; return new Promise(r => requestAnimationFrame(() => requestAnimationFrame(() => r(1)))) })()`, script)
		share := difference(before, p.picture())
		t.Logf("%.3f different: %.40s", share, script)
		require.Equal(t, within, share <= tolerance, "%.3f different after %s", share, script)
	}
	const style = `const s = new CSSStyleSheet(); s.replaceSync(%q); document.adoptedStyleSheets = [s]`
	hasMap := view == "map"
	if !hasMap || before.Bounds().Dx() > 1000 { // on a phone the map has the room that the text leaves
		f(fmt.Sprintf(style, "* { font-family: 'DejaVu Serif', serif !important }"), true)
	}
	if hasMap {
		f(fmt.Sprintf(style, "canvas { visibility: hidden }"), false)
	}
	if view != "key" {
		f(`document.adoptedStyleSheets = []; document.querySelectorAll("link[rel=stylesheet]").forEach(l => l.disabled = true)`, false)
	}
}

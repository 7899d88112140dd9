package browser

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"trafficd/cmd/dev/daemontest"
	"trafficd/cmd/dev/needs"
)

// siteCount is the number of sites on the map, as many as a nation has. Three in four have a
// position of their own.
const siteCount = 20_000

// siteOf returns the code and the position of a site.
func siteOf(i int) (code string, longitude, latitude float64) {
	place := i - i%4/3 // the fourth is where the third is
	return fmt.Sprintf("NL-%05d", i), 3.5 + float64(place%200)*0.018, 50.8 + float64(place/200)*0.026
}

// TestSitesOnMap shows the sites of a nation from a real archive. The page has the values of the
// archive for all of them, shows the last hour of one after a click, and says that the values are
// stale while the archive is away.
func TestSitesOnMap(t *testing.T) {
	needs.Everything(t, "Chromium")
	axe, err := os.ReadFile(filepath.Join(pageModules(t), "axe-core", "axe.min.js"))
	require.NoError(t, err)
	d, c, _ := daemontest.OnRealStores(t)
	list := "code,name,lon,lat\n"
	for i := range siteCount {
		code, longitude, latitude := siteOf(i)
		list += fmt.Sprintf("%s,km %d,%.5f,%.5f\n", code, i, longitude, latitude)
	}
	path := filepath.Join(d.Dir, "sites.csv")
	require.NoError(t, os.WriteFile(path, []byte(list), 0o600))
	d.Set("registry.feeds=[{product_instance: city, file: {path: '"+path+"', column: code}}]", "clickhouse.derive_interval=1s",
		"pipeline.validate.measure_types=[{code: speed*, unit: km/h}, {code: flow*, unit: veh/h}]")
	d.Keys(daemontest.KeyEntry("acme", "ingest", "UTC"))
	d.Run().Await(http.StatusOK)

	until := time.Now().UTC().Truncate(time.Minute)
	random := rand.New(rand.NewPCG(3, 9))
	send := func(minutes, sites int) {
		to := until.Add(-time.Duration(minutes) * time.Minute)
		var items []string
		for i := range sites {
			code, _, _ := siteOf(i)
			base := 130 * random.Float64()
			for _, kind := range []string{"speed", "speed.lane1", "speed.lane2", "flow", "flow.lane1"} {
				if i%7 == 6 && strings.HasPrefix(kind, "speed") || i%5 == 4 && kind == "speed" {
					continue // no vehicle, or no total
				}
				items = append(items, fmt.Sprintf(`{"detectorCode":%q,"measureTypeCode":%q,"timestampFrom":%q,"timestampTo":%q,"value":%.1f}`,
					code, kind, to.Add(-time.Minute).Format(time.RFC3339), to.Format(time.RFC3339), base*(0.8+0.4*random.Float64())))
			}
			if len(items) > 10_000 || i+1 == sites {
				status, err := sendAs(t.Context(), d, "acme", items...)
				require.NoError(t, err)
				require.Equal(t, http.StatusMultiStatus, status)
				items = nil
			}
		}
	}
	for m := range 20 {
		send(20-m, 8) // the hour of some
	}
	send(0, siteCount)
	d.AwaitDelivered()
	c.Query(t, `INSERT INTO trafficd.measurements_hours (product_instance, hour, measure_type_code, detector_code, count_1, thousandths_1, minimum, maximum)
		SELECT 'city', toStartOfHour(now('UTC') + number * 3600) - toIntervalDay(7), 'speed', 'NL-' || leftPad(toString(3 * n), 5, '0'), 1, 100000, 100, 100
		FROM numbers(2) ARRAY JOIN range(2000) AS n`)
	d.Eventually(func() bool {
		return c.Query(t, "SELECT uniqExact(detector_code) FROM trafficd.measurements_last") == fmt.Sprint(siteCount)
	}, "the archive has derived the values")

	type row struct {
		Speed, Usual, Slowest *float64
		Longitude, Latitude   float64
	}
	want := map[string]row{}
	for line := range strings.Lines(c.Query(t, `SELECT d.detector_code AS code, round(d.longitude, 5) AS longitude, round(d.latitude, 5) AS latitude,
			speed, slowest, if(isNull(speed), NULL, usual) AS usual
		FROM trafficd.measurements_detectors AS d
		LEFT JOIN (SELECT detector_code, anyIf(toNullable(value), measure_type_code = 'speed') AS speed, minIf(toNullable(value), measure_type_code LIKE 'speed.lane%') AS slowest
			FROM trafficd.measurements_latest GROUP BY detector_code) AS v ON v.detector_code = d.detector_code
		LEFT JOIN (SELECT detector_code, any(toNullable(average)) AS usual FROM trafficd.measurements_1h WHERE bucket < now() - INTERVAL 1 DAY GROUP BY detector_code) AS u
			ON u.detector_code = d.detector_code FORMAT JSONEachRow SETTINGS join_use_nulls = 1, output_format_json_quote_64bit_integers = 0`)) {
		var r struct {
			row
			Code string
		}
		require.NoError(t, json.Unmarshal([]byte(line), &r), line)
		want[r.Code] = r.row
	}
	require.Len(t, want, siteCount)

	chrome := startBrowser(t)
	for _, width := range []int64{1440, 390} {
		p := chrome.tab(t, width, 900, "light")
		p.do(chromedp.Navigate("http://" + d.Ops + "/#map"))
		p.until(`window.dots?.steps.length === %d && window.map.getLayer("sites") && window.map.loaded() && !window.map._render_queued`, siteCount*3/4)
		var got []struct {
			Longitude, Latitude float64
			Sites               []struct {
				DetectorCode          string
				Speed, Usual, Slowest *float64
			}
		}
		p.eval(&got, "window.sites.places")
		shown, speeds := 0, 0
		for _, place := range got {
			for _, s := range place.Sites {
				w := want[s.DetectorCode]
				if s.Speed == nil {
					s.Usual = nil // there is nothing to compare
				} else {
					speeds++
				}
				require.Equal(t, w, row{s.Speed, s.Usual, s.Slowest, place.Longitude, place.Latitude}, s.DetectorCode)
				shown++
			}
		}
		require.Equal(t, siteCount, shown)
		require.Greater(t, speeds, siteCount/2)
		var steps []int
		p.eval(&steps, "[...window.dots.steps]")
		for i, place := range got {
			step := 255
			for _, s := range place.Sites {
				step = min(step, dotStep(want[s.DetectorCode].Speed, want[s.DetectorCode].Usual, want[s.DetectorCode].Slowest))
			}
			require.Equal(t, step, steps[i], "%+v", place)
		}

		click := func() {
			t.Helper()
			p.eval(new(any), "window.map.jumpTo({center: [%f, %f], zoom: 13}) && 1", 3.5, 50.8)
			p.until(`window.map.loaded() && window.map.queryRenderedFeatures({layers: ["sites"]}).length > 0`)
			var at [2]float64
			p.eval(&at, `(() => { const a = window.map.project([3.5, 50.8]), box = window.map.getContainer().getBoundingClientRect(); return [box.x + a.x, box.y + a.y] })()`)
			p.do(chromedp.MouseClickXY(at[0], at[1]))
			p.until(`document.querySelector(".street .uplot canvas") && document.querySelectorAll(".street tbody tr").length === 3`)
		}
		p.eval(new(any), "(() => { %s; return true })()", axe)
		for _, scheme := range []string{"light", "dark"} {
			if scheme == "dark" {
				var land string
				p.eval(&land, `window.map.getPaintProperty("ground", "background-color")`)
				p.scheme(scheme)
				p.until(`window.map.getLayer("sites") && window.map.getPaintProperty("sites", "circle-stroke-color") !== %q && window.map.loaded() && !window.map._render_queued`, land)
			}
			p.save(t, fmt.Sprintf("sites-%s-%d", scheme, width))
			click()
			var violations []string
			p.eval(&violations, `axe.run().then(r => r.violations.map(v => v.id + ": " + v.nodes.map(n => n.html + " " + n.failureSummary).join("; ")))`)
			require.Empty(t, violations)
			p.save(t, fmt.Sprintf("site-%s-%d", scheme, width))
			p.do(chromedp.KeyEvent("\x1b"))
			p.until(`!document.querySelector(".street")`)
			p.eval(new(any), "window.map.fitBounds([[3.5, 50.8], [7.1, 53.4]], {animate: false}) && 1")
		}
		p.eval(new(any), `(() => { document.querySelector(".search input").value = "NL-00007"; document.querySelector(".search form, form.search").requestSubmit(); return 1 })()`)
		p.until(`document.querySelector(".street h2")?.innerText.includes("NL-00006") || document.querySelector(".street h2")?.innerText.includes("NL-00007")`)
		p.until(`document.querySelector(".street select")?.options.length === 2`)
		require.Empty(t, p.takeMessages())
	}

	p := chrome.tab(t, 1440, 900, "light")
	p.do(chromedp.Navigate("http://" + d.Ops + "/#map"))
	p.until(`window.map?.getLayer("sites") && window.dots.known > 0`)
	require.NoError(t, c.Stop())
	p.until(`document.querySelector(".banner[role=alert]")?.innerText.match(/Stale sites. cannot read the archive: .* These speeds are from /)`)
	p.until(`window.map.getPaintProperty("sites", "circle-opacity") < 1`)
	p.save(t, "sites-stale-1440")
	require.NoError(t, c.Restart())
	p.until(`!document.querySelector(".banner") && window.map.getPaintProperty("sites", "circle-opacity") === 1`)
	require.Empty(t, p.takeMessages())
	_, settings := daemontest.WithoutKey(t, http.MethodGet, "http://"+d.API+"/map/settings.json")
	require.Contains(t, settings, `"sites":false`)
	status, _ := daemontest.WithoutKey(t, http.MethodGet, "http://"+d.API+"/sites")
	require.Equal(t, http.StatusNotFound, status.StatusCode)
}

// dotStep returns the step of a dot, as the legend describes it.
func dotStep(speed, usual, slowest *float64) int {
	value, bounds := slowest, []float64{15, 30, 50, 80}
	if speed != nil && usual != nil {
		share := *speed / *usual
		value, bounds = &share, []float64{.25, .5, .75, .9}
	}
	if value == nil {
		return 255
	}
	step := 0
	for _, b := range bounds {
		if *value >= b {
			step++
		}
	}
	return step
}

// save writes a picture of the page to the directory that PICTURES names, to be looked at.
func (p *tab) save(t *testing.T, name string) {
	t.Helper()
	directory := os.Getenv("PICTURES")
	if directory == "" {
		return
	}
	text, err := chromedp.Run(p.ctx, chromedp.CaptureScreenshot())
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(directory, name+".png"), text, 0o600))
}

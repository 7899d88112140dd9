package browser

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"trafficd/cmd/dev/daemontest"
	"trafficd/cmd/dev/needs"
)

// TestSickDetectors finds a detector that hangs: on the page of operations with its reason and a
// chart of its hours, and on the map.
func TestSickDetectors(t *testing.T) {
	needs.Everything(t, "Chromium")
	axe, err := os.ReadFile(filepath.Join(pageModules(t), "axe-core", "axe.min.js"))
	require.NoError(t, err)
	d, c, _ := daemontest.OnRealStores(t)
	list := "code,lon,lat\n"
	for i := range 40 {
		list += fmt.Sprintf("MQ-%02d,%.3f,%.3f\n", i, 10.1+float64(i%8)*0.02, 56.1+float64(i/8)*0.015)
	}
	path := filepath.Join(d.Dir, "detectors.csv")
	require.NoError(t, os.WriteFile(path, []byte(list), 0o600))
	d.Set("registry.feeds=[{product_instance: city, file: {path: '"+path+"', column: code}}]", "clickhouse.derive_interval=1s",
		"pipeline.validate.measure_types=[{code: speed, unit: km/h}]")
	d.Keys(daemontest.KeyEntry("acme", "ingest", "UTC"))
	d.Run().Await(http.StatusOK)
	d.Eventually(func() bool {
		return c.Query(t, "SELECT count() FROM system.tables WHERE database = 'trafficd' AND name = 'measurements_detectors'") == "1"
	}, "the tables")
	d.Eventually(func() bool {
		return c.Query(t, "SELECT uniqExact(detector_code) FROM trafficd.measurements_detectors") == "40"
	}, "the archive has the detectors")

	chrome := startBrowser(t)
	p := chrome.tab(t, 1440, 900, "light")
	p.do(chromedp.Navigate("http://" + d.Ops + "/"))
	p.until(`document.querySelector(".summary")?.innerText.includes("All is well.")`)
	require.Empty(t, p.takeMessages())

	c.Query(t, `INSERT INTO trafficd.measurements_hours (product_instance, hour, measure_type_code, detector_code, count_1, thousandths_1, minimum, maximum)
		SELECT 'city', toStartOfHour(now('UTC')) - toIntervalHour(number) AS h, 'speed', 'MQ-07', 12,
			toInt64(12000 * if(number < 8, 57, 60 + 15 * sin(toHour(h) / 4) + cityHash64(h) % 5)), 0, 0 FROM numbers(220)`)
	c.Query(t, `INSERT INTO trafficd.measurements_health SELECT 'city', s.1, s.2, s.3, now() - toIntervalHour(s.4), now(), s.5 FROM
		(SELECT arrayJoin([('constant', 'MQ-07', 'speed', 8, 'speed is 57 in all intervals of the last 8 hours; in these hours of earlier days, it was equal throughout an hour in 3.1 % of cases'),
			('silent', 'MQ-31', 'speed', 2, 'no speed since 10:00 UTC; usually 12 measurements per hour'),
			('checked', '', 'constant', 490000, ''), ('checked', '', 'silent', 490000, '')]) AS s)`)
	since := time.Now()
	p.until(`document.querySelector(".health h2")?.innerText === "Sick detectors: 2"`)
	t.Logf("on the page after %s", time.Since(since).Round(time.Second))
	p.eval(new(any), "(() => { %s; return true })()", axe)
	well := func(p *tab) {
		t.Helper()
		var violations []string
		p.eval(&violations, `axe.run().then(r => r.violations.map(v => v.id + ": " + v.nodes.map(n => n.html + " " + n.failureSummary).join("; ")))`)
		require.Empty(t, violations)
	}
	for _, width := range []int64{1440, 390} {
		for _, scheme := range []string{"light", "dark"} {
			p := chrome.tab(t, width, 900, scheme)
			p.do(chromedp.Navigate("http://" + d.Ops + "/"))
			p.until(`document.querySelector(".summary")?.innerText === "All is well, except sick detectors: 2."`)
			p.until(`document.querySelector(".health details:last-of-type summary")?.getBoundingClientRect().bottom < innerHeight`) // without scrolling
			p.save(t, fmt.Sprintf("first-%s-%d", scheme, width))
			p.until(`[...document.querySelectorAll(".health summary")].some(s => s.innerText.match(/^MQ-07 speed, constant for 8 h: speed is 57 in all intervals/))`)
			p.eval(new(any), `(() => { [...document.querySelectorAll(".health summary")].find(s => s.innerText.startsWith("MQ-07")).click(); return 1 })()`)
			p.until(`document.querySelector(".health .uplot canvas") && document.querySelector(".health").innerText.includes("The rule: all values are equal")`)
			p.until(`document.querySelector(".health .values").innerText.match(/now 57 km.h/)`)
			var overflow bool
			p.eval(&overflow, "document.documentElement.scrollWidth > innerWidth")
			require.False(t, overflow)
			p.eval(new(any), "(() => { %s; return true })()", axe)
			well(p)
			p.save(t, fmt.Sprintf("health-%s-%d", scheme, width))

			p.do(chromedp.Navigate("http://" + d.Ops + "/#map"))
			p.until(`window.map?.getLayer("sick") && window.map.loaded() && window.map.querySourceFeatures("sick").length > 0`)
			p.until(`document.querySelector(".panel details summary")?.innerText === "Sick detectors (ringed): 2"`)
			p.eval(new(any), `(() => { document.querySelector(".panel details summary").click();
				[...document.querySelectorAll(".panel .sick button")].find(b => b.innerText === "MQ-07").click(); return 1 })()`)
			p.until(`document.querySelector(".street .bad")?.innerText.startsWith("speed, constant: speed is 57 in all intervals")`)
			p.eval(new(any), "(() => { %s; return true })()", axe)
			well(p)
			p.save(t, fmt.Sprintf("health-map-%s-%d", scheme, width))
			require.Empty(t, p.takeMessages())
		}
	}
}

package browser

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"

	"trafficd/cmd/dev/daemontest"
	"trafficd/cmd/dev/needs"
)

// typicalSpeed returns the typical speed of a street that the forecaster of the test serves.
func typicalSpeed(street int32, weekday, hour int) float64 {
	return float64(5 + (int(street)*7+weekday*11+hour*3)%90)
}

// startForecaster starts a server with the responses of a forecaster: names, usual speeds, and
// typical ones for all weekdays but Sunday.
func startForecaster(t *testing.T, streets *[][2]int32) (address string) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/street" {
			_, _ = w.Write([]byte(`{"interval": 300, "origin": "2026-11-02T07:00:00Z", "basis": "own", "points": []}`))
			return
		}
		weekday, _ := strconv.Atoi(r.FormValue("weekday")) // 0 for other requests
		hour, _ := strconv.Atoi(r.FormValue("hour"))
		columns := map[string][]any{}
		for _, s := range *streets {
			add := func(name string, value any) { columns[name] = append(columns[name], value) }
			switch {
			case r.URL.RawQuery == "":
				add("street", s[0])
				add("fromnode", s[1])
				add("name", fmt.Sprintf("Road %d", s[0]))
				add("detectors", []string{})
				add("geometry", nil)
			case weekday == 7:
				add("measured", nil)
				add("usual", nil)
			default:
				add("measured", nil)
				add("usual", typicalSpeed(s[0], weekday, hour))
			}
		}
		response := map[string]any{"list": "", "problem": "", "weekdays": []int{1, 2, 3, 4, 5, 6}}
		if weekday == 7 {
			response["problem"] = "no such weekday has been learned yet"
		}
		for name, values := range columns {
			response[name] = values
		}
		_ = json.NewEncoder(w).Encode(response)
	}))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

// TestTypicalTraffic chooses a weekday and an hour by keyboard. The map shows the typical speed of
// every street, and the address shows the same again.
func TestTypicalTraffic(t *testing.T) {
	needs.Everything(t, "Chromium")
	axe, err := os.ReadFile(filepath.Join(pageModules(t), "axe-core", "axe.min.js"))
	require.NoError(t, err)
	var streets [][2]int32 // of the layer
	d, _ := withPage(t, "ui.forecaster="+startForecaster(t, &streets))
	layer := wantStreets(d, 0)
	streets = slices.Collect(maps.Keys(layer))

	chrome := startBrowser(t)
	for _, width := range []int64{1440, 390} {
		for _, scheme := range []string{"light", "dark"} {
			p := chrome.tab(t, width, 900, scheme)
			p.do(chromedp.Navigate("http://" + d.Ops + "/#map"))
			p.until(`window.layersLoaded == 8 && document.querySelector(".time select") && ` + mapComplete)
			p.eval(new(any), `document.querySelector(".time select").focus()`)
			p.do(chromedp.KeyEvent(kb.ArrowDown), chromedp.KeyEvent(kb.ArrowDown))
			p.until(`window.shown.typical?.weekday === 2`)
			p.eval(new(any), `document.querySelector(".time input[type=range]").focus()`)
			p.do(chromedp.KeyEvent(kb.Home))
			for range 8 {
				p.do(chromedp.KeyEvent(kb.ArrowRight))
			}
			check := func() {
				t.Helper()
				p.until(`window.shown?.typical?.hour === 8 && document.querySelector(".time output").innerText === "typical, Tuesday 08:00"`)
				p.until(`document.querySelector(".freshness b").innerText === "2,000 streets with a typical speed"`)
				p.until(`location.hash.includes("typical=2/8")`)
				var s shown
				p.eval(&s, readShown)
				require.Len(t, s.Street, pageStreets)
				for k, id := range s.Street {
					want := typicalSpeed(id, 2, 8)
					require.InDelta(t, want, *s.Speed[k], 0, "street %d", id)
					w := layer[[2]int32{id, s.Fromnode[k]}]
					step := 0
					for _, b := range []float64{.25, .5, .75, .9} {
						if want/float64(float32(w.GetFreeFlowSpeed())) >= b {
							step++
						}
					}
					require.Equal(t, step, s.Steps[k], "street %d", id)
				}
				require.Empty(t, s.Low)
			}
			check()
			p.do(chromedp.Reload())
			p.until(`window.shown?.typical && ` + mapComplete)
			check()
			p.eval(new(any), "(() => { %s; return true })()", axe)
			var violations []string
			p.eval(&violations, `axe.run().then(r => r.violations.map(v => v.id + ": " + v.nodes.map(n => n.html + " " + n.failureSummary).join("; ")))`)
			require.Empty(t, violations)
			var overflow bool
			p.eval(&overflow, "document.documentElement.scrollWidth > innerWidth")
			require.False(t, overflow)
			p.save(t, fmt.Sprintf("typical-%s-%d", scheme, width))
			if width > 1000 {
				p.chooseByClick(0)
				p.until(`document.querySelector(".panel.street .shown")?.innerText.match(/^Tuesday 08:00: \d+ km.h typical/)`)
				p.do(chromedp.KeyEvent(kb.Escape))
			}
			p.until(`[...document.querySelectorAll(".legend li")].at(-1).innerText === "no typical value"`)
			p.eval(new(any), `document.querySelector(".time select").focus()`)
			p.do(chromedp.KeyEvent(kb.End)) // skips Sunday
			p.until(`window.shown.typical?.weekday === 6 && [...document.querySelectorAll(".time option:disabled")].map(o => o.innerText).join() === "Typical Sunday (not learned yet)"`)
			p.do(chromedp.Navigate("about:blank"), chromedp.Navigate("http://"+d.Ops+"/#map?typical=7/8")) // from an old link
			p.until(`document.querySelector(".time [role=status]")?.innerText === "Speeds are missing: no such weekday has been learned yet."`)
			p.until(`window.shown.typical.weekday === 7 && window.shown.steps.every(s => s === 255)`)
			p.eval(new(any), `document.querySelector(".time select").focus()`)
			p.do(chromedp.KeyEvent(kb.Home))
			p.until(`!window.shown.typical && window.shown.horizon === 0 && !location.hash.includes("typical")`)
			require.Empty(t, p.takeMessages())
		}
	}
	status, text := daemontest.WithoutKey(t, http.MethodGet, "http://"+d.API+"/streets?weekday=2&hour=8")
	require.Equal(t, http.StatusNotFound, status.StatusCode, text)
}

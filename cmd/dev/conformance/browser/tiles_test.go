package browser

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"trafficd/cmd/dev/needs"
)

// readTile prints the features of a vector tile with Mapbox's reader.
const readTile = `
import { readFileSync } from "node:fs";
import { PbfReader as Pbf } from "pbf";
import { VectorTile } from "@mapbox/vector-tile";
const { layers } = new VectorTile(new Pbf(readFileSync(process.argv[2])));
const { streets } = layers;
console.log(JSON.stringify(Array.from({ length: streets.length }, (_, i) => {
  const f = streets.feature(i);
  return { ...f.properties, points: f.loadGeometry().flat().length };
})));
`

// TestVectorTiles reads the tile of a town with Mapbox's reader, and draws it with MapLibre: each
// street has the values of the layer.
func TestVectorTiles(t *testing.T) {
	needs.Everything(t, "Chromium and npm")
	modules := pageModules(t)
	d, _ := withPage(t)
	response, err := http.NewRequest(http.MethodGet, "http://"+d.API+"/mlf/v1/forecast/realtime/6/33/21.mvt?horizon=30", nil)
	require.NoError(t, err)
	response.Header.Set("Authorization", "apiKey map")
	answer, err := http.DefaultClient.Do(response)
	require.NoError(t, err)
	defer answer.Body.Close()
	require.Equal(t, http.StatusOK, answer.StatusCode)
	dir := t.TempDir()
	tile, err := os.Create(filepath.Join(dir, "tile.mvt"))
	require.NoError(t, err)
	_, err = tile.ReadFrom(answer.Body)
	require.NoError(t, err)
	require.NoError(t, tile.Close())
	require.NoError(t, os.Symlink(modules, filepath.Join(dir, "node_modules")))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "read.mjs"), []byte(readTile), 0o600))
	text, err := exec.Command("node", filepath.Join(dir, "read.mjs"), tile.Name()).Output()
	require.NoError(t, err, "%s", text)
	var features []struct {
		Street, Fromnode int32
		Speed, Low, High float64
		Class, Points    int
	}
	require.NoError(t, json.Unmarshal(text, &features))
	want := wantStreets(d, 30)
	require.Len(t, features, len(want))
	for _, f := range features {
		w := want[[2]int32{f.Street, f.Fromnode}]
		require.NotNil(t, w, "street %d", f.Street)
		require.InDelta(t, w.Forecast[0].Speed, f.Speed, 0)
		require.InDelta(t, w.Forecast[0].GetSpeedLow(), f.Low, 0)
		require.InDelta(t, w.Forecast[0].GetSpeedHigh(), f.High, 0)
		require.Equal(t, wantStep(w, "relative"), f.Class)
		require.Equal(t, 2, f.Points)
	}

	p := startBrowser(t).tab(t, 1440, 900, "light")
	p.do(chromedp.Navigate("http://" + d.API + "/map/"))
	p.do(chromedp.WaitVisible(chromedp.CSS("input[name=key]")), chromedp.SendKeys(chromedp.CSS("input[name=key]"), "map"),
		chromedp.Click(chromedp.CSS("button[type=submit]")))
	p.until(`window.shown && window.streets.drawn && window.map.getLayer("ground")`)
	p.eval(new(any), `(() => {
		const tiles = [location.origin + "/mlf/v1/forecast/realtime/{z}/{x}/{y}.mvt?horizon=0"];
		map.setTransformRequest((url) => ({ url, headers: url.startsWith(location.origin + "/mlf/") ? { Authorization: "apiKey map" } : {} }));
		map.addSource("tiles", { type: "vector", tiles, minzoom: 6, maxzoom: 14 });
		map.addLayer({ id: "tiles", type: "line", source: "tiles", "source-layer": "streets" });
	})()`)
	p.until(`map.isSourceLoaded("tiles") && map.areTilesLoaded() && map.queryRenderedFeatures({ layers: ["tiles"] }).length > 0`)
	var drawn map[string]float64
	p.eval(&drawn, `Object.fromEntries(map.querySourceFeatures("tiles", { sourceLayer: "streets" })
		.map(({ properties: f }) => [f.street + " " + f.fromnode, f.speed]))`)
	now := wantStreets(d, 0)
	require.Len(t, drawn, len(now))
	for id, w := range now {
		require.InDelta(t, w.Forecast[0].Speed, drawn[fmt.Sprintf("%d %d", id[0], id[1])], 1e-6, "street %d", id[0])
	}
	require.Empty(t, p.takeMessages())
}

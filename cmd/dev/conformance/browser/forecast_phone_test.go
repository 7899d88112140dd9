package browser

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"testing"
	"time"

	"trafficd/cmd/dev/daemontest"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/heapprofiler"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"trafficd/cmd/dev/needs"
	"trafficd/schemas/openlr"
	pb "trafficd/schemas/proto/trafficd/v1"
	"trafficd/sinks/layers"
)

const (
	phoneEnv     = "PHONE" // how long TestPhone follows the layer, such as 10m; it checks the times too
	phoneDefault = 10 * time.Second
	phoneSlower  = 4        // times slower than this machine
	phoneZoom    = 13       // a district of a town
	phoneHeap    = 20 << 20 // bytes of growth
)

// onPage describes what the page shows.
type onPage struct {
	Streets   int `json:"streets"`
	Tenths    int `json:"tenths"` // the sum of all speeds in units of 0.1 km/h
	Responses int `json:"responses"`
}

// TestPhone checks that a browser that is as slow as a phone shows the streets of a tile, and
// follows changes without requesting the tile again.
func TestPhone(t *testing.T) {
	needs.Everything(t, "Chromium")
	length, strict := phoneDefault, false
	if text := os.Getenv(phoneEnv); text != "" {
		var err error
		length, err = time.ParseDuration(text)
		require.NoError(t, err)
		strict = true
	}
	d := daemontest.New(t)
	feed := d.SetForecastFile("forecasts.pb")
	d.Keys(daemontest.KeyEntry("map", "forecast", "Europe/Copenhagen"))
	publishFile(t, feed)
	text, err := os.ReadFile(feed)
	require.NoError(t, err)
	var layer pb.StreetForecastResponse
	require.NoError(t, proto.Unmarshal(text, &layer))
	tile, inTile := fullestTile(layer.StreetForecast)
	d.Run().Await(http.StatusOK)
	d.AwaitLayer("map")

	chrome := startBrowser(t)
	proxy := startProxy(t, d.API, "")
	ctx, cancel := chromedp.NewContext(chrome.ctx)
	t.Cleanup(cancel)
	require.NoError(t, chromedp.Do(ctx, chromedp.Navigate(proxy.URL+"/phone.html"), func(ctx context.Context, page *chromedp.Target) (chromedp.Void, error) {
		_, err := cdp.Call(ctx, page, emulation.SetCPUThrottlingRate, emulation.SetCPUThrottlingRateParams{Rate: phoneSlower})
		return chromedp.Void{}, err
	}))
	path := layers.Path + "?horizon=0&" + tile
	took, err := chromedp.Run(ctx, chromedp.Evaluate[float64](fmt.Sprintf("show(%q)", path), chromedp.EvalAwaitPromise))
	require.NoError(t, err)
	t.Logf("%d streets of %s are on the screen after %.0f ms", len(inTile), tile, took)
	assert.True(t, !strict || took <= 1000, "got %v ms, want at most 1000", took)

	state := func() onPage {
		s, err := chromedp.Run(ctx, chromedp.Evaluate[onPage]("state()"))
		require.NoError(t, err)
		return s
	}
	requirePage := func() {
		t.Helper()
		want := onPage{Streets: len(inTile)}
		for _, s := range inTile {
			want.Tenths += int(math.Round(10 * s.Forecast[0].Speed))
		}
		d.Eventually(func() bool { s := state(); return s.Streets == want.Streets && s.Tenths == want.Tenths }, "the page shows the change")
	}
	requirePage()
	_, err = chromedp.Run(ctx, chromedp.Evaluate[bool](fmt.Sprintf("void follow(%q) || true", path)))
	require.NoError(t, err)
	before, rounds := heapOf(ctx, t), 0
	random := rand.New(rand.NewPCG(1, 2))
	for end := time.Now().Add(length); time.Now().Before(end); rounds++ {
		for range mapStreets / 100 {
			layer.StreetForecast[random.IntN(len(layer.StreetForecast))].Forecast[0].Speed = float64(random.IntN(1000)) / 10
		}
		inTile[random.IntN(len(inTile))].Forecast[0].Speed = float64(1000+rounds) / 10
		text, err := proto.Marshal(&layer)
		require.NoError(t, err)
		daemontest.ReplaceFile(t, feed, string(text))
		requirePage()
		time.Sleep(time.Second) // the minimum interval of a feed
	}
	growth := heapOf(ctx, t) - before
	t.Logf("%d changes of %v followed in %d responses; the heap has grown by %.1f MB", rounds, length, state().Responses, growth/1e6)
	require.Less(t, growth, float64(phoneHeap))
	require.GreaterOrEqual(t, state().Responses, rounds)
}

// fullestTile returns a query for the tile with most streets, and its streets.
func fullestTile(all []*pb.StreetForecast) (query string, streets []*pb.StreetForecast) {
	tiles := map[string][]*pb.StreetForecast{}
	for _, s := range all {
		line, err := openlr.Decode(s.OpenLRcode)
		if err != nil {
			continue
		}
		p, width := line.Points[0], float64(int(1)<<phoneZoom)
		x := (p.Lon + 180) / 360 * width
		y := (1 - math.Asinh(math.Tan(p.Lat*math.Pi/180))/math.Pi) / 2 * width
		tile := fmt.Sprintf("tile=%d/%d/%d", phoneZoom, int(x), int(y))
		if tiles[tile] = append(tiles[tile], s); len(tiles[tile]) > len(streets) {
			query, streets = tile, tiles[tile]
		}
	}
	return query, tiles[query]
}

// heapOf returns the bytes that the page's scripts use.
func heapOf(ctx context.Context, t *testing.T) float64 {
	t.Helper()
	used, err := chromedp.Run(ctx, func(ctx context.Context, page *chromedp.Target) (float64, error) {
		if _, err := cdp.Call(ctx, page, heapprofiler.CollectGarbage, cdp.Empty{}); err != nil {
			return 0, err
		}
		usage, err := cdp.Call(ctx, page, runtime.GetHeapUsage, cdp.Empty{})
		return usage.UsedSize, err
	})
	require.NoError(t, err)
	return used
}

package town

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	pb "trafficd/schemas/proto/trafficd/v1"
	"trafficd/sources/forecasts"
)

func forecastsOf(t testing.TB, change func(*ForecastConfig)) []*pb.StreetForecast {
	t.Helper()
	cfg := DefaultForecastConfig()
	cfg.Streets, cfg.From = 101, time.Date(2026, 11, 20, 18, 0, 0, 0, time.UTC)
	change(&cfg)
	all, err := Forecasts(cfg)
	require.NoError(t, err)
	return slices.Collect(all)
}

// TestForecasts checks that forecasts are in normal form, and that the same configuration produces
// the same file.
func TestForecasts(t *testing.T) {
	all := forecastsOf(t, func(*ForecastConfig) {})
	require.Len(t, all, 101)
	for _, f := range all {
		normal := proto.CloneOf(f)
		_, err := forecasts.Normalise(normal, forecasts.MaxSpeed)
		require.NoError(t, err)
		require.True(t, proto.Equal(normal, f))
		require.Equal(t, "2026-11-20T23:45:00Z", f.Forecast[23].Start)
	}
	files := [3][]byte{}
	for i := range files {
		cfg := DefaultForecastConfig()
		cfg.From, cfg.Seed = time.Date(2026, 11, 20, 18, 0, 0, 0, time.UTC), uint64(i/2)
		path := filepath.Join(t.TempDir(), "town.pb")
		require.NoError(t, WriteForecasts(path, cfg))
		var err error
		files[i], err = os.ReadFile(path)
		require.NoError(t, err)
	}
	require.Equal(t, files[0], files[1])
	require.NotEqual(t, files[0], files[2])
}

// TestForecastsAgreeWithMeasurements checks that a detector measures about the speed that is
// forecast for its street.
func TestForecastsAgreeWithMeasurements(t *testing.T) {
	at := time.Date(2026, 11, 3, 7, 30, 0, 0, time.UTC)
	same := Config{Streets: 400, Seed: 3, UTCOffset: 1}
	measured := map[string]float64{}
	for item := range network(t, configured(func(c *MeasurementConfig) {
		c.Config, c.From, c.Interval, c.Count, c.Types = same, at, 5*time.Minute, 1, []string{"speed"}
	})).Items() {
		var m struct {
			DetectorCode string
			Value        float64
		}
		require.NoError(t, json.Unmarshal(item.JSON, &m))
		measured[m.DetectorCode] = m.Value
	}
	require.Greater(t, len(measured), 350)
	found := 0
	for _, f := range forecastsOf(t, func(c *ForecastConfig) { c.Config, c.From, c.Periods, c.Step = same, at, 1, 5*time.Minute }) {
		if value, ok := measured[fmt.Sprintf("D%d-%d", f.Street, f.Fromnode)]; ok {
			found++
			require.InEpsilon(t, f.Forecast[0].Speed, value, 0.2)
		}
	}
	require.Equal(t, len(measured), found)
}

func TestForecastConfigValidate(t *testing.T) {
	f := func(name string, change func(*ForecastConfig)) {
		t.Helper()
		cfg := DefaultForecastConfig()
		cfg.From = time.Date(2026, 11, 20, 18, 0, 0, 0, time.UTC)
		require.NoError(t, cfg.Validate())
		change(&cfg)
		require.ErrorContains(t, cfg.Validate(), name)
	}
	f("--streets 0", func(c *ForecastConfig) { c.Streets = 0 })
	f("--periods 0", func(c *ForecastConfig) { c.Periods = 0 })
	f("--step 1.5s", func(c *ForecastConfig) { c.Step = 1500 * time.Millisecond })
	f("--from", func(c *ForecastConfig) { c.From = time.Date(2261, 12, 31, 23, 0, 0, 0, time.UTC) })
}

package town

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func configured(change func(*MeasurementConfig)) MeasurementConfig {
	cfg := DefaultMeasurementConfig()
	cfg.Streets, cfg.Interval = 300, 30*time.Minute
	change(&cfg)
	return cfg
}

func network(t testing.TB, cfg MeasurementConfig) *Network {
	n, err := New(cfg)
	require.NoError(t, err)
	return n
}

func ndjson(t testing.TB, cfg MeasurementConfig) string {
	var b strings.Builder
	for item := range network(t, cfg).Items() {
		fmt.Fprintf(&b, "%s\n", item.JSON)
	}
	return b.String()
}

func registry(t testing.TB, cfg MeasurementConfig) [][]string {
	var b bytes.Buffer
	require.NoError(t, network(t, cfg).WriteRegistry(&b))
	rows, err := csv.NewReader(&b).ReadAll()
	require.NoError(t, err)
	return rows
}

func TestSameSeedSameBytes(t *testing.T) {
	cfg := configured(func(c *MeasurementConfig) { c.ErrorRate = 0.05 })
	require.Equal(t, ndjson(t, cfg), ndjson(t, cfg))
	require.Equal(t, registry(t, cfg), registry(t, cfg))
	other := cfg
	other.Seed++
	require.NotEqual(t, ndjson(t, cfg), ndjson(t, other))
	require.NotEqual(t, registry(t, cfg), registry(t, other))
}

// TestErrorRateKeepsValidItems checks that the error rate changes only the items that it makes
// invalid.
func TestErrorRateKeepsValidItems(t *testing.T) {
	good := strings.Split(ndjson(t, configured(func(*MeasurementConfig) {})), "\n")
	mixed := strings.Split(ndjson(t, configured(func(c *MeasurementConfig) { c.ErrorRate = 0.1 })), "\n")
	require.Len(t, mixed, len(good))
	changed := 0
	for i := range good {
		if good[i] != mixed[i] {
			changed++
		}
	}
	require.InDelta(t, 0.1, float64(changed)/float64(len(good)), 0.01)
}

func TestRegistry(t *testing.T) {
	rows := registry(t, configured(func(c *MeasurementConfig) { c.Streets = 14_000 }))
	require.Equal(t, "detectorCode", rows[0][0])
	codes := map[string]bool{}
	for _, row := range rows[1:] {
		codes[row[0]] = true
	}
	require.Len(t, codes, 14_000, "codes are unique")
}

// TestRushHours checks that on working days, rush hours have more and slower traffic than the
// night.
func TestRushHours(t *testing.T) {
	cfg := configured(func(c *MeasurementConfig) {
		c.From = time.Date(2026, 11, 3, 0, 0, 0, 0, time.UTC) // a Tuesday
		c.AllTypes = true
	})
	sums := map[string]map[int]float64{"flow": {}, "speed": {}, "occupancy": {}}
	for item := range network(t, cfg).Items() {
		var m struct {
			MeasureTypeCode string
			TimestampFrom   time.Time
			Value           float64
		}
		require.NoError(t, json.Unmarshal(item.JSON, &m))
		sums[m.MeasureTypeCode][m.TimestampFrom.Hour()] += m.Value
	}
	for _, rush := range []int{7, 16} {
		require.Greater(t, sums["flow"][rush], 3*sums["flow"][3])
		require.Greater(t, sums["flow"][rush], sums["flow"][11])
		require.Greater(t, sums["occupancy"][rush], 3*sums["occupancy"][3])
		require.Less(t, sums["speed"][rush], 0.95*sums["speed"][3])
	}
}

// TestIntervalsAreIndependent checks that an interval that is generated alone has the same
// measurements as in the whole day.
func TestIntervalsAreIndependent(t *testing.T) {
	cfg := configured(func(*MeasurementConfig) {})
	day := ndjson(t, cfg)
	cfg.From, cfg.Count = cfg.From.Add(9*time.Hour), 1
	single := ndjson(t, cfg)
	require.Contains(t, single, `"timestampFrom":"2026-11-01T09:00:00Z"`)
	require.Contains(t, day, single)
	require.Less(t, strings.Count(single, "\n"), 301)
}

func TestConfigValidate(t *testing.T) {
	f := func(name string, change func(*MeasurementConfig)) {
		t.Helper()
		require.NoError(t, DefaultMeasurementConfig().Validate())
		require.ErrorContains(t, configured(change).Validate(), name)
	}
	f("--detectors", func(c *MeasurementConfig) { c.Streets = 0 })
	f("--from", func(c *MeasurementConfig) { c.From = time.Time{} })
	f("--days", func(c *MeasurementConfig) { c.Days = 0 })
	f("--interval", func(c *MeasurementConfig) { c.Interval = 0 })
	f("--types", func(c *MeasurementConfig) { c.Types = nil })
	f("--types", func(c *MeasurementConfig) { c.Types = []string{"colour"} })
	f("--gap-rate", func(c *MeasurementConfig) { c.GapRate = 1 })
	f("--error-rate", func(c *MeasurementConfig) { c.ErrorRate = -1 })
	f("--gap-rate NaN", func(c *MeasurementConfig) { c.GapRate = math.NaN() })
	f("--error-rate NaN", func(c *MeasurementConfig) { c.ErrorRate = math.NaN() })
	f("--intervals", func(c *MeasurementConfig) { c.Count = -1 })
	f("--utc-offset", func(c *MeasurementConfig) { c.UTCOffset = 15 })
}

func BenchmarkItems(b *testing.B) {
	cfg := configured(func(c *MeasurementConfig) { c.Streets = 1000 })
	items := 0
	for b.Loop() {
		for range network(b, cfg).Items() {
			items++
		}
	}
	b.ReportMetric(float64(items)/b.Elapsed().Seconds(), "items/s")
}

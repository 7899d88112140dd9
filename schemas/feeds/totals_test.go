package feeds

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTotals(t *testing.T) {
	table := NewTable()
	table.Add(&Site{ID: "two", Characteristics: []Characteristic{
		{Index: 1, Kind: "trafficFlow", Lane: "lane1"},
		{Index: 2, Kind: "trafficFlow", Lane: "lane2"},
		{Index: 3, Kind: "trafficFlow", Lane: "lane2", Class: "lorry"},
		{Index: 4, Kind: "trafficSpeed", Lane: "lane1"},
		{Index: 5, Kind: "trafficSpeed", Lane: "lane2"},
	}})
	table.Add(&Site{ID: "whole", Characteristics: []Characteristic{{Index: 1, Kind: "trafficFlow"}, {Index: 2, Kind: "trafficSpeed"}}})
	at := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	row := func(code string, value float64, outcome Outcome) Row {
		return Row{Site: "two", Code: code, Value: value, Outcome: outcome, From: at, To: at.Add(time.Minute), Quality: math.NaN()}
	}
	f := func(want map[string]float64, rows ...Row) {
		t.Helper()
		got := map[string]float64{}
		for _, r := range table.Totals(rows) {
			require.Equal(t, Measured, r.Outcome)
			require.Equal(t, "two", r.Site)
			require.Equal(t, r.Measure.String(), r.Code)
			require.Equal(t, at.Add(time.Minute), r.To)
			require.True(t, math.IsNaN(r.Quality))
			got[r.Code] = r.Value
		}
		require.Equal(t, want, got)
	}
	none := map[string]float64{}
	flows := []Row{row("flow.lane1", 300, Measured), row("flow.lane2", 100, Measured), row("flow.lane2.lorry", 60, Measured)}
	both := append(flows[:3:3], row("speed.lane1", 80, Measured), row("speed.lane2", 120, Measured))
	f(map[string]float64{"flow": 400, "speed": 90}, both...)
	f(map[string]float64{"flow": 400}, flows...)
	f(map[string]float64{"flow": 400}, append(flows[:3:3], row("speed.lane1", 80, Measured), row("speed.lane2", 0, Fault))...)
	f(map[string]float64{"flow": 300, "speed": 80}, row("flow.lane1", 300, Measured), row("flow.lane2", 0, Measured),
		row("speed.lane1", 80, Measured), row("speed.lane2", -1, NoVehicle))
	f(map[string]float64{"flow": 0}, row("flow.lane1", 0, Measured), row("flow.lane2", 0, Measured), row("speed.lane1", -1, NoVehicle))
	f(none, row("flow.lane1", 300, Measured)) // a lane is missing
	f(none, row("flow.lane1", 300, Measured), row("flow.lane2", 0, Fault))
	f(none, append(both[:5:5], row("flow", 390, Measured))...) // published
	later := row("flow.lane2", 100, Measured)
	later.To = later.To.Add(time.Minute)
	f(none, row("flow.lane1", 300, Measured), later)

	whole := row("flow.lane1", 300, Measured)
	whole.Site = "whole"
	require.Nil(t, table.Totals([]Row{whole}))
	require.Nil(t, table.Totals(nil))
	require.Nil(t, (*Table)(nil).Totals(both))
}

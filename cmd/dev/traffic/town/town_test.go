package town

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"trafficd/schemas/openlr"
)

func town(streets int) *Town { return NewTown(Config{Streets: streets, Seed: 1}) }

// TestTownIsConnected checks that every street has two directions and is connected to all others,
// and that its location reference decodes to its ends.
func TestTownIsConnected(t *testing.T) {
	f := func(streets int) {
		t.Helper()
		all := town(streets).Streets
		require.Len(t, all, streets)
		places := map[int32][2]float64{}
		directions := map[[2]int32]bool{}
		reached := map[int32]bool{1: true}
		for i, s := range all {
			require.True(t, reached[s.From] || reached[s.To], "street %d touches no earlier street", s.Number)
			reached[s.From], reached[s.To] = true, true
			require.False(t, directions[[2]int32{s.Number, s.From}], "street and fromnode are unique")
			directions[[2]int32{s.Number, s.From}] = true
			if i%2 == 1 {
				forward := all[i-1]
				require.Equal(t, []int32{forward.Number, forward.To, forward.From}, []int32{s.Number, s.From, s.To})
			}
			for node, place := range map[int32][2]float64{s.From: s.Start, s.To: s.End} {
				if _, ok := places[node]; !ok {
					places[node] = place
				}
				require.Equal(t, places[node], place, "node %d has one place", node)
			}
			line, err := openlr.Decode(s.OpenLR())
			require.NoError(t, err)
			for end, place := range [][2]float64{s.Start, s.End} {
				require.InDelta(t, place[0], line.Points[end].Lon, 3e-5)
				require.InDelta(t, place[1], line.Points[end].Lat, 3e-5)
			}
			require.InDelta(t, s.Length, line.Points[0].Distance, openlr.DistanceTolerance+1)
			require.InDelta(t, block, s.Length, block, "a plausible length")
		}
		require.Len(t, places, len(reached))
	}
	f(1)
	f(2)
	f(101)
	f(1000)
	f(14_000)
}

// TestTownGrows checks that a larger town contains a smaller one, and that another seed yields
// another town.
func TestTownGrows(t *testing.T) {
	require.Equal(t, town(1000).Streets, town(1400).Streets[:1000])
	require.NotEqual(t, town(1000).Streets, NewTown(Config{Streets: 1000, Seed: 2}).Streets)
}

// TestBridges checks that there are streets on both sides of the river and few bridges.
func TestBridges(t *testing.T) {
	sides, bridges := map[bool]int{}, 0
	side := func(place [2]float64) bool {
		return south((place[0]-centreLongitude)*metresPerDegree*math.Cos(centreLatitude*math.Pi/180), (place[1]-centreLatitude)*metresPerDegree)
	}
	for _, s := range town(1000).Streets {
		sides[side(s.Start)]++
		if s.From < s.To && side(s.Start) != side(s.End) {
			bridges++
		}
	}
	require.Greater(t, sides[true], 200)
	require.Greater(t, sides[false], 200)
	require.GreaterOrEqual(t, bridges, 2)
	require.LessOrEqual(t, bridges, 8)
}

var rushHour = time.Date(2026, 11, 3, 7, 45, 0, 0, time.UTC) // a Tuesday

// TestJamsMove checks that the slow part of a road moves against the traffic.
func TestJamsMove(t *testing.T) {
	type lane struct {
		road    int
		forward bool
	}
	town := town(1000)
	middles := func(at time.Time) map[lane]float64 {
		sums, slow := map[lane]float64{}, map[lane]float64{}
		for i := range town.Streets {
			s := &town.Streets[i]
			if l := (lane{s.road, s.forward}); s.road > 0 && s.road < firstRing && town.At(s, at).Speed < freeSpeeds[s.Class]/2 {
				sums[l] += s.metre
				slow[l]++
			}
		}
		for l, n := range slow {
			sums[l] /= n
		}
		return sums
	}
	moved := 0
	after := middles(rushHour.Add(2 * time.Minute))
	for l, before := range middles(rushHour) {
		if now, ok := after[l]; ok && math.Abs(now-before) > 100 {
			moved++
			require.Equal(t, l.forward, now < before, "road %d: from %.0f m to %.0f m", l.road, before, now)
		}
	}
	require.GreaterOrEqual(t, moved, 4)
	require.NotEmpty(t, middles(time.Date(2026, 11, 3, 2, 0, 0, 0, time.UTC)), "some roads have a jam at night")
}

// TestTraffic checks that speeds are plausible for the class of the street, and rush hours follow
// the town's local time.
func TestTraffic(t *testing.T) {
	day := town(1000)
	clocks := NewTown(Config{Streets: 1000, Seed: 1, UTCOffset: 5.5})
	sums := map[int]float64{}
	for minute := 0; minute < 24*60; minute += 15 {
		at := time.Date(2026, 11, 3, 0, minute, 0, 0, time.UTC)
		for i := range day.Streets {
			s := &day.Streets[i]
			traffic := day.At(s, at)
			require.GreaterOrEqual(t, traffic.Speed, 3.0)
			require.LessOrEqual(t, traffic.Speed, 1.2*freeSpeeds[s.Class])
			require.Positive(t, traffic.Flow)
			require.LessOrEqual(t, traffic.Flow, 1.2*capacities[s.Class])
			require.Equal(t, traffic, clocks.At(&clocks.Streets[i], at.Add(-330*time.Minute)))
			sums[at.Hour()] += traffic.Speed
		}
	}
	for _, rush := range []int{7, 16} {
		require.Less(t, sums[rush], 0.85*sums[3])
	}
}

package feeds

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestCodes is the golden table of measure type codes.
func TestCodes(t *testing.T) {
	f := func(k codeKey, want string) {
		t.Helper()
		require.Equal(t, want, k.String())
	}
	f(codeKey{measure: Speed}, "speed")
	f(codeKey{measure: Speed, lane: "lane1"}, "speed.lane1")
	f(codeKey{measure: Flow, lane: "lane2", class: "gt12.2m"}, "flow.lane2.gt12.2m")
	f(codeKey{measure: Flow, class: "lorry"}, "flow.lorry")
	f(codeKey{measure: Occupancy, index: 7}, "occupancy.i7")
	f(codeKey{measure: Speed, lane: "lane1", statistic: "max", index: 7, twin: 2}, "speed.lane1.max.i7.n3")
	f(codeKey{measure: Speed, index: -7}, "speed.i-7")
	f(codeKey{measure: PCUFlow, class: "Lkw über 3,5t"}, "pcu_flow.Lkw__ber_3_5t")
	long := codeKey{measure: Speed, lane: "lane1", class: "a23456789_b23456789_c23456789_d23456789_e23456789_f23456789", index: 12}
	f(long, "speed.lane1.a23456789_b23456789_c23456789_d23456789_e2345678.i12")
	require.Len(t, long.String(), maxCode)
}

func TestLanes(t *testing.T) {
	f := func(usage, number, want string) {
		t.Helper()
		require.Equal(t, want, laneName(usage, number))
	}
	f("lane1", "", "lane1")
	f("", "1", "lane1")
	f("busLane", "3", "lane3")
	f("busLane", "", "busLane")
	f("allLanesCompleteCarriageway", "", "")
	f("", "", "")
}

func TestClasses(t *testing.T) {
	f := func(want string, parts ...part) {
		t.Helper()
		require.Equal(t, want, className(parts))
	}
	f("")
	f("lorry", part{"", "lorry"})
	f("bus_lorry", part{"", "lorry"}, part{"", "bus"}, part{"", "lorry"})
	f("ge5.6_le12.2m", part{"m", "le12.2"}, part{"m", "ge5.6"})
	f("lorry_ge3axles_gt3.5t", part{"t", "gt3.5"}, part{"axles", "ge3"}, part{"", "lorry"})
}

// TestSameLaneAndClassTwice checks that the second of two columns that the table does not
// distinguish has its index in its code, also if the first one is not published.
func TestSameLaneAndClassTwice(t *testing.T) {
	sites := NewTable()
	sites.Add(&Site{ID: "S", Characteristics: []Characteristic{
		{Index: 7, Kind: "trafficSpeed", Lane: "lane1"}, {Index: 3, Kind: "trafficSpeed", Lane: "lane1"}, {Index: 5, Kind: "trafficFlow", Lane: "lane1"},
	}})
	f := func(values []string, want ...string) {
		t.Helper()
		var codes []string
		for _, row := range read(t, "ndw", v2(site(values...)), func(o *Options) { o.Table = sites }).rows {
			codes = append(codes, row.Code)
		}
		require.Equal(t, want, codes)
	}
	f([]string{speedOf(3, "", kmh60), flowOf(5, veh60), speedOf(7, "", kmh60)}, "speed.lane1", "flow.lane1", "speed.lane1.i7")
	f([]string{speedOf(7, "", kmh60)}, "speed.lane1.i7")
}

// TestTableIsSmall checks the memory of the table of the Netherlands.
func TestTableIsSmall(t *testing.T) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	sites := NewTable()
	for i := range 97_000 {
		s := Site{ID: fmt.Sprintf("PZH01_MST_%08d_00", i)}
		for index := range 4 + i%60 {
			s.Characteristics = append(s.Characteristics, Characteristic{index + 1, "trafficFlow", fmt.Sprintf("lane%d", index/8+1), "lt5.6m", time.Minute})
		}
		sites.Add(&s)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	require.Less(t, after.HeapAlloc-before.HeapAlloc, uint64(16<<20))
	require.Equal(t, 97_000, sites.Len())
}

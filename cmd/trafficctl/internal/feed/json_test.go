package feed

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"trafficd/cmd/trafficctl/internal/measurement"
)

// FuzzItemsAreJSON checks that for any input, each item is one valid JSON value: the daemon
// rejects a whole batch with an invalid one.
func FuzzItemsAreJSON(f *testing.F) {
	for _, s := range []string{
		csvText, item1 + "\n" + item2, "[" + item1 + "]", `{"measurements":[1,"a",null,{}]}`,
		`{"a":"\ud83d\ude00"}`, `{"a":01}`, `{"a":1.}`, "{\"a\":\"\x01\"}", `{"a":"\x"}`, `[1,]`, `-`, `nul`, "\x1f\x8b",
		`""{"":`, `[1]{"":`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for _, format := range []Format{Auto, CSV, JSON, NDJSON} {
			for _, item := range readAll(t, configFor(format, nil), s).items {
				require.True(t, json.Valid([]byte(item)), "%q", item)
				require.True(t, utf8.ValidString(item), "%q", item)
			}
		}
	})
}

func TestLoneSurrogate(t *testing.T) {
	f := func(s string, want bool) {
		t.Helper()
		require.Equal(t, want, hasLoneSurrogate([]byte(s)))
	}
	f(``, false)
	f(`\u0041`, false)
	f(`\ud83d\ude00`, false)
	f(`\\ud83d`, false)
	f(`\\\ud83d`, true)
	f(`\ud83d`, true)
	f(`\ud83d\ud83d\ude00`, true)
	f(`\ude00\ud83d`, true)
	f(`\ud83d \ude00`, true)
	f(`\ud8`, false) // not an escape sequence: the JSON library rejects it
}

// TestDetector checks that an item has its detector code without escape sequences.
func TestDetector(t *testing.T) {
	f := func(text string) {
		t.Helper()
		source, err := Open(t.Context(), DefaultConfig(), strings.NewReader(text))
		require.NoError(t, err)
		defer source.Close()
		var detectors []string
		for item, err := range source.Items() {
			require.NoError(t, err)
			detectors = append(detectors, item.Detector)
		}
		require.Equal(t, []string{"D1", "D2"}, detectors)
	}
	f(csvText)
	f(strings.Replace(item1, "D1", `\u00441`, 1) + "\n" + item2)
}

// wide returns a table of n rows with several value columns.
func wide(rows int) []byte {
	var b bytes.Buffer
	b.WriteString("report_id,timestamp,avg_speed_kmh,vehicle_count\n")
	at := time.Date(2014, 8, 1, 7, 50, 0, 0, time.UTC)
	for i := range rows {
		b.WriteString("158324,")
		b.Write(at.Add(time.Duration(i)*5*time.Minute).AppendFormat(nil, "2006-01-02T15:04:05"))
		b.WriteString(",50,5\n")
	}
	return b.Bytes()
}

func meltConfig(zone *time.Location) Config {
	cfg := DefaultConfig()
	cfg.Mapping = mapped(func(m *Mapping) {
		m.Detector, m.From, m.To, m.Interval = "report_id", "timestamp", "", 5*time.Minute
		m.Melt = []Melt{{"avg_speed_kmh", "speed"}, {"vehicle_count", "flow"}}
		m.Clock.Zone, m.Clock.Overlap = zone, OverlapFirst
	})
	return cfg
}

func benchmarkItems(b *testing.B, cfg Config, text []byte) {
	b.ReportAllocs()
	b.SetBytes(int64(len(text)))
	items := 0
	for b.Loop() {
		source, err := Open(b.Context(), cfg, bytes.NewReader(text))
		require.NoError(b, err)
		for _, err := range source.Items() {
			if err != nil && !errors.As(err, new(*measurement.RowError)) {
				b.Fatal(err)
			}
			items++
		}
		source.Close()
	}
	b.ReportMetric(float64(items)/b.Elapsed().Seconds(), "items/s")
}

func BenchmarkMelt(b *testing.B) { benchmarkItems(b, meltConfig(time.UTC), wide(20_000)) }

func BenchmarkMeltLocalTime(b *testing.B) {
	benchmarkItems(b, meltConfig(zone(b, "Europe/Copenhagen")), wide(20_000))
}

func BenchmarkNDJSON(b *testing.B) {
	benchmarkItems(b, DefaultConfig(), bytes.Repeat([]byte(item1+"\n"), 20_000))
}

func BenchmarkJSON(b *testing.B) {
	benchmarkItems(b, DefaultConfig(), []byte("["+strings.Repeat(item1+",", 19_999)+item1+"]"))
}

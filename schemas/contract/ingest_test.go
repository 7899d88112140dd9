package contract

import (
	"encoding/json"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// TestMeasurementJSON checks that AppendJSON writes what encoding/json reads, and exactly that.
func TestMeasurementJSON(t *testing.T) {
	at := time.Date(2026, 11, 1, 9, 0, 0, 5e8, time.FixedZone("", 3600))
	f := func(want string, m Measurement) {
		t.Helper()
		m.TimestampFrom, m.TimestampTo = at, at.Add(time.Minute)
		text := m.AppendJSON(nil)
		require.Equal(t, want, string(text))
		var got Measurement
		require.NoError(t, json.Unmarshal(text, &got))
		require.True(t, at.Equal(got.TimestampFrom))
		m.TimestampFrom, m.TimestampTo = got.TimestampFrom, got.TimestampTo
		require.Equal(t, m, got)
	}
	const times = `"timestampFrom":"2026-11-01T08:00:00.5Z","timestampTo":"2026-11-01T08:01:00.5Z"`
	f(`{"detectorCode":"D1","measureTypeCode":"speed",`+times+`,"value":48.5}`, Measurement{
		DetectorCode: "D1", MeasureTypeCode: "speed", Value: "48.5",
	})
	f(`{"detectorCode":"é\"\u0001<","measureTypeCode":"\\",`+times+`,"value":-1e9,"quality":0.5}`, Measurement{
		DetectorCode: "é\"\x01<", MeasureTypeCode: `\`, Value: "-1e9", Quality: "0.5",
	})
	require.Equal(t, `{"measurements":[1,"a"]}`, string(Batch("1", `"a"`)))
	require.Equal(t, `{"measurements":[]}`, string(Batch[[]byte]()))
}

// FuzzMeasurementText checks that any valid UTF-8 text survives a round trip.
func FuzzMeasurementText(f *testing.F) {
	for _, s := range []string{"", "D1", `a"b\c`, "\x00\x1f\x7f", "ü€😀", "a\nb", " "} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if !utf8.ValidString(s) {
			return // the caller must pass valid UTF-8
		}
		m := Measurement{DetectorCode: s, MeasureTypeCode: s, Value: "1"}
		var back Measurement
		require.NoError(t, json.Unmarshal(m.AppendJSON(nil), &back))
		require.Equal(t, m, back)
	})
}

func TestMeasurementDoesNotAllocate(t *testing.T) {
	m := Measurement{DetectorCode: "D1", MeasureTypeCode: "speed", Value: "1", Quality: "0.5"}
	buf := make([]byte, 0, 1024)
	require.Zero(t, testing.AllocsPerRun(100, func() { buf = m.AppendJSON(buf[:0]) }))
}

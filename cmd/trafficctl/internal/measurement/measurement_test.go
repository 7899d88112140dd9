package measurement

import (
	"encoding/json"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// FuzzAppendJSON checks that any valid UTF-8 text survives a round trip.
func FuzzAppendJSON(f *testing.F) {
	for _, s := range []string{"", "D1", `a"b\c`, "\x00\x1f\x7f", "ü€😀", "a\nb", " "} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if !utf8.ValidString(s) {
			return // the caller must pass valid UTF-8
		}
		var back struct{ DetectorCode, MeasureTypeCode string }
		fields := Fields{Detector: s, Type: s, Value: []byte("1")}
		require.NoError(t, json.Unmarshal(fields.AppendJSON(nil), &back))
		require.Equal(t, s, back.DetectorCode)
		require.Equal(t, s, back.MeasureTypeCode)
	})
}

func TestAppendTime(t *testing.T) {
	f := func(at time.Time, want string) {
		t.Helper()
		require.Equal(t, want, string(AppendTime(nil, at)))
	}
	at := time.Date(2026, 11, 1, 7, 50, 0, 0, time.UTC)
	f(at, "2026-11-01T07:50:00Z")
	f(at.Add(250*time.Millisecond), "2026-11-01T07:50:00.25Z")
	f(at.In(time.FixedZone("", 3600)), "2026-11-01T07:50:00Z")
}

func TestFieldsDoNotAllocate(t *testing.T) {
	fields := Fields{Detector: "D1", Type: "speed", From: []byte("a"), To: []byte("b"), Value: []byte("1"), Quality: []byte("0.5")}
	buf := make([]byte, 0, 1024)
	require.Zero(t, testing.AllocsPerRun(100, func() { buf = fields.AppendJSON(buf[:0]) }))
	require.Equal(t, `{"detectorCode":"D1","measureTypeCode":"speed","timestampFrom":"a","timestampTo":"b","value":1,"quality":0.5}`, string(buf))
}

func TestPlace(t *testing.T) {
	require.Equal(t, "line 7", Position{Row: 5, Line: 7}.String())
	require.Equal(t, "item 5", Position{Row: 5}.String())
}

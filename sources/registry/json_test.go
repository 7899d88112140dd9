package registry

import (
	"encoding/json"
	"runtime"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"trafficd/pipeline/batch"
)

func TestParseJSON(t *testing.T) {
	f := func(body string, want ...string) {
		t.Helper()
		got, err := collect(func(add addEntry) error { return parseJSON([]byte(body), fields{code: "code"}, add) })
		require.NoError(t, err)
		require.ElementsMatch(t, want, got)
	}
	f(`[]`)
	f(`["A", "B\u00e9"]`, "A", "Bé")
	f(` [{"code": "A", "street": {"code": "x"}}, {"code": "B"}]`, "A", "B")
	f(`{"detectors": ["A", {"code": "B"}], "next": null}`, "A", "B")
	f(`{"detectors": []}`)
}

func TestParseJSONErrors(t *testing.T) {
	f := func(body, want string) {
		t.Helper()
		_, err := collect(func(add addEntry) error { return parseJSON([]byte(body), fields{code: "code"}, add) })
		require.ErrorContains(t, err, want)
	}
	f(``, "invalid or truncated JSON at byte 0")
	f(`["A"] x`, "invalid or truncated JSON")
	f(`["A", 5]`, "entry 1 of the list: 5 is not a string")
	f(`["A", null]`, "null is not a string")
	f(`[{"code": 5}]`, "entry 0 of the list: 5 is not a string")
	f(`[{"Code": "A"}]`, `entry 0 of the list: no member "code"`)
	f(`[["A"]]`, "is not a string")
	f(`{"items": []}`, "no array `detectors`")
	f(`{"detectors": ["A"], "detectors": ["B"]}`, "duplicate member `detectors`")
	f(`{"detectors": 5}`, "not a list of detectors: 5 is not an array")
	f(`5`, "not a list of detectors: 5 is not an array")
	f(`{"detectors": null}`, "no array `detectors`")
	f(`{"detectors": {}}`, "not a list")
	f(`"A"`, "not a list")
	f("[\"\xff\"]", "UTF-8")
}

func TestParseJSONTruncated(t *testing.T) {
	for _, whole := range []string{`["A","B"]`, `[{"code":"A"}]`, `{"detectors":["A"],"n":1}`} {
		for n := range len(whole) {
			_, err := collect(func(add addEntry) error { return parseJSON([]byte(whole[:n]), fields{code: "code"}, add) })
			require.Error(t, err, whole[:n])
		}
	}
}

func FuzzJSON(f *testing.F) {
	f.Add("A\x00B 1\x00\"C\"", true)
	f.Add("dét\\u0031\x00", false)
	f.Fuzz(func(t *testing.T, joined string, objects bool) {
		if !utf8.ValidString(joined) {
			return
		}
		codes := strings.Split(joined, "\x00")
		list := make([]any, len(codes))
		for i, c := range codes {
			list[i] = c
			if objects {
				list[i] = map[string]any{"code": c, "n": i}
			}
		}
		body, err := json.Marshal(map[string]any{"detectors": list})
		require.NoError(t, err)
		got, err := collect(func(add addEntry) error { return parseJSON(body, fields{code: "code"}, add) })
		require.NoError(t, err)
		require.Equal(t, codes, got)
	})
}

// TestParseJSONUsesLittleMemory checks that no more than the text is in memory while a list of many
// small entries is read.
func TestParseJSONUsesLittleMemory(t *testing.T) {
	f := func(before, after string) {
		t.Helper()
		const entries = 500_000
		body := []byte(before + strings.Repeat(`"",`, entries-1) + `""` + after)
		live := func() int64 {
			var m runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&m)
			return int64(m.HeapAlloc)
		}
		n, start, end := 0, live(), int64(0)
		require.NoError(t, parseJSON(body, fields{}, func(int, string, string, ...batch.Attribute) {
			if n++; n == entries {
				end = live()
			}
		}))
		require.Equal(t, entries, n)
		require.Less(t, end-start, int64(len(body)))
	}
	f("[", "]")
	f(`{"detectors":[`, "]}")
}

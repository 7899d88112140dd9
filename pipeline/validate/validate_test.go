package validate

import (
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"trafficd/pipeline/batch"
	"trafficd/pipeline/decode"
	"trafficd/schemas/contract"
)

var now = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

func set(codes ...string) *batch.Detectors {
	d, _ := batch.NewDetectors(codes)
	return d
}

func decoded(t testing.TB, items ...string) *batch.Items {
	it := new(batch.Items)
	cfg := decode.DefaultConfig()
	cfg.BatchLimit = 1000
	body := append([]byte(`{"measurements":[`+strings.Join(items, ",")+`]}`), make([]byte, decode.Padding)...)
	require.NoError(t, decode.New(cfg).Decode(source(body[:len(body)-decode.Padding]), it))
	return it
}

// source is a whole text.
type source []byte

func (s source) Next(int) ([]byte, error) { return s, io.EOF }

// TestRuleOrder breaks the rules from the last to the first, one more at a time: the first broken
// rule is reported.
func TestRuleOrder(t *testing.T) {
	lo, hi := 0.0, 100.0
	v := New(Config{MeasureTypes: []MeasureType{{Code: "speed", Min: &lo, Max: &hi}, {Code: "flow"}}, FutureTolerance: time.Hour, QualityMin: &lo, QualityMax: &lo})
	members := []string{`"detectorCode":"A"`, `"measureTypeCode":"speed"`, `"timestampFrom":"2026-01-01T00:00Z"`, `"timestampTo":"2026-01-01T00:05Z"`, `"value":7`, `"quality":0`}
	check := func() (string, string) {
		var out batch.Rejections
		v.Validate(decoded(t, "{"+strings.Join(members, ",")+"}"), set("A"), now.UnixNano(), false, &out)
		if out.Len() == 0 {
			return "", ""
		}
		require.Equal(t, 1, out.Len())
		return out.List[0].Code.String(), out.List[0].Field.String()
	}
	code, field := check()
	require.Empty(t, code+field)
	f := func(member int, text, wantCode, wantField string) {
		t.Helper()
		if member == len(members) {
			members = append(members, "")
		}
		members[member] = text
		code, field := check()
		require.Equal(t, wantCode+" "+wantField, code+" "+field)
	}
	f(5, `"quality":1`, "INVALID_QUALITY", "quality")
	f(4, `"value":100.5`, "INVALID_VALUE", "value")
	f(3, `"timestampTo":"2026-06-01T13:00:00.000000001Z"`, "TIMESTAMP_IN_FUTURE", "timestampTo")
	f(2, `"timestampFrom":"2026-06-01T13:00:00.000000002Z"`, "INVALID_INTERVAL", "timestampTo")
	f(3, `"timestampTo":"never"`, "INVALID_TIMESTAMP", "timestampTo")
	f(2, `"timestampFrom":"always"`, "INVALID_TIMESTAMP", "timestampFrom")
	f(1, `"measureTypeCode":"tempo"`, "UNKNOWN_MEASURE_TYPE", "measureTypeCode")
	f(0, `"detectorCode":"B"`, "UNKNOWN_DETECTOR", "detectorCode")
	f(5, `"quality":"1"`, "INVALID_TYPE", "quality")
	f(4, `"value":"1"`, "INVALID_TYPE", "value")
	f(2, `"timestampFrom":1`, "INVALID_TYPE", "timestampFrom")
	f(3, `"timestampTo":null`, "MISSING_FIELD", "timestampTo")
	f(1, `"measureTypeCode":null`, "MISSING_FIELD", "measureTypeCode")
	f(6, `"linkId":0`, "RESERVED_FIELD", "linkId")
	f(7, `"linkId":null`, "DUPLICATE_FIELD", "linkId")
	f(8, `"value":null`, "DUPLICATE_FIELD", "value")
	members = []string{`"x":1`}
	require.NotPanics(t, func() { check() })
}

func TestBounds(t *testing.T) {
	v := New(DefaultConfig())
	f := func(item, want string) {
		t.Helper()
		var out batch.Rejections
		v.Validate(decoded(t, item), set("A", strings.Repeat("b", 256)), now.UnixNano(), false, &out)
		got := ""
		for _, x := range out.List {
			got = x.Code.String()
		}
		require.Equal(t, want, got, item)
	}
	item := func(code, kind, from, to, value string) string {
		return fmt.Sprintf(`{"detectorCode":%q,"measureTypeCode":%q,"timestampFrom":%q,"timestampTo":%q,"value":%s}`, code, kind, from, to, value)
	}
	const at = "2026-06-01T13:00:00Z"
	f(item("A", "s", at, at, "1"), "")
	f(item(strings.Repeat("b", 256), "s", at, at, "1"), "")
	f(item(strings.Repeat("b", 257), "s", at, at, "1"), "UNKNOWN_DETECTOR")
	f(item("A", "s", at, "2026-06-01T13:00:00.000000001Z", "1"), "TIMESTAMP_IN_FUTURE")
	f(item("A", strings.Repeat("x", 64), at, at, "1"), "")
	f(item("A", strings.Repeat("x", 65), at, at, "1"), "UNKNOWN_MEASURE_TYPE")
	f(item("A", "", at, at, "1"), "UNKNOWN_MEASURE_TYPE")
	f(item("A", "A-z_0.9", at, at, "1.7976931348623157e308"), "")
	f(item("A", "s", at, at, "1.8e308"), "INVALID_VALUE")
	f(item("A", "s p", at, at, "1"), "UNKNOWN_MEASURE_TYPE")
}

func TestItemsBeyondBatchLimitAreRejected(t *testing.T) {
	items := make([]string, 1003)
	for i := range items {
		items[i] = "{}"
	}
	var out batch.Rejections
	New(DefaultConfig()).Validate(decoded(t, items...), set(), now.UnixNano(), false, &out)
	require.Equal(t, 1003, out.Len())
	for i, x := range out.List {
		want := contract.MissingField
		if i >= 1000 {
			want = contract.BatchLimitExceeded
		}
		require.Equal(t, want, x.Code)
		require.Equal(t, uint32(i), x.Index)
	}
}

func TestFollowerAgreesWithDetectors(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	code := func() string { return strings.Repeat("D", r.IntN(2)*r.IntN(20)) + fmt.Sprint(r.IntN(40)) }
	var f follower
	for range 200 {
		var codes []string
		for range r.IntN(30) {
			codes = append(codes, code())
		}
		known := set(codes...)
		f.use(known)
		var c batch.Columns
		for range 300 {
			c.Codes = append(c.Codes, code()...)
			c.CodeEnd = append(c.CodeEnd, uint32(len(c.Codes)))
		}
		for row, ord := range f.find(&c, nil) {
			if known.Has(c.Code(row)) {
				require.Equal(t, c.Code(row), known.Code(int(ord)))
			} else {
				require.EqualValues(t, unknown, ord)
			}
		}
	}
}

// TestDetails checks what the rejections say about the accepted values.
func TestDetails(t *testing.T) {
	zero, hundred := 0.0, 100.0
	cfg := Config{QualityMax: &hundred, MeasureTypes: []MeasureType{{Code: "speed", Min: &zero, Max: &hundred}, {Code: "flow", Min: &zero}, {Code: "any"}}}
	v := New(cfg)
	f := func(kind, value, quality, want string) {
		t.Helper()
		var out batch.Rejections
		v.Validate(decoded(t, fmt.Sprintf(`{"detectorCode":"A","measureTypeCode":%q,"timestampFrom":"2026-01-01T00:00Z","timestampTo":"2026-01-01T00:00Z",`+
			`"value":%s,"quality":%s}`, kind, value, quality)), set("A"), now.UnixNano(), false, &out)
		require.Equal(t, want, string(out.Detail(out.List[0])))
	}
	f("speed", "-1", "1", "-1\xff from 0 to 100")
	f("flow", "-1.5", "1", "-1.5\xff of 0 or more")
	f("any", "1e999", "1", "+Inf")
	f("any", "1", "100.5", "100.5\xff of 100 or less")
	f("tempo", "1", "1", "tempo")

	require.Equal(t, "use 1 to 64 characters A-Za-z0-9_.-", DefaultConfig().Allowed().MeasureTypes)
	require.Equal(t, "allowed are speed, flow, any", cfg.Allowed().MeasureTypes)
	for range 4 {
		cfg.MeasureTypes = append(cfg.MeasureTypes, MeasureType{Code: "x"})
	}
	require.Equal(t, "allowed are speed, flow, any, x, x and 2 others", cfg.Allowed().MeasureTypes)
}

// TestPrefixes checks that the entry with the code has priority, then the one with the longest
// beginning.
func TestPrefixes(t *testing.T) {
	bound := func(v float64) *float64 { return &v }
	cfg := Config{MeasureTypes: []MeasureType{
		{Code: "s*", Max: bound(1), Unit: "a"}, {Code: "speed*", Max: bound(2), Unit: "b"}, {Code: "speed.lane1", Max: bound(3), Unit: "c"}, {Code: "flow", Unit: "d"},
	}}
	require.NoError(t, cfg.Validate())
	v, units := New(cfg), cfg.Units()
	f := func(kind string, want float64, unit string) {
		t.Helper()
		require.Equal(t, unit, units(kind), kind)
		for value := range 5 {
			var out batch.Rejections
			v.Validate(decoded(t, fmt.Sprintf(`{"detectorCode":"A","measureTypeCode":%q,"timestampFrom":"2026-01-01T00:00Z","timestampTo":"2026-01-01T00:00Z","value":%d}`,
				kind, value)), set("A"), now.UnixNano(), false, &out)
			require.Equal(t, float64(value) > want, len(out.List) > 0, "%s %d", kind, value)
			if want < 0 {
				require.Equal(t, contract.UnknownMeasureType, out.List[0].Code)
			}
		}
	}
	f("s", 1, "a")
	f("spee", 1, "a")
	f("speed", 2, "b")
	f("speed.lane1", 3, "c")
	f("speed.lane11", 2, "b")
	f("flow", 9, "d")
	f("flow.lane1", -1, "")
	f("tempo", -1, "")
	cfg = Config{MeasureTypes: []MeasureType{{Code: "*", Max: bound(1), Unit: "x"}}}
	require.NoError(t, cfg.Validate())
	v, units = New(cfg), cfg.Units()
	f("anything", 1, "x")
	for _, kind := range []string{"s peed", strings.Repeat("s", 65)} { // not well formed, whatever the entries are
		var out batch.Rejections
		v.Validate(decoded(t, fmt.Sprintf(`{"detectorCode":"A","measureTypeCode":%q,"timestampFrom":"2026-01-01T00:00Z","timestampTo":"2026-01-01T00:00Z","value":1}`, kind)),
			set("A"), now.UnixNano(), false, &out)
		require.Equal(t, contract.UnknownMeasureType, out.List[0].Code)
	}
	require.Equal(t, "allowed are *", cfg.Allowed().MeasureTypes)
}

// TestSeen checks that rejections quote what was seen.
func TestSeen(t *testing.T) {
	v, known := New(DefaultConfig()), set("0815", "Nord-1", "0000004711")
	f := func(member, value, want string) {
		t.Helper()
		members := map[string]string{
			"detectorCode": `"0815"`, "measureTypeCode": `"speed"`, "timestampFrom": `"2026-01-01T00:00Z"`, "timestampTo": `"2026-01-01T00:05Z"`, "value": `1`,
		}
		members[member] = value
		item := []string{` {"vendor": {"value": "x\\\"}", "a": [1, "]"]}, "note" : null`}
		for name, value := range members {
			if value != "" {
				item = append(item, strconv.Quote(name)+" : "+value)
			}
		}
		if value == "" {
			item = append(item, `"`+strings.ToUpper(member)+`":"x"`)
		}
		var out batch.Rejections
		v.Validate(decoded(t, strings.Join(item, ",")+"}"), known, now.UnixNano(), false, &out)
		require.Equal(t, 1, out.Len(), item)
		allowed := DefaultConfig().Allowed()
		allowed.ProductInstance = "city"
		x := out.List[0]
		require.Equal(t, want, string(contract.AppendItemDescription(nil, x.Code, x.Field, out.Detail(x), &allowed)))
	}
	f("value", `"47,5"`, `value must be a number, not the string \"47,5\"`)
	f("value", `[ 1, {"a": 2} ]`, `value must be a number, not an array`)
	f("value", `false`, `value must be a number, not false`)
	f("value", `"`+strings.Repeat("v", 200)+`"`, `value must be a number, not the string \"`+strings.Repeat("v", 63)+`\"`)
	f("value", `"`+strings.Repeat("v", 3000)+`"`, `value must be a number`) // too long to be kept
	f("value", ``, `value is missing or null; the item has \"VALUE\" instead`)
	f("detectorCode", `815`, `detectorCode must be a string, not the number 815`)
	f("detectorCode", ``, `detectorCode is missing or null; the item has \"DETECTORCODE\" instead`)
	f("linkId", `"L1"`, `linkId is reserved; it must be null or absent, not the string \"L1\"`)
	f("quality", `{}`, `quality must be a number or null, not an object`)
	f("timestampTo", `"2025-12-31T23:00Z"`, `timestampTo is before timestampFrom: 2025-12-31T23:00:00Z < 2026-01-01T00:00:00Z`)
	f("timestampTo", `"2261-01-01T00:00:00.5Z"`,
		`timestampTo 2261-01-01T00:00:00.5Z is more than 1h0m0s after the daemon's time, which the header Date shows`)
	f("value", `-1e999`, `value -Inf is not a finite number`)
	const unknown = `detectorCode \"%s\" does not exist in product instance city; did you mean \"%s\"?`
	f("detectorCode", `"815"`, fmt.Sprintf(unknown, "815", "0815"))
	f("detectorCode", `"00815"`, fmt.Sprintf(unknown, "00815", "0815"))
	f("detectorCode", `"4711"`, fmt.Sprintf(unknown, "4711", "0000004711"))
	f("detectorCode", `"0815 "`, fmt.Sprintf(unknown, "0815 ", "0815"))
	f("detectorCode", `" 815"`, fmt.Sprintf(unknown, " 815", "0815"))
	f("detectorCode", `"B"`, `detectorCode \"B\" does not exist in product instance city`)
	f("detectorCode", `"`+strings.Repeat("D", 300)+`"`, `detectorCode \"`+strings.Repeat("D", 64)+`\" does not exist in product instance city`)
}

// TestHintsAreBounded checks that only the first unknown codes of a batch are looked up again.
func TestHintsAreBounded(t *testing.T) {
	v, items := New(DefaultConfig()), make([]string, maxHints+2)
	for i := range items {
		items[i] = fmt.Sprintf(`{"detectorCode":"%d","measureTypeCode":"s","timestampFrom":"2026-01-01T00:00Z","timestampTo":"2026-01-01T00:00Z","value":1}`, i)
	}
	items[maxHints+1] = items[7]
	var codes []string
	for i := range items {
		codes = append(codes, fmt.Sprintf("0%d", i))
	}
	for range 2 {
		var out batch.Rejections
		v.Validate(decoded(t, items...), set(codes...), now.UnixNano(), false, &out)
		require.Equal(t, "255\xff0255", string(out.Detail(out.List[maxHints-1])))
		require.Equal(t, "256", string(out.Detail(out.List[maxHints])))
		require.Equal(t, "7\xff07", string(out.Detail(out.List[maxHints+1])))
	}
}

func TestConfigErrorsNameTheSetting(t *testing.T) {
	one, two := 1.0, 2.0
	f := func(want string, c Config) {
		t.Helper()
		require.ErrorContains(t, c.Validate(), want)
	}
	f("future_tolerance", Config{FutureTolerance: -1})
	f("quality_min", Config{QualityMin: &two, QualityMax: &one})
	f("measure_types[0].code", Config{MeasureTypes: []MeasureType{{Code: "a b"}}})
	f(`measure_types[0].unit is "km\n/h"`, Config{MeasureTypes: []MeasureType{{Code: "a", Unit: "km\n/h"}}})
	f("measure_types[0].code", Config{MeasureTypes: []MeasureType{{Code: "sp*d"}}})
	f("measure_types[0].code", Config{MeasureTypes: []MeasureType{{Code: "s**"}}})
	f("measure_types[1].code", Config{MeasureTypes: []MeasureType{{Code: "a"}, {Code: "a"}}})
	f("measure_types[0] (a)", Config{MeasureTypes: []MeasureType{{Code: "a", Min: &two, Max: &one}}})
}

func TestValidateDoesNotAllocate(t *testing.T) {
	v, known := New(DefaultConfig()), set("A")
	it := decoded(t, `{"detectorCode":"A","measureTypeCode":"s","timestampFrom":"2026-01-01T00:00Z","timestampTo":"2026-01-01T00:00Z","value":1}`, `{}`, `3`)
	var out batch.Rejections
	require.Zero(t, testing.AllocsPerRun(100, func() {
		out.Reset()
		v.Validate(it, known, now.UnixNano(), false, &out)
	}))
	require.Equal(t, 2, out.Len())
}

func BenchmarkLookup(b *testing.B) {
	var codes []string
	var c batch.Columns
	for i := range 14_000 {
		codes = append(codes, fmt.Sprintf("DET-%06d", 7*i))
		c.Codes = append(c.Codes, codes[i]...)
		c.CodeEnd = append(c.CodeEnd, uint32(len(c.Codes)))
	}
	known := set(codes...)
	b.Run("table", func(b *testing.B) {
		for b.Loop() {
			for row := range codes {
				if !known.Has(c.Code(row)) {
					b.Fatal("not found")
				}
			}
		}
	})
	b.Run("follow", func(b *testing.B) {
		var f follower
		f.use(known)
		var ordinals []uint32
		for b.Loop() {
			if ordinals = f.find(&c, ordinals[:0]); ordinals[len(codes)-1] != uint32(len(codes)-1) {
				b.Fatal("not found")
			}
		}
	})
}

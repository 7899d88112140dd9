package feed

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func item(detector, kind, from, to, rest string) string {
	return `{"detectorCode":"` + detector + `","measureTypeCode":"` + kind + `","timestampFrom":"` + from + `","timestampTo":"` + to + `","value":` + rest + `}`
}

// TestMapping checks that each setting of the mapping works for a CSV row and for the same row as
// a JSON object.
func TestMapping(t *testing.T) {
	f := func(change func(*Mapping), csv, json string, want ...string) {
		t.Helper()
		require.Equal(t, want, readValid(t, configFor(CSV, mapped(change)), csv).items)
		require.Equal(t, want, readValid(t, configFor(NDJSON, mapped(change)), json).items)
	}
	const t0, t1 = "2026-11-01T07:50:00Z", "2026-11-01T07:55:00Z"
	f(func(m *Mapping) {
		m.Detector, m.Type, m.From, m.To, m.Value, m.Quality = "id", "kind", "a", "b", "v", "q"
	},
		"q,v,b,a,kind,id\n0.5,-1.5e3,"+t1+","+t0+",speed, D 1 \n",
		`{"id":"D 1","kind":"speed","a":"`+t0+`","b":"`+t1+`","v":-1.5e3,"q":0.5}`,
		item("D 1", "speed", t0, t1, `-1.5e3,"quality":0.5`))
	f(func(m *Mapping) { m.Type, m.To, m.Interval = "=flow", "", 5*time.Minute },
		"detectorCode,timestampFrom,value\n7,2026-11-01 07:50,3\n",
		`{"detectorCode":7,"timestampFrom":"2026-11-01 07:50","value":"3"}`,
		item("7", "flow", t0, t1, "3"))
	f(func(m *Mapping) { m.Melt = []Melt{{"kmh", "speed"}, {"n", "flow"}, {"none", "occupancy"}} },
		"detectorCode,timestampFrom,timestampTo,kmh,n,none\n\"a\"\"ü,\","+t0+","+t1+",50,4,\n",
		`{"detectorCode":"a\"ü,","timestampFrom":"`+t0+`","timestampTo":"`+t1+`","kmh":50,"n":4,"none":null}`,
		item(`a\"ü,`, "speed", t0, t1, "50"), item(`a\"ü,`, "flow", t0, t1, "4"))
	f(func(m *Mapping) { m.Decimal = ',' },
		"detectorCode,measureTypeCode,timestampFrom,timestampTo,value\nD,speed,"+t0+","+t1+`,"1,5"`,
		`{"detectorCode":"D","measureTypeCode":"speed","timestampFrom":"`+t0+`","timestampTo":"`+t1+`","value":"1,5"}`,
		item("D", "speed", t0, t1, "1.5"))
	f(func(m *Mapping) { m.Decimal = ',' }, // JSON numbers have points
		"detectorCode,measureTypeCode,timestampFrom,timestampTo,value,quality\nD,speed,"+t0+","+t1+`,"50,25","0,5"`,
		`{"detectorCode":"D","measureTypeCode":"speed","timestampFrom":"`+t0+`","timestampTo":"`+t1+`","value":50.25,"quality":0.5}`,
		item("D", "speed", t0, t1, `50.25,"quality":0.5`))
	f(func(m *Mapping) { m.Clock.Layout = "02.01.2006 15:04" },
		"detectorCode,measureTypeCode,timestampFrom,timestampTo,value\nD,speed,01.11.2026 07:50,01.11.2026 07:55,1",
		`{"detectorCode":"D","measureTypeCode":"speed","timestampFrom":"01.11.2026 07:50","timestampTo":"01.11.2026 07:55","value":1}`,
		item("D", "speed", t0, t1, "1"))
}

// TestShift checks that rows that a shift moves into the future are skipped.
func TestShift(t *testing.T) {
	const header = "detectorCode,measureTypeCode,timestampFrom,timestampTo,value\n"
	cfg := configFor(CSV, mapped(func(m *Mapping) { m.Clock.Shift = 24 * time.Hour }))
	r := readValid(t, cfg, header+"D,speed,2020-02-28T07:50,2020-02-28T07:55,1\nD,speed,2999-01-01T00:00,2999-01-01T00:05,2\n"+
		"D,speed,2020-02-29T07:50,2020-02-29T07:55,3\n")
	require.Equal(t, []string{
		item("D", "speed", "2020-02-29T07:50:00Z", "2020-02-29T07:55:00Z", "1"), item("D", "speed", "2020-03-01T07:50:00Z", "2020-03-01T07:55:00Z", "3"),
	}, r.items)
}

func TestMissingColumn(t *testing.T) {
	f := func(header, missing string, change func(*Mapping)) {
		t.Helper()
		r := readAll(t, configFor(CSV, mapped(change)), header+"\n")
		require.ErrorContains(t, r.err, `no column "`+missing+`"`)
		require.ErrorContains(t, r.err, "detectorCode", "the error lists the existing columns")
	}
	const header = "detectorCode,measureTypeCode,timestampFrom,timestampTo,value"
	f(header, "id", func(m *Mapping) { m.Detector = "id" })
	f(header, "q", func(m *Mapping) { m.Quality, m.QualityOptional = "q", false })
	f(header, "kmh", func(m *Mapping) { m.Melt = []Melt{{"kmh", "speed"}} })
	f(strings.ReplaceAll(header, ",", ";"), "id", func(m *Mapping) { m.Detector = "id" })
}

// TestUnreadableHeader checks that the error for a file that is not the expected CSV says what to
// do.
func TestUnreadableHeader(t *testing.T) {
	f := func(text, want string) {
		t.Helper()
		require.ErrorContains(t, readAll(t, configFor(CSV, nil), text).err, want)
	}
	f(`[{"detectorCode":"D"}]`, "check --format and --separator")
	f("\xff\xfed\x00e\x00,\x00\n\x00", "iconv")
}

// TestFlagsOfCSV checks that settings that have no effect on JSON are errors.
func TestFlagsOfCSV(t *testing.T) {
	f := func(want string, change func(*Config)) {
		t.Helper()
		cfg := DefaultConfig()
		change(&cfg)
		require.ErrorContains(t, readAll(t, cfg, item1).err, want)
	}
	f("--columns requires CSV, not ndjson", func(c *Config) { c.Columns = []string{"detectorCode"} })
	f("--separator requires CSV, not ndjson", func(c *Config) { c.Separator = ';' })
}

// TestBadRows checks that a bad row is reported with its line, yields no measurement, and does not
// affect the rows around it.
func TestBadRows(t *testing.T) {
	const good = "D,2026-11-01T07:50:00Z,1,2\n"
	f := func(row, want string) {
		t.Helper()
		cfg := configFor(CSV, mapped(func(m *Mapping) {
			m.To, m.Interval, m.Melt = "", time.Minute, []Melt{{"a", "speed"}, {"b", "flow"}}
		}))
		r := readAll(t, cfg, "detectorCode,timestampFrom,a,b\n"+good+row+good)
		require.NoError(t, r.err)
		require.Len(t, r.items, 4)
		require.Len(t, r.bad, 1)
		require.Contains(t, r.bad[0], "line 3: ")
		require.Contains(t, r.bad[0], want)
	}
	f("D,2026-11-01T07:50:00Z,1\n", "number of columns 3, in the rows before 4")
	f("D,2026-11-01T07:50:00Z,1,2,3\n", "number of columns 5, in the rows before 4")
	f("D\"x,2026-11-01T07:50:00Z,1,2\n", `bare "`)
	f("D,2026-11-31T07:50:00Z,1,2\n", "column timestampFrom")
	f("D,yesterday,1,2\n", "yesterday")
	f("D,2026-11-01T07:50:00Z,1,two\n", `column b: "two" is not a number`)
	f("D,2026-11-01T07:50:00Z,NaN,2\n", "column a")
	f(",2026-11-01T07:50:00Z,1,2\n", "empty")
	f("S\xf8ft,2026-11-01T07:50:00Z,1,2\n", "UTF-8")
}

func TestBadJSONRows(t *testing.T) {
	f := func(format Format, bad, want string) {
		t.Helper()
		text := item1 + "\n" + bad + "\n" + item2 + "\n"
		if format == JSON {
			text = "[" + item1 + "," + bad + "," + item2 + "]"
		}
		r := readAll(t, configFor(format, nil), text)
		require.NoError(t, r.err)
		require.Equal(t, []string{item1, item2}, r.items)
		require.Len(t, r.bad, 1)
		require.Contains(t, r.bad[0], want)
	}
	f(NDJSON, `{"a":`, "line 2: invalid JSON")
	f(NDJSON, `{} {}`, "data follows")
	f(NDJSON, `{}]`, "data follows")
	for _, format := range []Format{JSON, NDJSON} {
		f(format, "{\"a\":\"\xff\"}", "UTF-8")
		f(format, `{"a":"\ud800"}`, "surrogate")
		f(format, `{"a":"\\\udc00"}`, "surrogate")
		f(format, `{"a":"\ud800\u0041"}`, "surrogate")
	}
}

// TestJSONPassesThrough checks that items that are valid JSON but not valid measurements are left
// for the daemon to reject.
func TestJSONPassesThrough(t *testing.T) {
	for _, text := range []string{
		`5`, `"text"`, `null`, `[]`, `{}`, `{"detectorCode":5}`, `{"value":1,"value":2}`,
		`{"linkId":"x", "detectorCode" : "D" }`, `{"a":"\ud83d\ude00\\ud800"}`, `{"value":1e999}`,
	} {
		for _, format := range []Format{JSON, NDJSON} {
			in := text
			if format == JSON {
				in = "[\n " + text + "\n]"
			}
			require.Equal(t, []string{text}, readValid(t, configFor(format, nil), in).items)
		}
	}
}

func TestBrokenDocument(t *testing.T) {
	f := func(text, want string) {
		t.Helper()
		require.ErrorContains(t, readAll(t, configFor(JSON, nil), text).err, want)
	}
	f(``, "--format")
	f(`5`, "--format")
	f(`{"a":1}`, `no member "measurements"`)
	f(item1+"\n"+item2, "no member")
	f(`[`+item1+`]x`, "follows")
	f(`[`+item1+`,`, "after item 1")
	f(`{"measurements":[`+item1+`]`, "cannot read")
	f(`{"measurements":null}`, `cannot read standard input: "[" expected`)
	f(`{"measurements":[{"detectorCode":`, "cannot read standard input: unexpected EOF")
	f(`[{"a":1},{"b":x}]`, "cannot read standard input: after item 1: unexpected byte 120 'x' at 14")
}

// TestMember checks that items are read from the member that Config.Member names.
func TestMember(t *testing.T) {
	cfg := configFor(NDJSON, nil)
	cfg.Member = "item"
	r := readAll(t, cfg, `{"index":3,"item": `+item1+` ,"error":{}}`+"\n"+`{"items":1}`+"\n"+`5`+"\n")
	require.Equal(t, []string{item1}, r.items)
	require.Len(t, r.bad, 2)
	require.Contains(t, r.bad[0], `no member "item"`)
	require.Equal(t, "line 3: not a JSON object; use a file written by trafficctl send --rejected", r.bad[1])
}

func TestAppendNumber(t *testing.T) {
	f := func(cell string, decimal byte, want string) {
		t.Helper()
		got, err := appendNumber(nil, cell, decimal)
		if want == "" {
			require.Error(t, err, cell)
			return
		}
		require.NoError(t, err, cell)
		require.Equal(t, want, string(got))
	}
	for _, same := range []string{"0", "-0", "7", "50.25", "-1.5e3", "1E+9", "1e-9", "1e999", "123456789012345678901234567890"} {
		f(same, '.', same)
	}
	f("+5", '.', "5")
	f(".5", '.', "0.5")
	f("5.", '.', "5")
	f("007", '.', "7")
	f("1,5", ',', "1.5")
	for _, bad := range []string{"1,5", "--1", "1e", "1e+", "NaN", "inf", "-Infinity", "5 km/h", "1_0", "٣"} {
		f(bad, '.', "")
	}
	f("1.000,5", ',', "")
	f("1.500", ',', "") // 1500
}

// TestMissingMemberStaysEmpty checks that a missing member is empty, even if the previous object
// had it.
func TestMissingMemberStaysEmpty(t *testing.T) {
	cfg := configFor(NDJSON, mapped(func(m *Mapping) { m.Detector = "loop" }))
	const times = `"timestampFrom":"2026-07-01T06:00:00Z","timestampTo":"2026-07-01T06:05:00Z"`
	r := readAll(t, cfg, `{"loop":"A","measureTypeCode":"speed",`+times+`,"value":1,"quality":0.5}`+"\n"+
		`{"loop":"B","measureTypeCode":"flow",`+times+`,"value":2}`+"\n"+
		`{"loop":"C","measureTypeCode":"flow",`+times+`}`+"\n"+
		`{"measureTypeCode":"flow",`+times+`,"value":4}`+"\n")
	require.NoError(t, r.err)
	require.Len(t, r.items, 2)
	require.Contains(t, r.items[0], `"quality":0.5`)
	require.NotContains(t, r.items[1], "quality")
	require.EqualValues(t, 1, r.empty)
	require.Len(t, r.bad, 1)
	require.Contains(t, r.bad[0], "the detector code is empty")
}

// TestJSONValueOfAnotherType checks that a value that is neither a number nor text is not omitted
// as if it were empty.
func TestJSONValueOfAnotherType(t *testing.T) {
	cfg := configFor(NDJSON, mapped(func(m *Mapping) { m.Detector = "loop" }))
	f := func(value string, bad int, empty int64) {
		t.Helper()
		r := readAll(t, cfg, `{"loop":"A","measureTypeCode":"speed","timestampFrom":"2026-07-01T06:00:00Z","timestampTo":"2026-07-01T06:05:00Z","value":`+
			value+`}`)
		require.NoError(t, r.err)
		require.Len(t, r.bad, bad)
		require.Equal(t, empty, r.empty)
	}
	f(`true`, 1, 0)
	f(`{"kmh": 5}`, 1, 0)
	f(`[5]`, 1, 0)
	f(`null`, 0, 1)
	f(`""`, 0, 1)
	f(` 5 `, 0, 0)
}

// TestWide checks that a wide table has a column per detector. The times are in the first column or
// in a named one.
// TestUnits checks that values are converted by measure type, and that vehicles need an interval.
func TestUnits(t *testing.T) {
	cfg := configFor(CSV, mapped(func(m *Mapping) {
		m.Units = map[string]string{"flow": "vehicles", "speed": "mph"}
		m.Type, m.Value, m.Melt = "", "", []Melt{{"n", "flow"}, {"v", "speed"}, {"o", "occupancy"}}
	}))
	const header = "detectorCode,timestampFrom,timestampTo,n,v,o\n"
	r := readValid(t, cfg, header+"a,2012-03-01T00:00:00Z,2012-03-01T00:05:00Z,12,31,7.50\n")
	require.Len(t, r.items, 3)
	for i, want := range []string{`"value":144}`, `"value":49.889664}`, `"value":7.50}`} {
		require.Contains(t, r.items[i], want)
	}
	bad := readAll(t, cfg, header+"a,2012-03-01T00:00:00Z,2012-03-01T00:00:00Z,12,31,7\n")
	require.Len(t, bad.bad, 1)
	require.Contains(t, bad.bad[0], "column n: vehicles need an interval")
}

func TestWide(t *testing.T) {
	wide := func(change func(*Mapping)) Config {
		return configFor(CSV, mapped(func(m *Mapping) {
			m.Wide, m.From, m.To, m.Type, m.Interval = true, "", "", "=speed", 5*time.Minute
			change(m)
		}))
	}
	item := func(detector, from, to, value string) string {
		return `{"detectorCode":"` + detector + `","measureTypeCode":"speed","timestampFrom":"2012-03-01T` + from + `Z","timestampTo":"2012-03-01T` + to + `Z","value":` + value + `}`
	}
	want := []string{
		item("773869", "00:00:00", "00:05:00", "64.375"), item("767541", "00:00:00", "00:05:00", "67.625"),
		item("773869", "00:05:00", "00:10:00", "62.5"),
	}
	f := func(cfg Config, text string) {
		t.Helper()
		r := readValid(t, cfg, text)
		require.Equal(t, want, r.items)
		require.EqualValues(t, 1, r.empty)
	}
	f(wide(func(*Mapping) {}), ",773869,767541\n2012-03-01 00:00:00,64.375,67.625\n2012-03-01 00:05:00,62.5,\n")
	f(wide(func(m *Mapping) { m.From = "at" }), "773869, at,767541\n64.375,2012-03-01 00:00:00,67.625\n62.5,2012-03-01 00:05:00,\n")

	bad := func(want string, cfg Config, text string) {
		t.Helper()
		require.ErrorContains(t, readAll(t, cfg, text).err, want)
	}
	bad("--interval", wide(func(m *Mapping) { m.Interval = 0 }), "")
	bad("--type", wide(func(m *Mapping) { m.Type = "kind" }), "")
	bad("unique detector code", wide(func(*Mapping) {}), "at,A,A\n")
	bad("no column \"at\"", wide(func(m *Mapping) { m.From = "at" }), "A,B\n")
	bad("contains no detector code", wide(func(*Mapping) {}), "at\n")
	cfg := wide(func(*Mapping) {})
	cfg.Format = NDJSON
	bad("--detectors-from-header requires CSV", cfg, "{}")
	r := readAll(t, wide(func(*Mapping) {}), ",A\n2012-03-01 00:00:00,fast\n")
	require.Len(t, r.bad, 1)
	require.Contains(t, r.bad[0], `column A: "fast" is not a number`)
}

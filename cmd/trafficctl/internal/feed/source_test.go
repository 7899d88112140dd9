package feed

import (
	"bufio"
	"bytes"
	"io"
	"os/exec"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"

	"trafficd/cmd/dev/needs"
)

const (
	csvText = "detectorCode,measureTypeCode,timestampFrom,timestampTo,value,quality\n" +
		"D1,speed,2026-11-01T07:50:00Z,2026-11-01T07:55:00Z,50,0.9\n" +
		"D2,flow,2026-11-01T07:50:00Z,2026-11-01T07:55:00Z,12,\n"
	item1 = `{"detectorCode":"D1","measureTypeCode":"speed","timestampFrom":"2026-11-01T07:50:00Z","timestampTo":"2026-11-01T07:55:00Z","value":50,"quality":0.9}`
	item2 = `{"detectorCode":"D2","measureTypeCode":"flow","timestampFrom":"2026-11-01T07:50:00Z","timestampTo":"2026-11-01T07:55:00Z","value":12}`
)

func pack(t testing.TB, kind, text string) string {
	var b bytes.Buffer
	var w io.WriteCloser = struct {
		io.Writer
		io.Closer
	}{&b, io.NopCloser(nil)}
	var err error
	switch kind {
	case "gzip":
		w = gzip.NewWriter(&b)
	case "xz":
		needs.Program(t, "xz")
		cmd := exec.Command("xz", "-c")
		cmd.Stdin, cmd.Stdout = strings.NewReader(text), &b
		require.NoError(t, cmd.Run())
		return b.String()
	case "zstd":
		w, err = zstd.NewWriter(&b)
	}
	require.NoError(t, err)
	_, err = io.WriteString(w, text)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return b.String()
}

// TestFormatsAndCompressions checks that all formats and compressions yield the same measurements,
// detected by the name of a file, by the content of a pipe, or set by flags.
func TestFormatsAndCompressions(t *testing.T) {
	texts := map[Format][]string{
		CSV:    {csvText, "\ufeff" + csvText, strings.ReplaceAll(csvText, "\n", "\r\n")},
		NDJSON: {item1 + "\n" + item2, "\n" + item1 + "\r\n\n  " + item2 + " \n"},
		JSON:   {"[" + item1 + " ,\n " + item2 + "]", `{"measurements":[` + item1 + "," + item2 + "]}\n"},
	}
	suffix := map[string]string{"none": "", "gzip": ".gz", "xz": ".xz", "zstd": ".zst"}
	for kind, end := range suffix {
		t.Run(kind, func(t *testing.T) {
			for format, variants := range texts {
				for _, text := range variants {
					f := func(cfg Config, stdin string) {
						t.Helper()
						r := readAll(t, cfg, stdin)
						require.NoError(t, r.err, "%s %s", format, kind)
						require.Empty(t, r.bad)
						require.Equal(t, []string{item1, item2}, r.items, "%s %s", format, kind)
					}
					packed := pack(t, kind, text)
					cfg := DefaultConfig()
					f(cfg, packed)
					cfg.Format = format
					f(cfg, packed)
					cfg = DefaultConfig()
					cfg.Path = writeFile(t, "input."+string(format)+end, packed)
					f(cfg, "")
				}
			}
		})
	}
}

// TestJSONByName checks that a member before "measurements" is found by name, not by sniffing.
func TestJSONByName(t *testing.T) {
	cfg := DefaultConfig()
	cfg.Path = writeFile(t, "input.json", `{"note":{"a":[1]},"measurements":[`+item1+`],"end":null}`)
	require.Equal(t, []string{item1}, readAll(t, cfg, "").items)
}

// TestTruncation checks that a compressed file that is truncated anywhere is an error.
func TestTruncation(t *testing.T) {
	text := "detectorCode\n" + strings.Repeat(csvText, 3)
	for kind, magic := range map[string]string{"gzip": magicGzip, "zstd": magicZstd, "xz": magicXZ} {
		t.Run(kind, func(t *testing.T) {
			packed := pack(t, kind, text)
			for n := len(magic); n < len(packed); n++ {
				cfg := DefaultConfig()
				cfg.Format = NDJSON
				require.Error(t, readAll(t, cfg, packed[:n]).err, "cut to %d of %d bytes", n, len(packed))
			}
		})
	}
}

// TestCloseEarly checks that a source may be closed early; goleak checks the goroutines of the
// decompression.
func TestCloseEarly(t *testing.T) {
	packed := pack(t, "xz", csvText+strings.Repeat("D1,speed,2026-11-01T07:50:00Z,2026-11-01T07:55:00Z,50,0.9\n", 100_000))
	source, err := Open(t.Context(), DefaultConfig(), strings.NewReader(packed))
	require.NoError(t, err)
	for item, err := range source.Items() {
		require.NoError(t, err)
		require.Equal(t, item1, string(item.JSON))
		break
	}
	require.NoError(t, source.Close())
}

func TestSniffFormat(t *testing.T) {
	f := func(start string, want Format) {
		t.Helper()
		format, err := DefaultConfig().formatOf(bufio.NewReader(strings.NewReader(start)))
		require.NoError(t, err)
		require.Equal(t, want, format)
	}
	f("", CSV)
	f("detectorCode,value\n", CSV)
	f(" \n[", JSON)
	f(`{ "measurements" : [`, JSON)
	f(`{"detectorCode":"a"}`, NDJSON)
	f(`{}`, NDJSON)
}

// TestRowTooLong checks that a row without an end is an error and takes bounded memory.
func TestRowTooLong(t *testing.T) {
	f := func(format Format, start string) {
		t.Helper()
		r := readAll(t, configFor(format, nil), start+strings.Repeat("x", 3*MaxRow))
		require.ErrorIs(t, r.err, errRowTooLong)
	}
	f(CSV, csvText+`"never closed`)
	f(CSV, csvText+"no line end")
	f(CSV, "header without an end")
	f(NDJSON, item1+"\n"+`{"a":"`)
	f(JSON, `[`+item1+`,{"a":"`)
}

func TestPlacesAndSkipRows(t *testing.T) {
	f := func(format Format, text string, line int64) {
		t.Helper()
		cfg := configFor(format, nil)
		cfg.SkipRows = 1
		r := readAll(t, cfg, text)
		require.Equal(t, []string{item2}, r.items)
		require.EqualValues(t, 2, r.positions[0].Row)
		require.Equal(t, line, r.positions[0].Line)
	}
	f(CSV, csvText, 3)
	f(NDJSON, item1+"\n\n"+item2, 3)
	f(JSON, "["+item1+","+item2+"]", 0)
}

func TestConfigValidate(t *testing.T) {
	f := func(name string, change func(*Config)) {
		t.Helper()
		cfg := DefaultConfig()
		require.NoError(t, cfg.Validate())
		change(&cfg)
		require.ErrorContains(t, cfg.Validate(), name)
	}
	f("--format", func(c *Config) { c.Format = "xml" })
	f("--separator", func(c *Config) { c.Separator = '"' })
	f("--skip-rows", func(c *Config) { c.SkipRows = -1 })
	f("missing input", func(c *Config) { c.Path = "" })
	m := func(name string, change func(*Mapping)) {
		t.Helper()
		f(name, func(c *Config) { c.Mapping = mapped(change) })
	}
	m("--detector", func(m *Mapping) { m.Detector = "" })
	m("--from", func(m *Mapping) { m.From = "" })
	m("--interval", func(m *Mapping) { m.Interval = -1 })
	m("--interval", func(m *Mapping) { m.To = "" })
	m("either --to or --interval", func(m *Mapping) { m.Interval = 1 })
	m("--type", func(m *Mapping) { m.Type = "=" })
	m("--value", func(m *Mapping) { m.Value = "" })
	m("--dst-overlap", func(m *Mapping) { m.Clock.Overlap = "both" })
	m("--time-layout", func(m *Mapping) { m.Clock.Layout = "dd.mm.yyyy" })
	m("--time-layout", func(m *Mapping) { m.Clock.Layout = "2006-01-02 15:04 MST" })
}

// TestLongFiles checks that the number of rows is not bounded, only their length.
func TestLongFiles(t *testing.T) {
	const rows = 20_000
	f := func(format Format, head, row, between, tail string) {
		t.Helper()
		text := head + strings.Repeat(row+between, rows-1) + row + tail
		require.Greater(t, len(text), 2*MaxRow)
		r := readAll(t, configFor(format, nil), text)
		require.NoError(t, r.err)
		require.Zero(t, len(r.bad), "%.200s", r.bad)
		require.Equal(t, rows, len(r.items))
	}
	object := item("D1", "speed", "2026-07-01T06:00:00Z", "2026-07-01T06:05:00Z", "50")
	f(CSV, "detectorCode,measureTypeCode,timestampFrom,timestampTo,value,note\n", "D1,speed,2026-07-01T06:00:00Z,2026-07-01T06:05:00Z,50,"+strings.Repeat("x", 50), "\n", "\n")
	f(NDJSON, "", object, "\n", "\n")
	f(JSON, "[", object, ",", "]")
	f(JSON, `{"measurements":[`, object, ",\n", "]}")
}

package feeds

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"trafficd/schemas/feeds/xmlstream"
)

// publication returns the recorded publication of the Netherlands, or one that looks like it.
func publication(b *testing.B) []byte {
	if packed, ok := recorded("ndw/trafficspeed.xml.gz"); ok {
		return unpack(b, packed)
	}
	var sites strings.Builder
	for i := range 5000 {
		sites.WriteString(strings.Replace(site(flowOf(1, veh0), flowOf(2, veh60), flowOf(3, veh0), speedOf(4, `numberOfInputValuesUsed="0"`, `<speed>-1</speed>`),
			speedOf(5, `numberOfInputValuesUsed="1" standardDeviation="10.5"`, kmh60)), `id="S"`, fmt.Sprintf(`id="PZH01_MST_%04d_00"`, i), 1))
	}
	return []byte(v2(sites.String()))
}

// BenchmarkTokenizer compares the tokenizer with encoding/xml, which reads the same text in each
// iteration. ns/op is the time of both; the other figures are per second of CPU.
func BenchmarkTokenizer(b *testing.B) {
	text := publication(b)
	var own, std time.Duration
	for b.Loop() {
		start := cpu(b)
		tokenize(b, text)
		own += cpu(b) - start
		start = cpu(b)
		for d := xml.NewDecoder(bytes.NewReader(text)); ; {
			if _, err := d.Token(); err != nil {
				require.Equal(b, io.EOF, err)
				break
			}
		}
		std += cpu(b) - start
	}
	megabytes := float64(len(text)) / 1e6 * float64(b.N)
	b.ReportMetric(megabytes/own.Seconds(), "MB/s")
	b.ReportMetric(megabytes/std.Seconds(), "encoding/xml-MB/s")
	b.ReportMetric(std.Seconds()/own.Seconds(), "times-as-fast")
}

// BenchmarkPublication reads the values of a publication. The tokenizer reads the same text in each
// iteration: it is the part that no parser can save.
func BenchmarkPublication(b *testing.B) {
	text := publication(b)
	format, _ := Lookup("ndw")
	var parse, tokens time.Duration
	values := 0
	b.ReportAllocs()
	for b.Loop() {
		start := cpu(b)
		summary, err := format.Parse(bytes.NewReader(text), format.Defaults, Sink{})
		require.NoError(b, err)
		parse += cpu(b) - start
		values += summary.Values
		start = cpu(b)
		tokenize(b, text)
		tokens += cpu(b) - start
	}
	b.ReportMetric(float64(len(text))/1e6*float64(b.N)/parse.Seconds(), "MB/s")
	b.ReportMetric(float64(values)/parse.Seconds(), "values/s")
	b.ReportMetric(parse.Seconds()/tokens.Seconds(), "times-tokenizer")
}

// cpu returns the CPU time of the process, which other processes on the machine hardly change.
func cpu(b *testing.B) time.Duration {
	var u unix.Rusage
	require.NoError(b, unix.Getrusage(unix.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func tokenize(b *testing.B, text []byte) {
	for r := xmlstream.NewReader(bytes.NewReader(text)); ; {
		if _, err := r.Next(); err != nil {
			require.Equal(b, io.EOF, err)
			return
		}
	}
}

// BenchmarkSiteTable reads a table of sites into memory.
func BenchmarkSiteTable(b *testing.B) {
	record := sample(b, "ndw-record.xml")
	record = strings.ReplaceAll(record, "xsi:type", "type")
	var records strings.Builder
	for i := range 2000 {
		records.WriteString(strings.Replace(record, "0629", fmt.Sprintf("%06d", i), 1))
	}
	text := []byte(v2("<measurementSiteTable>" + records.String() + "</measurementSiteTable>"))
	format, _ := Lookup("ndw")
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		sites := NewTable()
		_, err := format.Parse(bytes.NewReader(text), format.Defaults, Sink{Site: func(s *Site) error { sites.Add(s); return nil }})
		require.NoError(b, err)
		require.Equal(b, 2000, sites.Len())
	}
}

package xroute

import (
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestLexicalForms reads values of simple types in the forms that XML Schema allows.
func TestLexicalForms(t *testing.T) {
	f := func(want any, text string) {
		t.Helper()
		v := reflect.New(reflect.TypeOf(want)).Elem()
		require.NoError(t, model.byGo[v.Type()].simple.set(v, text))
		if x, ok := want.(float64); ok && math.IsNaN(x) {
			require.True(t, math.IsNaN(v.Float()))
			return
		}
		require.Equal(t, want, v.Interface())
	}
	f(1.5, "1.5")
	f(-1500.0, " -1.5E+3\n")
	f(0.5, ".5")
	f(5.0, "5.")
	f(math.Inf(1), "INF")
	f(math.Inf(-1), "-INF")
	f(math.NaN(), "NaN")
	f(float32(0.1), "0.1")
	f(true, "1")
	f(true, " true ")
	f(false, "0")
	f(false, "false")
	f(int32(2147483647), "2147483647")
	f(int32(-2147483648), "-2147483648")
	f(int32(7), "+007")
	f(int16(-32768), "-32768")
	f(int64(9223372036854775807), "9223372036854775807")
	f(" a\n", " a\n")
	f([]byte{}, "")
	f([]byte{}, " \n")
	f([]byte("hello"), "aGVs\r\n\tbG8 =")
	f(EncodingKML, " KML\n")
	day := time.Date(2026, 3, 1, 12, 30, 5, 0, time.UTC)
	f(day, "2026-03-01T12:30:05Z")
	f(day, " 2026-03-01T12:30:05\n")
	f(day, "2026-03-01T13:30:05+01:00")
	f(day, "2026-02-28T22:30:05-14:00")
	f(day.Add(250*time.Millisecond), "2026-03-01T12:30:05.250Z")
}

func TestInvalidForms(t *testing.T) {
	f := func(goType any, texts ...string) {
		t.Helper()
		for _, text := range texts {
			v := reflect.New(reflect.TypeOf(goType)).Elem()
			require.Error(t, model.byGo[v.Type()].simple.set(v, text), text)
		}
	}
	f(float64(0), "", "inf", "Infinity", "nan", "+NaN", "1_000", "0x10", "0x1p-2", "1,5", "1e999", "1e", "--1", "1 2", "١")
	f(float32(0), "1e39")
	f(false, "", "TRUE", "yes", "2", "t")
	f(int32(0), "", "2147483648", "-2147483649", "1.0", "1e3", "0x1", "1_0", "1 0")
	f(int16(0), "32768")
	f(int64(0), "9223372036854775808")
	f([]byte{}, "a", "aGVsbG8", "aGVsbG8=x", "aGVsbG9=", "aGVs*G8=")
	f(EncodingKML, "", "kml", "KML WKT")
	f(time.Time{}, "", "2026-03-01", "2026-03-01 12:30:05Z", "2026-03-01T12:30Z", "2026-03-01T1:30:05Z",
		"2026-02-30T12:30:05Z", "2026-03-01T25:00:00Z", "2026-03-01T12:30:60Z", "2026-03-01T12:30:05z", "26-03-01T12:30:05Z")
}

func TestEcho(t *testing.T) {
	f := func(text, want string) {
		t.Helper()
		require.Equal(t, want, echo(text))
	}
	f("", `""`)
	f("a\n\"b", `"a\n\"b"`)
	long := "0123456789012345678901234567890123456789012345678901234567890123"
	f(long, `"`+long+`"`)
	f(long+"4", `"`+long+`"`)
	f(long[:63]+"€", `"`+long[:63]+`"`)
}

func TestAppendText(t *testing.T) {
	f := func(text, want string) {
		t.Helper()
		require.Equal(t, want, string(appendText([]byte{'>'}, text)[1:]))
	}
	f("a<b>&\"c'", "a&lt;b&gt;&amp;&#34;c&#39;")
	f("\t\r\n", "&#x9;&#xD;&#xA;")
	f("ä€\U0001F6A6\uFFFD", "ä€\U0001F6A6\uFFFD")
	f("a\x00\x1F\uFFFE\uFFFF\xFFb", "a\uFFFD\uFFFD\uFFFD\uFFFD\uFFFDb")
}

package negotiate

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"
)

// HTTP dates: noon, and one second before and after it.
const atNoon, beforeNoon, afterNoon = "Sat, 31 Jan 2026 12:00:00 GMT", "Sat, 31 Jan 2026 11:59:59 GMT", "Sat, 31 Jan 2026 12:00:01 GMT"

var noon = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)

// get returns the header of a GET request. headers alternates between names and values.
func get(headers ...string) *fasthttp.RequestHeader {
	h := &fasthttp.RequestHeader{}
	h.SetMethod("GET")
	for i := 0; i < len(headers); i += 2 {
		h.Add(headers[i], headers[i+1])
	}
	return h
}

func TestUnmodified(t *testing.T) {
	f := func(want bool, headers ...string) {
		t.Helper()
		require.Equal(t, want, Unmodified(get(headers...), []byte(`"ab-g"`), noon), "%q", headers)
	}
	require.Equal(t, atNoon, noon.Format(http.TimeFormat))
	f(false)
	f(true, "If-None-Match", `"ab-g"`)
	f(true, "If-None-Match", `W/"ab-g"`)
	f(true, "If-None-Match", `"x", "y,z" ,W/"ab-g"`)
	f(true, "If-None-Match", `"x"`, "If-None-Match", `"ab-g"`)
	f(true, "If-None-Match", "*")
	f(true, "If-None-Match", `"ab-g-gzip"`) // Apache's suffix
	f(true, "If-None-Match", `"x-gzip", W/"ab-g-gzip"`)
	f(false, "If-None-Match", `"ab-gzip"`)
	f(false, "If-None-Match", `"ab-g-br"`)
	f(false, "If-None-Match", `"-gzip"`)
	f(false, "If-None-Match", `"ab"`)
	f(false, "If-None-Match", "ab-g")
	f(false, "If-None-Match", `"ab-g`)
	f(false, "If-None-Match", "")
	f(true, "If-Modified-Since", atNoon)
	f(true, "If-Modified-Since", afterNoon)
	f(false, "If-Modified-Since", beforeNoon)
	f(false, "If-None-Match", `"x"`, "If-Modified-Since", afterNoon) // the date is ignored
	require.False(t, Unmodified(get("If-Modified-Since", atNoon), []byte(`"a"`), time.Time{}), "the body has no modification time")
}

func TestPreconditionFailed(t *testing.T) {
	f := func(want bool, headers ...string) {
		t.Helper()
		require.Equal(t, want, PreconditionFailed(get(headers...), []byte(`"ab-g"`), noon), "%q", headers)
	}
	f(false)
	f(false, "If-Match", `"ab-g"`)
	f(false, "If-Match", `W/"ab-g", "x", "ab-g"`)
	f(false, "If-Match", `"x"`, "If-Match", `"ab-g"`)
	f(false, "If-Match", "*")
	f(true, "If-Match", `W/"ab-g"`) // a weak tag matches nothing
	f(true, "If-Match", `"ab"`)
	f(true, "If-Match", `"ab-g-gzip"`) // Apache's bytes are others
	f(true, "If-Match", "ab-g")
	f(true, "If-Match", "")
	f(false, "If-Unmodified-Since", atNoon)
	f(false, "If-Unmodified-Since", afterNoon)
	f(true, "If-Unmodified-Since", beforeNoon)
	f(false, "If-Match", `"ab-g"`, "If-Unmodified-Since", beforeNoon) // the date is ignored
	f(true, "If-Match", `"x"`, "If-Unmodified-Since", afterNoon)
}

// TestDateIn parses the three formats of RFC 9110, 5.6.7. The last two are obsolete.
func TestDateIn(t *testing.T) {
	f := func(want bool, lines ...string) {
		t.Helper()
		h := get()
		for _, line := range lines {
			h.Add("If-Modified-Since", line)
		}
		date, ok := dateIn(h, "If-Modified-Since")
		require.Equal(t, want, ok, "%q", lines)
		if want {
			require.True(t, date.Equal(time.Date(1994, 11, 6, 8, 49, 37, 0, time.UTC)), "%q: got %v", lines, date)
		}
	}
	f(true, "Sun, 06 Nov 1994 08:49:37 GMT")
	f(true, "Sunday, 06-Nov-94 08:49:37 GMT")
	f(true, "Sun Nov  6 08:49:37 1994")
	f(false)
	f(false, "")
	f(false, "yesterday")
	f(false, "1994-11-06T08:49:37Z")
	f(false, "Sun, 06 Nov 1994 08:49:37 +0100")
	f(false, "Sun, 06 Nov 1994 08:49:37 GMT", "Sun, 06 Nov 1994 08:49:37 GMT")
}

func TestRangeOf(t *testing.T) {
	const size = 10
	f := func(spec string, want ByteRange, ifRange ...string) {
		t.Helper()
		h := get("Range", spec)
		for _, tag := range ifRange {
			h.Set("If-Range", tag)
		}
		require.Equal(t, want, RangeOf(h, []byte(`"ab"`), size), "%q", spec)
	}
	f("bytes=0-0", ByteRange{From: 0, To: 1})
	f("bytes=2-5", ByteRange{From: 2, To: 6})
	f("bytes=2-", ByteRange{From: 2, To: size})
	f("bytes=2-99999", ByteRange{From: 2, To: size})
	f("Bytes=2-5", ByteRange{From: 2, To: 6})
	f("bytes=2-99999999999999999999", ByteRange{From: 2, To: size})
	f("bytes=-99999999999999999999", ByteRange{From: 0, To: size})
	require.True(t, RangeOf(get("Range", "bytes=99999999999999999999-"), nil, size).Unsatisfiable)
	f("bytes=-3", ByteRange{From: 7, To: size})
	f("bytes=-99", ByteRange{From: 0, To: size})
	f("bytes=9-", ByteRange{From: 9, To: size})
	f("bytes=10-", ByteRange{From: 10, To: size, Unsatisfiable: true})
	f("bytes=10-12", ByteRange{From: 10, To: size, Unsatisfiable: true})
	f("bytes=-0", ByteRange{From: size, To: size, Unsatisfiable: true})
	for _, ignored := range []string{"", "bytes=", "bytes=-", "bytes=5-2", "bytes=a-b", "bytes=1-2,4-5", "lines=1-2", "byteſ=1-2", "bytes=--1", "bytes=+1-", "bytes"} {
		f(ignored, WholeBody)
	}
	f("bytes=2-5", ByteRange{From: 2, To: 6}, `"ab"`)
	f("bytes=2-5", WholeBody, `W/"ab"`)
	f("bytes=2-5", WholeBody, `"cd"`)
	f("bytes=2-5", WholeBody, "Sat, 31 Jan 2026 12:00:00 GMT")
	head := get("Range", "bytes=2-5")
	head.SetMethod("HEAD")
	require.Equal(t, WholeBody, RangeOf(head, nil, size))
}

// FuzzRange checks that every range is within the body.
func FuzzRange(f *testing.F) {
	for _, s := range []string{"bytes=0-0", "bytes=-5", "bytes=3-", "bytes=1-2,3-4", "bytes=9-1"} {
		f.Add(s, 7)
	}
	f.Fuzz(func(t *testing.T, spec string, size int) {
		size &= 0xffff
		r := RangeOf(get("Range", spec), nil, size)
		if !r.Whole && !r.Unsatisfiable && (r.From < 0 || r.From >= r.To || r.To > size) {
			t.Fatalf("RangeOf(%q, %d) = %+v, want a range within the body", spec, size, r)
		}
	})
}

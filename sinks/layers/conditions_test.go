package layers

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestUnchanged(t *testing.T) {
	f := func(want bool, headers ...string) {
		t.Helper()
		h := requestWith("")
		for i := 0; i < len(headers); i += 2 {
			h.Add(headers[i], headers[i+1])
		}
		require.Equal(t, want, unchanged(h, []byte(`"ab-g"`), noon), "%q", headers)
	}
	const at, before, after = "Sat, 31 Jan 2026 12:00:00 GMT", "Sat, 31 Jan 2026 11:59:59 GMT", "Sat, 31 Jan 2026 12:00:01 GMT"
	require.Equal(t, at, noon.Format(time.RFC1123[:len(time.RFC1123)-3]+"GMT"))
	f(false)
	f(true, "If-None-Match", `"ab-g"`)
	f(true, "If-None-Match", `W/"ab-g"`)
	f(true, "If-None-Match", `"x", "y,z" ,W/"ab-g"`)
	f(true, "If-None-Match", `"x"`, "If-None-Match", `"ab-g"`)
	f(true, "If-None-Match", "*")
	f(false, "If-None-Match", `"ab"`)
	f(false, "If-None-Match", "ab-g")
	f(false, "If-None-Match", `"ab-g`)
	f(false, "If-None-Match", "")
	f(true, "If-Modified-Since", at)
	f(true, "If-Modified-Since", after)
	f(false, "If-Modified-Since", before)
	f(false, "If-Modified-Since", "yesterday")
	f(false, "If-None-Match", `"x"`, "If-Modified-Since", after) // the tag decides alone
}

func TestRangeOf(t *testing.T) {
	const size = 10
	f := func(spec string, want span, ifRange ...string) {
		t.Helper()
		h := requestWith("Range", spec)
		for _, tag := range ifRange {
			h.Set("If-Range", tag)
		}
		require.Equal(t, want, rangeOf(h, []byte(`"ab"`), size), "%q", spec)
	}
	f("bytes=0-0", span{from: 0, to: 1})
	f("bytes=2-5", span{from: 2, to: 6})
	f("bytes=2-", span{from: 2, to: size})
	f("bytes=2-99999", span{from: 2, to: size})
	f("bytes=-3", span{from: 7, to: size})
	f("bytes=-99", span{from: 0, to: size})
	f("bytes=9-", span{from: 9, to: size})
	f("bytes=10-", span{from: 10, to: size, beyond: true})
	f("bytes=10-12", span{from: 10, to: size, beyond: true})
	f("bytes=-0", span{from: size, to: size, beyond: true})
	for _, none := range []string{"", "bytes=", "bytes=-", "bytes=5-2", "bytes=a-b", "bytes=1-2,4-5", "lines=1-2", "bytes=--1", "bytes=99999999999999999999-"} {
		f(none, whole)
	}
	f("bytes=2-5", span{from: 2, to: 6}, `"ab"`)
	f("bytes=2-5", whole, `W/"ab"`)
	f("bytes=2-5", whole, `"cd"`)
	f("bytes=2-5", whole, "Sat, 31 Jan 2026 12:00:00 GMT")
	head := requestWith("Range", "bytes=2-5")
	head.SetMethod("HEAD")
	require.Equal(t, whole, rangeOf(head, nil, size))
}

// FuzzRange: whatever a client asks for lies within the body.
func FuzzRange(f *testing.F) {
	for _, s := range []string{"bytes=0-0", "bytes=-5", "bytes=3-", "bytes=1-2,3-4", "bytes=9-1"} {
		f.Add(s, 7)
	}
	f.Fuzz(func(t *testing.T, spec string, size int) {
		size &= 0xffff
		r := rangeOf(requestWith("Range", spec), nil, size)
		if !r.none && !r.beyond && (r.from < 0 || r.from >= r.to || r.to > size) {
			t.Fatalf("%q of %d bytes gives %+v", spec, size, r)
		}
	})
}

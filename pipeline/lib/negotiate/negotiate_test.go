package negotiate

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func lines(values ...string) (all [][]byte) {
	for _, v := range values {
		all = append(all, []byte(v))
	}
	return all
}

func TestCodingQuality(t *testing.T) {
	f := func(want Quality, accept ...string) {
		t.Helper()
		require.Equal(t, want, CodingQuality(lines(accept...), []byte("gzip")), "%q", accept)
		require.Equal(t, want > 0, AcceptsGzip(lines(accept...)), "%q", accept)
	}
	f(Unlisted)
	f(Unlisted, "")
	f(Unlisted, "identity, gzipped, agzip")
	f(1000, "gzip")
	f(1000, "GZip")
	f(1000, "x-gzip")
	f(1000, "br", "gzip")
	f(500, "deflate, gzip;q=0.5, br")
	f(1, "gzip ; Q=0.001")
	f(0, "gzip;q=0, *")
	f(0, "gzip;q=0, x-gzip")
	f(0, "gzip;x=1;q=0")
	f(0, `gzip;x="a;q=1,b";q=0`)
	f(700, `br;x="\",gzip;q=0", gzip;q=0.7`)
	f(0, "*;q=0")
	f(300, "br, *;q=0.3")
}

func TestApplicationQuality(t *testing.T) {
	f := func(want Quality, accept ...string) {
		t.Helper()
		require.Equal(t, want, ApplicationQuality(lines(accept...), []byte("application/json")), "%q", accept)
	}
	f(Unlisted)
	f(Unlisted, "text/html, application/jsons")
	f(1000, "Application/JSON; charset=utf-8")
	f(200, "*/*;q=0.1, application/*;q=0.3", "application/json;q=0.2")
	f(300, "*/*;q=0.1, Application/*;q=0.3")
	f(100, "*/*;q=0.1")
}

func TestQuality(t *testing.T) {
	f := func(parameters string, want Quality) {
		t.Helper()
		require.Equal(t, want, Element{Parameters: []byte(parameters)}.Quality(), "%q", parameters)
	}
	f("", 1000)
	f("charset=utf-8", 1000)
	f("q=1", 1000)
	f("q=1.000", 1000)
	f(" charset=utf-8 ; Q = 0.25 ", 250)
	f("q=0.", 0)
	f("q=0.7", 700)
	f("q=0.1234", 0)
	f("q=1.001", 0)
	f("q=2", 0)
	f("q=-1", 0)
	f("q=1e-3", 0)
	f("q=x", 0)
	f("q=", 0)
	f("q", 0)
}

func TestCountGzip(t *testing.T) {
	f := func(ignored string, wantTimes int, wantOther string, text ...string) {
		t.Helper()
		times, other := CountGzip(lines(text...), ignored)
		require.Equal(t, wantTimes, times, "%q", text)
		require.Equal(t, wantOther, string(other), "%q", text)
	}
	f("", 0, "")
	f("", 0, "", " , ")
	f("", 2, "", "GZIP", "x-gzip")
	f("", 1, "deflate", "gzip, deflate", "br")
	f("", 0, "Identity", "Identity")
	f("identity", 1, "br", "Identity, gzip", "br")
}

func TestAllocations(t *testing.T) {
	accept, encoding := lines("text/html, application/json;q=0.9, */*;q=0.8"), lines("deflate, br", `x;y="z,";q=0.5, *;q=0.1`)
	json, coding := []byte("application/json"), []byte("gzip")
	require.Zero(t, testing.AllocsPerRun(100, func() {
		if a, c := ApplicationQuality(accept, json), CodingQuality(encoding, coding); a != 900 || c != 100 {
			t.Errorf("got %d and %d, want 900 and 100", a, c)
		}
	}))
}

package layers

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"
)

// HTTP dates: noon, and one second before it.
const atNoon, beforeNoon = "Sat, 31 Jan 2026 12:00:00 GMT", "Sat, 31 Jan 2026 11:59:59 GMT"

// served returns a layer of n streets, built at noon.
func served(t testing.TB, n int) *Layer {
	l := prepared(DefaultConfig())
	replace(l, city(n, noon))
	rebuild(l, noon)
	return l
}

func TestHeaders(t *testing.T) {
	l := served(t, 100)
	f := func(accept, acceptEncoding, contentType, contentEncoding, acceptRanges string) {
		t.Helper()
		ctx, err := get(l, client("UTC"), "", "Accept", accept, "Accept-Encoding", acceptEncoding)
		require.NoError(t, err)
		require.Equal(t, 200, ctx.Response.StatusCode())
		require.Equal(t, contentType, header(ctx, "Content-Type"))
		require.Equal(t, contentEncoding, header(ctx, "Content-Encoding"))
		require.Equal(t, acceptRanges, header(ctx, "Accept-Ranges"))
		require.Equal(t, "private, no-cache", header(ctx, "Cache-Control"))
		require.Equal(t, "Authorization, Accept, Accept-Encoding", header(ctx, "Vary"))
		require.Equal(t, "Sat, 31 Jan 2026 12:00:00 GMT", header(ctx, "Last-Modified"))
		require.Regexp(t, `^"[0-9a-f]{16}(-j?g?)?"$`, header(ctx, "ETag"))
		age, err := strconv.Atoi(header(ctx, "Forecast-Age"))
		require.NoError(t, err)
		require.Positive(t, age)

		for _, condition := range []string{"If-None-Match", "If-Modified-Since"} {
			validator := map[string]string{"If-None-Match": header(ctx, "ETag"), "If-Modified-Since": header(ctx, "Last-Modified")}[condition]
			again, err := get(l, client("UTC"), "", "Accept", accept, "Accept-Encoding", acceptEncoding, condition, validator)
			require.NoError(t, err)
			require.Equal(t, 304, again.Response.StatusCode())
			require.Empty(t, again.Response.Body())
			for _, name := range []string{"ETag", "Last-Modified", "Cache-Control", "Vary"} {
				require.Equal(t, header(ctx, name), header(again, name))
			}
			require.NotEmpty(t, header(again, "Forecast-Age"))
		}
	}
	f("", "", "application/x-protobuf", "", "bytes")
	f("application/json", "", "application/json", "", "bytes")
	f("*/*", "gzip", "application/x-protobuf", "gzip", "")
	f("application/json", "gzip, zstd", "application/json", "gzip", "")
	f("application/json", "gzip;q=0.5, zstd", "application/json", "gzip", "")
	f("application/json", "zstd", "application/json", "", "bytes")
}

// TestLastModifiedIsNotLaterThanDate gets layers that were built a second ago, just now, and before
// the clock was set back. fasthttp formats Date once a second, so it may be a second old.
func TestLastModifiedIsNotLaterThanDate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := prepared(DefaultConfig())
		for i, after := range []time.Duration{-time.Second, 0, time.Minute} {
			l.Put(forecast(1, 1, time.Now().Truncate(time.Hour), 12, float64(i)))
			rebuild(l, time.Now().Add(after))
			ctx, err := get(l, client("UTC"), "")
			require.NoError(t, err)
			require.Equal(t, after >= 0, header(ctx, "Last-Modified") == "", after)
		}
	})
}

// TestLastModifiedIncreases changes the layer twice within a second, and after the clock is set
// back. A client that sends only a date must get each change.
func TestLastModifiedIncreases(t *testing.T) {
	l := served(t, 100)
	modified := atNoon
	for i, after := range []time.Duration{500 * time.Millisecond, -time.Minute, 0} {
		l.Put(forecast(1, 1, noon, 6, float64(i)))
		rebuild(l, noon.Add(after))
		ctx, err := get(l, client("UTC"), "", "If-Modified-Since", modified)
		require.NoError(t, err)
		require.Equal(t, 200, ctx.Response.StatusCode(), "change %d", i)
		modified = header(ctx, "Last-Modified")
	}
}

func TestEveryVariantHasItsOwnETag(t *testing.T) {
	l := served(t, 100)
	seen := map[string]string{}
	for _, query := range []string{"", "?horizon=0", "?horizon=15", "?horizon=30", "?horizon=45", "?horizon=60"} {
		for _, accept := range []string{"", "application/json"} {
			var plain []byte
			for _, encoding := range []string{"", "gzip"} {
				ctx, err := get(l, client("UTC"), query, "Accept", accept, "Accept-Encoding", encoding)
				require.NoError(t, err)
				etag, variant := header(ctx, "ETag"), query+" "+accept+" "+encoding
				require.Empty(t, seen[etag], variant)
				seen[etag] = variant
				unpacked := unpack(t, encoding, ctx.Response.Body())
				if plain == nil {
					plain = unpacked
				}
				require.Equal(t, string(plain), string(unpacked))
			}
		}
	}
}

func TestRanges(t *testing.T) {
	l := served(t, 100)
	full, err := get(l, client("UTC"), "")
	require.NoError(t, err)
	body := full.Response.Body()
	size := strconv.Itoa(len(body))

	ctx, _ := get(l, client("UTC"), "", "Range", "bytes=10-19", "If-Range", header(full, "ETag"))
	require.Equal(t, 206, ctx.Response.StatusCode())
	require.Equal(t, body[10:20], ctx.Response.Body())
	require.Equal(t, "bytes 10-19/"+size, header(ctx, "Content-Range"))
	require.Equal(t, header(full, "ETag"), header(ctx, "ETag"))

	ctx, _ = get(l, client("UTC"), "", "Range", "bytes="+size+"-")
	require.Equal(t, 416, ctx.Response.StatusCode())
	require.Equal(t, "bytes */"+size, header(ctx, "Content-Range"))
	require.Empty(t, ctx.Response.Body())

	ctx, _ = get(l, client("UTC"), "", "Range", "bytes=10-19", "Accept-Encoding", "gzip") // identity only
	require.Equal(t, 200, ctx.Response.StatusCode())
	require.Empty(t, header(ctx, "Content-Range"))
	require.Equal(t, body, unpack(t, "gzip", ctx.Response.Body()))

	ctx, _ = get(l, client("UTC"), "", "Range", "bytes=10-19", "If-None-Match", header(full, "ETag"))
	require.Equal(t, 304, ctx.Response.StatusCode())
}

func TestServeAllocatesNothing(t *testing.T) {
	l, c := served(t, 100), client("UTC")
	f := func(status int, headers ...string) {
		t.Helper()
		ctx := &fasthttp.RequestCtx{}
		allocs := testing.AllocsPerRun(100, func() {
			ctx.Request.Reset()
			ctx.Response.Reset()
			ctx.Request.SetRequestURI(Path + "?horizon=30")
			for i := 0; i < len(headers); i += 2 {
				ctx.Request.Header.Set(headers[i], headers[i+1])
			}
			if _, err := l.Handle(c, ctx); err != nil {
				panic(err)
			}
		})
		require.Zero(t, allocs, "%d %q", status, headers)
		require.Equal(t, status, ctx.Response.StatusCode())
	}
	f(200)
	f(200, "Accept", "application/json, */*;q=0.5", "Accept-Encoding", "gzip, deflate, br, zstd")
	f(206, "Range", "bytes=10-20")
	f(416, "Range", "bytes=99999999-")
	f(304, "If-None-Match", "*")
	f(304, "If-None-Match", `W/"x", *`)
	f(304, "If-Modified-Since", atNoon)
	f(304, "If-Match", "*", "If-Modified-Since", atNoon)
	f(412, "If-Match", `W/"x", "y"`)
	f(412, "If-Unmodified-Since", beforeNoon)
}

// TestOrderOfConditions checks that If-Match is evaluated before If-None-Match, and Range last (RFC
// 9110, 13.2.2).
func TestOrderOfConditions(t *testing.T) {
	l := served(t, 100)
	full, err := get(l, client("UTC"), "")
	require.NoError(t, err)
	etag := header(full, "ETag")
	f := func(status int, headers ...string) {
		t.Helper()
		ctx, err := get(l, client("UTC"), "", headers...)
		require.NoError(t, err)
		require.Equal(t, status, ctx.Response.StatusCode(), "%q", headers)
		require.Equal(t, etag, header(ctx, "ETag"))
		require.NotEmpty(t, header(ctx, "Forecast-Age"))
		if status >= 300 {
			require.Empty(t, ctx.Response.Body())
		}
	}
	f(200, "If-Match", etag, "If-Unmodified-Since", beforeNoon)
	f(206, "If-Match", etag, "Range", "bytes=0-9")
	f(206, "If-Unmodified-Since", atNoon, "Range", "bytes=0-9")
	f(304, "If-Match", etag, "If-None-Match", etag)
	f(304, "If-Unmodified-Since", atNoon, "If-Modified-Since", atNoon)
	f(412, "If-Match", `"x"`, "If-None-Match", etag)
	f(412, "If-Match", "W/"+etag, "Range", "bytes=0-9")
	f(412, "If-Unmodified-Since", beforeNoon, "If-None-Match", etag)
	f(412, "If-Unmodified-Since", beforeNoon, "Range", "bytes=99999999-")
	f(416, "If-Match", etag, "Range", "bytes=99999999-")
}

// TestServeCopiesNoBody checks that the body of a response shares memory with the built body.
func TestServeCopiesNoBody(t *testing.T) {
	l := served(t, 100)
	ctx, err := get(l, client("UTC"), "", "Accept-Encoding", "gzip")
	require.NoError(t, err)
	built := l.current.Load().zones["UTC"][0].body(protobuf, gzipped).segments[0]
	require.Same(t, &built[0], &ctx.Response.Body()[0])
}

func requestWith(name string, values ...string) *fasthttp.RequestHeader {
	h := &fasthttp.RequestHeader{}
	h.SetMethod("GET")
	for _, v := range values {
		h.Add(name, v)
	}
	return h
}

func TestChooseFormat(t *testing.T) {
	f := func(want format, accept ...string) {
		t.Helper()
		require.Equal(t, want, chooseFormat(requestWith("Accept", accept...)), "%q", accept)
	}
	f(protobuf)
	f(protobuf, "")
	f(protobuf, "*/*")
	f(protobuf, "application/x-protobuf")
	f(jsonText, "application/json")

	f(protobuf, "application/json, application/x-protobuf")
	f(protobuf, "application/json, text/plain, */*")
	f(jsonText, "application/json, */*;q=0.9")
	f(jsonText, "*/*;q=0.1", "application/json;q=0.2")
	f(protobuf, "application/json;q=0.2, application/*;q=0.3")
	f(jsonText, "application/x-protobuf;q=0, */*")
	f(protobuf, "application/json;q=0, text/html") // no 406, although neither is acceptable
	f(protobuf, "text/html")
}

func TestChooseEncoding(t *testing.T) {
	f := func(want encoding, accept ...string) {
		t.Helper()
		require.Equal(t, want, chooseEncoding(requestWith("Accept-Encoding", accept...)), "%q", accept)
	}
	f(identity)
	f(identity, "")
	f(gzipped, "gzip")
	f(gzipped, "x-gzip")
	f(gzipped, "gzip, deflate, br, zstd")
	f(gzipped, "gzip;q=0.9, zstd")
	f(identity, "zstd")
	f(identity, "*, gzip;q=0")
	f(gzipped, "*")
	f(identity, "*;q=0")
	f(identity, "identity;q=0") // no 406, although nothing is acceptable
	f(identity, "br")
	f(identity, "identity, gzip;q=0.5")
	f(gzipped, "identity;q=0.5, gzip;q=0.5")
	f(identity, "gzip;q=0")
}

package negotiate

import (
	"bytes"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/valyala/fasthttp"
)

// Serve responds with a body that has the given ETag, or with a 304 if the client already has it.
// The body is not copied and must not change.
func Serve(ctx *fasthttp.RequestCtx, etag, mediaType string, body func() []byte) {
	ctx.SetContentType(mediaType)
	if !SetETag(ctx, etag) {
		ctx.Response.SetBodyRaw(body())
	}
}

// SetETag sets the ETag of the response. If the client already has the body, it sets the status 304
// and returns true.
func SetETag(ctx *fasthttp.RequestCtx, etag string) (unmodified bool) {
	ctx.Response.Header.Set(fasthttp.HeaderETag, etag)
	if unmodified = Unmodified(&ctx.Request.Header, []byte(etag), time.Time{}); unmodified {
		ctx.SetStatusCode(fasthttp.StatusNotModified)
	}
	return unmodified
}

// PreconditionFailed reports whether If-Match or, if it is absent, If-Unmodified-Since does not
// match the body with this ETag and modification time (RFC 9110, 13.1).
func PreconditionFailed(h *fasthttp.RequestHeader, etag []byte, modified time.Time) bool {
	if lists := h.PeekAll(fasthttp.HeaderIfMatch); len(lists) > 0 {
		return !matches(lists, etag, strong)
	}
	since, ok := dateIn(h, fasthttp.HeaderIfUnmodifiedSince)
	return ok && modified.After(since)
}

// Unmodified reports whether the client already has the body with this ETag and modification time,
// according to If-None-Match or, if it is absent, If-Modified-Since.
func Unmodified(h *fasthttp.RequestHeader, etag []byte, modified time.Time) bool {
	if lists := h.PeekAll(fasthttp.HeaderIfNoneMatch); len(lists) > 0 {
		return matches(lists, etag, weak)
	}
	since, ok := dateIn(h, fasthttp.HeaderIfModifiedSince)
	return ok && !modified.IsZero() && !modified.After(since)
}

// dateIn returns the date in a header, in any of the three formats of RFC 9110, 5.6.7. ok is false
// if the header is missing, invalid or repeated.
func dateIn(h *fasthttp.RequestHeader, name string) (date time.Time, ok bool) {
	lines := h.PeekAll(name)
	if len(lines) != 1 {
		return date, false
	}
	date, err := fasthttp.ParseHTTPDate(lines[0]) // the preferred format, without an allocation
	if err != nil {
		date, err = http.ParseTime(string(lines[0]))
	}
	return date, err == nil
}

// Values for the parameter weakly of matches (RFC 9110, 8.8.3.2).
const (
	strong = false // a weak tag matches nothing
	weak   = true  // W/ is ignored
)

// matches reports whether one of the lists of entity tags contains etag or "*". The rest of a list
// after a syntax error is ignored.
func matches(lists [][]byte, etag []byte, weakly bool) bool {
	etag, etagIsWeak := bytes.CutPrefix(etag, weakPrefix)
	for _, list := range lists {
		for {
			list = bytes.TrimLeft(list, " \t,")
			if len(list) > 0 && list[0] == '*' {
				return true
			}
			tag, isWeak := bytes.CutPrefix(list, weakPrefix)
			if len(tag) == 0 || tag[0] != '"' {
				break
			}
			end := bytes.IndexByte(tag[1:], '"') + 2
			if end < 2 {
				break
			}
			if bytes.Equal(tag[:end], etag) && (weakly || !isWeak && !etagIsWeak) || weakly && isCompressed(tag[:end], etag) {
				return true
			}
			list = tag[end:]
		}
	}
	return false
}

// isCompressed reports whether tag is etag with the suffix that Apache adds when it compresses a
// body, and does not remove from the requests that it forwards.
func isCompressed(tag, etag []byte) bool {
	opaque, suffixed := bytes.CutSuffix(tag, gzipSuffix)
	return suffixed && len(etag) > 0 && bytes.Equal(opaque, etag[:len(etag)-1])
}

var (
	weakPrefix = []byte("W/")
	gzipSuffix = []byte(`-gzip"`)
	bytesUnit  = []byte("bytes")
)

// ByteRange is the requested part [from, to) of a body.
type ByteRange struct {
	Whole         bool // no range: the whole body
	Unsatisfiable bool // the response is a 416
	From, To      int
}

// WholeBody is the ByteRange of a request without a Range header.
var WholeBody = ByteRange{Whole: true}

// RangeOf returns the part of a body of size bytes that a GET requests (RFC 9110, 14.2). It is the
// whole body unless Range is a single byte range and If-Range, if present, is the strong tag of the
// body. A date in If-Range never matches, because a body may differ between replicas within the
// same second.
func RangeOf(h *fasthttp.RequestHeader, etag []byte, size int) ByteRange {
	unit, spec, ok := bytes.Cut(h.Peek(fasthttp.HeaderRange), []byte{'='})
	if !ok || len(unit) != len(bytesUnit) || !bytes.EqualFold(unit, bytesUnit) || !h.IsGet() { // EqualFold accepts a long s
		return WholeBody
	}
	if tag := h.Peek(fasthttp.HeaderIfRange); len(tag) > 0 && !bytes.Equal(tag, etag) {
		return WholeBody
	}
	first, last, ok := bytes.Cut(bytes.TrimSpace(spec), []byte{'-'})
	if !ok {
		return WholeBody
	}
	from, to := position(first), position(last)
	switch {
	case from == malformed || to == malformed, from == missing && to == missing, to != missing && from > to:
		return WholeBody
	case from == missing: // a suffix range: the last bytes
		return ByteRange{From: max(0, size-to), To: size, Unsatisfiable: to == 0 || size == 0}
	case to == missing:
		return ByteRange{From: from, To: size, Unsatisfiable: from >= size}
	}
	return ByteRange{From: from, To: min(to, size-1) + 1, Unsatisfiable: from >= size}
}

// Special results of position.
const (
	missing   = -1
	malformed = -2
)

// position parses the number before or after the hyphen of a byte range. It returns missing if
// there is none, and malformed if it is invalid. It clips numbers above any size of a body, because
// they are valid.
func position(text []byte) (n int) {
	if len(text) == 0 {
		return missing
	}
	for _, c := range text {
		if c < '0' || c > '9' {
			return malformed
		}
		n = min(n, math.MaxInt/100)*10 + int(c-'0')
	}
	return n
}

// AppendContentRange appends the value of Content-Range for a body of size bytes.
func (r ByteRange) AppendContentRange(dst []byte, size int) []byte {
	dst = append(dst, "bytes "...)
	if r.Unsatisfiable {
		dst = append(dst, '*')
	} else {
		dst = append(strconv.AppendInt(dst, int64(r.From), 10), '-')
		dst = strconv.AppendInt(dst, int64(r.To-1), 10)
	}
	return strconv.AppendInt(append(dst, '/'), int64(size), 10)
}

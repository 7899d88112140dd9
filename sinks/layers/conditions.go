package layers

import (
	"bytes"
	"net/http"
	"strconv"
	"time"

	"github.com/valyala/fasthttp"
)

// replaced tells whether the client asks for another body than this one (RFC 9110, 13.1): by
// If-Match or, only where that is missing, by If-Unmodified-Since.
func replaced(h *fasthttp.RequestHeader, etag []byte, modified time.Time) bool {
	if lists := h.PeekAll(fasthttp.HeaderIfMatch); len(lists) > 0 {
		return !named(lists, etag, strongly)
	}
	since, ok := dateIn(h, fasthttp.HeaderIfUnmodifiedSince)
	return ok && modified.After(since)
}

// unchanged tells whether the client has this body already: by If-None-Match or, only
// where that is missing, by If-Modified-Since.
func unchanged(h *fasthttp.RequestHeader, etag []byte, modified time.Time) bool {
	if lists := h.PeekAll(fasthttp.HeaderIfNoneMatch); len(lists) > 0 {
		return named(lists, etag, weakly)
	}
	since, ok := dateIn(h, fasthttp.HeaderIfModifiedSince)
	return ok && !modified.After(since)
}

// dateIn gives the date of a header, in any of the three forms of RFC 9110, 5.6.7. What is no date
// is passed over, and so is a header that stands twice.
func dateIn(h *fasthttp.RequestHeader, name string) (date time.Time, ok bool) {
	lines := h.PeekAll(name)
	if len(lines) != 1 {
		return date, false
	}
	date, err := fasthttp.ParseHTTPDate(lines[0]) // the usual form, without an allocation
	if err != nil {
		date, err = http.ParseTime(string(lines[0]))
	}
	return date, err == nil
}

// How entity tags are compared (RFC 9110, 8.8.3.2).
const (
	strongly = false // a weak one is like none
	weakly   = true  // W/ does not matter
)

func named(lists [][]byte, etag []byte, weakToo bool) bool {
	for _, list := range lists {
		if names(list, etag, weakToo) {
			return true
		}
	}
	return false
}

// names tells whether a list of entity tags has this one, or stands for all.
func names(list, etag []byte, weakToo bool) bool {
	for {
		list = bytes.TrimLeft(list, " \t,")
		if len(list) > 0 && list[0] == '*' {
			return true
		}
		tag, isWeak := bytes.CutPrefix(list, weak)
		if len(tag) == 0 || tag[0] != '"' {
			return false
		}
		end := bytes.IndexByte(tag[1:], '"') + 2
		if end < 2 {
			return false
		}
		if bytes.Equal(tag[:end], etag) && (weakToo || !isWeak) {
			return true
		}
		list = tag[end:]
	}
}

var (
	weak       = []byte("W/")
	bytesRange = []byte("bytes=")
	hyphen     = []byte{'-'}
)

// span is the part of a body that is asked for: [from, to).
type span struct {
	none     bool // the whole body
	beyond   bool // no byte of it is there: 416
	from, to int
}

var whole = span{none: true}

// rangeOf reads the Range of a GET for a body of size bytes (RFC 9110, 14.2). What is no
// single range of bytes is passed over, and so is a range of a body that is not
// the one at hand: If-Range has to name its tag. A date there never counts: two
// replicas may have built different layers in the same second.
func rangeOf(h *fasthttp.RequestHeader, etag []byte, size int) span {
	spec, ok := bytes.CutPrefix(h.Peek(fasthttp.HeaderRange), bytesRange)
	if !ok || !h.IsGet() {
		return whole
	}
	if tag := h.Peek(fasthttp.HeaderIfRange); len(tag) > 0 && !bytes.Equal(tag, etag) {
		return whole
	}
	first, last, ok := bytes.Cut(bytes.TrimSpace(spec), hyphen)
	if !ok {
		return whole
	}
	from, to := position(first), position(last)
	switch {
	case from == malformed || to == malformed, from == missing && to == missing, to != missing && from > to:
		return whole
	case from == missing: // the last bytes
		return span{from: max(0, size-to), to: size, beyond: to == 0 || size == 0}
	case to == missing:
		return span{from: from, to: size, beyond: from >= size}
	}
	return span{from: from, to: min(to, size-1) + 1, beyond: from >= size}
}

// What position gives beside a number.
const (
	missing   = -1
	malformed = -2
)

func position(text []byte) int {
	if len(text) == 0 {
		return missing
	}
	n, err := fasthttp.ParseUint(text)
	if err != nil {
		return malformed
	}
	return n
}

// append writes the Content-Range.
func (r span) append(dst []byte, size int) []byte {
	dst = append(dst, "bytes "...)
	if r.beyond {
		dst = append(dst, '*')
	} else {
		dst = append(strconv.AppendInt(dst, int64(r.from), 10), '-')
		dst = strconv.AppendInt(dst, int64(r.to-1), 10)
	}
	return strconv.AppendInt(append(dst, '/'), int64(size), 10)
}

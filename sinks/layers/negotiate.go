package layers

import (
	"bytes"

	"github.com/valyala/fasthttp"
)

// asked tells which of the headers that an answer depends on a request has. To go over its headers
// once costs less than to look for one of those, and most requests have few.
type asked struct{ format, encoding, condition, part bool }

func askedBy(h *fasthttp.RequestHeader) (a asked) {
	for name := range h.All() {
		switch string(name) {
		case fasthttp.HeaderAccept:
			a.format = true
		case fasthttp.HeaderAcceptEncoding:
			a.encoding = true
		case fasthttp.HeaderIfMatch, fasthttp.HeaderIfNoneMatch, fasthttp.HeaderIfModifiedSince, fasthttp.HeaderIfUnmodifiedSince:
			a.condition = true
		case fasthttp.HeaderRange:
			a.part = true
		}
	}
	return a
}

// quality is a q-value in thousandths; unsaid where the header does not say.
type quality int

const unsaid quality = -1

// chooseFormat follows Accept: JSON where it is wanted more than protobuf. Where neither
// is wanted it is protobuf: a 406 helps nobody.
func chooseFormat(h *fasthttp.RequestHeader) format {
	lines := h.PeekAll(fasthttp.HeaderAccept)
	if len(lines) == 0 {
		return protobuf
	}
	var q [formats]quality
	for f, mediaType := range mediaTypes {
		for _, name := range [...][]byte{mediaType, anyApplication, anyType} {
			if q[f] = weight(lines, name); q[f] != unsaid {
				break // the most particular name counts
			}
		}
	}
	if q[jsonText] > max(q[protobuf], 0) {
		return jsonText
	}
	return protobuf
}

var (
	anyApplication = []byte("application/*")
	anyType        = []byte("*/*")
	anyEncoding    = []byte("*")
	xGzip          = []byte("x-gzip")
)

// chooseEncoding follows Accept-Encoding. Identity stands behind all that are
// named; where nothing is acceptable it is sent nevertheless.
func chooseEncoding(h *fasthttp.RequestHeader) encoding {
	lines := h.PeekAll(fasthttp.HeaderAcceptEncoding)
	if len(lines) == 0 {
		return identity
	}
	best, bestQ := identity, max(weight(lines, encodingNames[identity]), 0)
	for e := gzipped; e < encodings; e++ {
		q := weight(lines, encodingNames[e])
		if q == unsaid && e == gzipped {
			q = weight(lines, xGzip)
		}
		if q == unsaid {
			q = weight(lines, anyEncoding)
		}
		if q > 0 && q >= bestQ {
			best, bestQ = e, q
		}
	}
	return best
}

// weight finds the q-value of a name in the lines of a header.
func weight(lines [][]byte, name []byte) quality {
	for _, line := range lines {
		for len(line) > 0 {
			var item []byte
			item, line, _ = bytes.Cut(line, comma)
			value, params, _ := bytes.Cut(item, semicolon)
			if bytes.EqualFold(bytes.TrimSpace(value), name) {
				return qOf(params)
			}
		}
	}
	return unsaid
}

var (
	comma     = []byte{','}
	semicolon = []byte{';'}
	equals    = []byte{'='}
)

// qOf reads the parameter q: 0 to 1 with up to three decimals; 1 where there is none,
// 0 where it cannot be read.
func qOf(params []byte) quality {
	for len(params) > 0 {
		var param []byte
		param, params, _ = bytes.Cut(params, semicolon)
		name, value, _ := bytes.Cut(param, equals)
		if name = bytes.TrimSpace(name); len(name) == 1 && name[0]|0x20 == 'q' {
			return thousandths(bytes.TrimSpace(value))
		}
	}
	return 1000
}

func thousandths(text []byte) quality {
	if len(text) == 0 || len(text) > 5 || text[0] != '0' && text[0] != '1' || len(text) > 1 && text[1] != '.' {
		return 0
	}
	q, unit := quality(text[0]-'0')*1000, quality(100)
	for _, c := range text[min(2, len(text)):] {
		if c < '0' || c > '9' {
			return 0
		}
		q, unit = q+quality(c-'0')*unit, unit/10
	}
	return min(q, 1000)
}

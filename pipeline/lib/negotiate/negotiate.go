// Package negotiate evaluates the request headers that select a response, as defined in RFC 9110:
// Accept and Accept-Encoding (section 12.5), conditions (13.1) and ranges (14). It also parses
// Content-Encoding (8.4) and Prefer (RFC 7240). Headers may be repeated. The functions of this
// package do not allocate, except when they parse dates in obsolete formats.
package negotiate

import (
	"bytes"

	"github.com/valyala/fasthttp"
)

// Quality is the weight of an alternative in thousandths. 0 means not acceptable; the default is
// 1000.
type Quality int

// Unlisted is the quality of an alternative that a header does not list.
const Unlisted Quality = -1

// Element is one element of a list header.
type Element struct {
	Value      []byte // without parameters or surrounding white space
	Parameters []byte // the text after the first semicolon
}

// Next returns the first element of a line and the rest of the line. Commas within quoted strings
// do not separate elements.
func Next(line []byte) (e Element, rest []byte) {
	element, rest := cut(line, ',')
	value, parameters := cut(element, ';')
	return Element{bytes.TrimSpace(value), parameters}, rest
}

// Quality returns the value of the element's q parameter, or 1000 if it has none. It returns 0 if
// the parameter is malformed, because the client might not accept the value.
func (e Element) Quality() Quality {
	for rest := e.Parameters; len(rest) > 0; {
		var parameter []byte
		parameter, rest = cut(rest, ';')
		name, value := cut(parameter, '=')
		if name = bytes.TrimSpace(name); len(name) == 1 && name[0]|0x20 == 'q' {
			return thousandths(bytes.TrimSpace(value))
		}
	}
	return 1000
}

func thousandths(text []byte) Quality {
	if len(text) == 0 || len(text) > 5 || text[0] != '0' && text[0] != '1' || len(text) > 1 && text[1] != '.' {
		return 0
	}
	q, unit := Quality(text[0]-'0')*1000, Quality(100)
	for _, c := range text[min(2, len(text)):] {
		if c < '0' || c > '9' {
			return 0
		}
		q, unit = q+Quality(c-'0')*unit, unit/10
	}
	if q > 1000 {
		return 0
	}
	return q
}

// cut is like bytes.Cut, but ignores separators within quoted strings.
func cut(text []byte, separator byte) (before, after []byte) {
	quoted := false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == separator && !quoted:
			return text[:i], text[i+1:]
		case c == '"':
			quoted = !quoted
		case c == '\\' && quoted:
			i++
		}
	}
	return text, nil
}

// QualityOf returns the quality of the first element with the given value, ignoring case, or
// Unlisted.
func QualityOf(lines [][]byte, value []byte) Quality {
	for _, rest := range lines {
		for len(rest) > 0 {
			var e Element
			if e, rest = Next(rest); bytes.EqualFold(e.Value, value) {
				return e.Quality()
			}
		}
	}
	return Unlisted
}

var (
	wildcard       = []byte("*")
	anyType        = []byte("*/*")
	anyApplication = []byte("application/*")
	gzip           = []byte("gzip")
	xGzip          = []byte("x-gzip")
)

// ApplicationQuality returns the quality of mediaType (application/…) in the lines of an Accept
// header. It falls back to application/*, then to */*, and returns Unlisted if none of them is
// listed.
func ApplicationQuality(lines [][]byte, mediaType []byte) Quality {
	for _, name := range [...][]byte{mediaType, anyApplication, anyType} {
		if q := QualityOf(lines, name); q != Unlisted {
			return q
		}
	}
	return Unlisted
}

// CodingQuality returns the quality of a content coding other than identity in the lines of an
// Accept-Encoding header. If the coding is not listed, it returns the quality of *, or Unlisted.
// x-gzip is an alias for gzip.
func CodingQuality(lines [][]byte, coding []byte) Quality {
	q := QualityOf(lines, coding)
	if q == Unlisted && bytes.EqualFold(coding, gzip) {
		q = QualityOf(lines, xGzip)
	}
	if q == Unlisted {
		q = QualityOf(lines, wildcard)
	}
	return q
}

// AcceptsGzip reports whether Accept-Encoding allows gzip.
func AcceptsGzip(lines [][]byte) bool { return CodingQuality(lines, gzip) > 0 }

// Preference returns the value of the first preference with this name in Prefer (RFC 7240). The
// name is ASCII in lower case.
func Preference(h *fasthttp.RequestHeader, name string) (value string, ok bool) {
	for _, rest := range h.PeekAll("Prefer") {
		for len(rest) > 0 {
			var e Element
			e, rest = Next(rest)
			found, text, _ := bytes.Cut(e.Value, []byte{'='})
			if bytes.EqualFold(bytes.TrimSpace(found), []byte(name)) {
				return string(bytes.TrimSpace(text)), true
			}
		}
	}
	return "", false
}

// CountGzip returns how many times gzip or x-gzip occurs in the lines of a Content-Encoding header.
// other is the first coding that is neither gzip nor ignored, or nil if there is none. ignored may
// be empty.
func CountGzip(lines [][]byte, ignored string) (times int, other []byte) {
	for _, line := range lines {
		for coding := range bytes.SplitSeq(line, []byte{','}) {
			coding = bytes.TrimSpace(coding)
			switch {
			case bytes.EqualFold(coding, gzip), bytes.EqualFold(coding, xGzip):
				times++
			case len(coding) > 0 && other == nil && !bytes.EqualFold(coding, []byte(ignored)):
				other = coding
			}
		}
	}
	return times, other
}

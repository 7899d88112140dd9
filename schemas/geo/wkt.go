package geo

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode"

	"trafficd/schemas/contract"
)

// ParseWKT reads well-known text. The error contains the byte offset, counted from 0, and wraps
// ErrKind or ErrTooLarge where applicable.
func (l Limits) ParseWKT(text string, want Kind) (*Geometry, error) {
	r := wktReader{text: text, Builder: Builder{Limits: l}}
	r.lookAhead()
	g, err := r.Read(&r)
	if err == nil {
		if r.peek(); r.at < len(text) {
			err = fmt.Errorf("%s after the geometry", r.unexpected())
		}
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read WKT: byte %d: %w", r.at, err)
	}
	return asKind(g, want)
}

// wktReader is a Reader. After an error, at is the position of the error.
type wktReader struct {
	Builder
	text     string
	at       int
	numbers  int  // numbers per point
	measured bool // one of the numbers is an m, which is dropped

	bare, enclosed bool // whether the current MULTIPOINT has points without, and with, parentheses
}

// lookAhead derives Layout, numbers and measured from the first point. No keyword contains a Z or a
// digit, or ends with an M. Four numbers are x, y, z and m.
func (r *wktReader) lookAhead() {
	digit := strings.IndexAny(r.text, "0123456789")
	tags, numbers := r.text, 0
	if digit >= 0 {
		point := r.text[digit:]
		if end := strings.IndexAny(point, ",)"); end >= 0 {
			point = point[:end]
		}
		for range strings.FieldsSeq(point) {
			numbers++
		}
		tags = r.text[:digit]
	}
	if r.Limits.DropMeasures {
		r.measured = numbers > 3
		for word := range strings.FieldsFuncSeq(tags, func(c rune) bool { return !unicode.IsLetter(c) }) {
			r.measured = r.measured || strings.HasSuffix(strings.ToUpper(word), "M")
		}
	}
	r.Layout = XY
	if numbers > 3 || numbers > 2 && !r.measured || digit < 0 && strings.ContainsAny(r.text, "zZ") {
		r.Layout = XYZ
	}
	r.numbers = int(r.Layout)
	if r.measured {
		r.numbers++
	}
}

// Kind reads the name of a kind and an optional Z, M or ZM, with or without a space between them.
func (r *wktReader) Kind() (Kind, error) {
	word := r.word()
	for kind := Point; kind <= LinearRing; kind++ {
		name := kinds[kind].wkt
		if len(word) < len(name) || !strings.EqualFold(word[:len(name)], name) {
			continue
		}
		suffix := word[len(name):]
		if !isDimension(suffix) {
			break
		}
		r.at += len(word)
		if next := r.word(); suffix == "" && next != "" && isDimension(next) {
			suffix = next
			r.at += len(next)
		}
		suffix = strings.ToUpper(suffix)
		measured, high := strings.HasSuffix(suffix, "M"), strings.HasPrefix(suffix, "Z")
		switch {
		case measured && !r.Limits.DropMeasures:
			return Any, fmt.Errorf("%s: %w", suffix, errMeasures)
		case suffix == "" || measured == r.measured && high == (r.Layout == XYZ):
			return kind, nil
		case high && r.Layout == XY:
			return Any, fmt.Errorf("%s, but the first point has no z", suffix)
		}
		return Any, fmt.Errorf("%s, but the first point has %d numbers", suffix, r.numbers)
	}
	if strings.EqualFold(word, "SRID") {
		return Any, errors.New("SRID=…; is an extension of PostGIS (EWKT): remove it and set the coordinate system in the request")
	}
	return Any, fmt.Errorf("%s, expected the name of a geometry such as POINT or LINESTRING", r.unexpected())
}

func isDimension(s string) bool {
	return s == "" || strings.EqualFold(s, "Z") || strings.EqualFold(s, "M") || strings.EqualFold(s, "ZM")
}

func (r *wktReader) empty() bool {
	word := r.word()
	if !strings.EqualFold(word, "EMPTY") {
		return false
	}
	r.at += len(word)
	return true
}

func (r *wktReader) List(kind Kind, part func() error) error {
	if r.empty() {
		return nil
	}
	r.bare, r.enclosed = false, false
	return r.items(part)
}

func (r *wktReader) items(item func() error) error {
	if !r.skip('(') {
		return fmt.Errorf("%s, expected ( or EMPTY", r.unexpected())
	}
	for {
		if err := item(); err != nil {
			return err
		}
		if r.skip(')') {
			return nil
		}
		if !r.skip(',') {
			return fmt.Errorf("%s, expected , or )", r.unexpected())
		}
	}
}

// Path implements Reader. In a MULTIPOINT, either all points have parentheses or none has.
func (r *wktReader) Path(kind, in Kind) error {
	if r.empty() {
		return nil
	}
	if kind != Point {
		return r.items(r.coordinates)
	}
	if in == MultiPoint {
		enclosed := r.peek() == '('
		r.bare, r.enclosed = r.bare || !enclosed, r.enclosed || enclosed
		if r.bare && r.enclosed {
			return errors.New("a MULTIPOINT must have parentheses around all of its points or around none")
		}
		if r.bare {
			return r.coordinates()
		}
	}
	if !r.skip('(') {
		return fmt.Errorf("%s, expected ( or EMPTY", r.unexpected())
	}
	if err := r.coordinates(); err != nil {
		return err
	}
	if !r.skip(')') {
		return fmt.Errorf("%s, expected )", r.unexpected())
	}
	return nil
}

func (r *wktReader) coordinates() error {
	if err := r.Take(1); err != nil {
		return err
	}
	for i := range r.numbers {
		r.at += spaceLen(r.text[r.at:])
		n, kept := numberLen(r.text[r.at:]), i < int(r.Layout)
		if n == 0 && !kept {
			n = len(r.word()) // NaN, which other programs write for an unknown m
		}
		if n == 0 {
			return fmt.Errorf("%s, expected a number; points have %d", r.unexpected(), r.numbers)
		}
		v, err := strconv.ParseFloat(r.text[r.at:r.at+n], 64)
		if err != nil {
			return fmt.Errorf("%q is not a number within the range of a double", contract.Echo(r.text[r.at:r.at+n]))
		}
		if kept {
			r.Flat = append(r.Flat, v)
		}
		r.at += n
	}
	r.at += spaceLen(r.text[r.at:])
	if r.at < len(r.text) && numberLen(r.text[r.at:r.at+1]) > 0 {
		return fmt.Errorf("%s, but points have %d numbers", r.unexpected(), r.numbers)
	}
	return nil
}

// peek skips white space and returns the next byte, or 0 at the end.
func (r *wktReader) peek() byte {
	if r.at += spaceLen(r.text[r.at:]); r.at == len(r.text) {
		return 0
	}
	return r.text[r.at]
}

func (r *wktReader) skip(c byte) bool {
	if r.peek() != c {
		return false
	}
	r.at++
	return true
}

// word skips white space and returns the letters that follow, without skipping them.
func (r *wktReader) word() string {
	r.peek()
	end := r.at
	for end < len(r.text) && 'a' <= r.text[end]|0x20 && r.text[end]|0x20 <= 'z' {
		end++
	}
	return r.text[r.at:end]
}

// unexpected skips white space and describes the following text for an error.
func (r *wktReader) unexpected() string {
	r.peek()
	if r.at == len(r.text) {
		return "unexpected end of the text"
	}
	return fmt.Sprintf("unexpected %q", contract.Echo(r.text[r.at:]))
}

// AppendWKT appends g as well-known text such as "POINT Z (8.25 48.76 110)" or "LINESTRING EMPTY".
func AppendWKT(dst []byte, g *Geometry) []byte {
	for p := range Parts(g) {
		if p.Index > 0 && !p.End {
			dst = append(dst, ", "...)
		}
		if (p.In == Any || p.In == GeometryCollection) && !p.End {
			kind := p.Kind
			if kind == LinearRing {
				kind = LineString
			}
			dst = append(dst, kinds[kind].wkt...)
			if p.Layout == XYZ {
				dst = append(dst, " Z"...)
			}
			dst = append(dst, ' ')
		}
		switch {
		case p.End && p.Len > 0:
			dst = append(dst, ')')
		case p.End:
		case p.Len == 0:
			dst = append(dst, "EMPTY"...)
		case p.Kind.hasParts():
			dst = append(dst, '(')
		default:
			dst = append(p.appendPoints(append(dst, '('), ' ', ", "), ')')
		}
	}
	return dst
}

func (p Part) appendPoints(dst []byte, number byte, point string) []byte {
	stride := int(p.Layout)
	for i, v := range p.Flat {
		switch {
		case i == 0:
		case i%stride == 0:
			dst = append(dst, point...)
		default:
			dst = append(dst, number)
		}
		dst = appendNumber(dst, v)
	}
	return dst
}

// appendNumber appends the shortest text that parses to v. Like encoding/json, it uses an exponent
// only for small and large numbers.
func appendNumber(dst []byte, v float64) []byte {
	if a := math.Abs(v); v != 0 && (a < 1e-6 || a >= 1e21) {
		dst = strconv.AppendFloat(dst, v, 'e', -1, 64)
		if n := len(dst); dst[n-2] == '0' && dst[n-3] == '-' { // e-07 → e-7
			dst = append(dst[:n-2], dst[n-1])
		}
		return dst
	}
	return strconv.AppendFloat(dst, v, 'f', -1, 64)
}

// numberLen returns the length of the longest prefix of text that consists of digits and . - + e E.
func numberLen[T ~string | ~[]byte](text T) int {
	for i := range len(text) {
		switch c := text[i]; {
		case '0' <= c && c <= '9', c == '.', c == '-', c == '+', c == 'e', c == 'E':
		default:
			return i
		}
	}
	return len(text)
}

// spaceLen returns the length of the white space at the start of the text.
func spaceLen[T ~string | ~[]byte](text T) int {
	for i := range len(text) {
		switch text[i] {
		case ' ', '\t', '\n', '\r', '\v', '\f':
		default:
			return i
		}
	}
	return len(text)
}

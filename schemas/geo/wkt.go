package geo

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/twpayne/go-geom"
)

// ParseWKT reads well-known text. The error names the byte, counted from 0. It is ErrKind or
// ErrTooLarge if one of these applies.
func (l Limits) ParseWKT(text string, want Kind) (geom.T, error) {
	r := wktReader{text: text, budget: budget{limits: l}}
	r.layout, r.measured = wktLayout(text, l.DropMeasures)
	g, err := r.geometry()
	if err == nil {
		if r.peek(); r.at < len(text) {
			err = fmt.Errorf("%s after the geometry", r.found())
		}
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read WKT: byte %d: %w", r.at, err)
	}
	return as(g, want)
}

// wktLayout looks ahead to the first point, which decides for all whether they have a z and an m. No
// keyword contains a Z or a digit, or ends with an M. Four numbers are x, y, z and m.
func wktLayout(text string, measures bool) (layout geom.Layout, measured bool) {
	digit := strings.IndexAny(text, "0123456789")
	tags := text
	if digit >= 0 {
		tags = text[:digit]
	}
	for word := range strings.FieldsFuncSeq(tags, func(r rune) bool { return !unicode.IsLetter(r) }) {
		measured = measured || measures && strings.HasSuffix(strings.ToUpper(word), "M")
	}
	if digit < 0 {
		if strings.ContainsAny(text, "zZ") {
			return geom.XYZ, measured
		}
		return geom.XY, measured
	}
	point := text[digit:]
	if end := strings.IndexAny(point, ",)"); end >= 0 {
		point = point[:end]
	}
	numbers := 0
	for range strings.FieldsSeq(point) {
		numbers++
	}
	measured = measured || measures && numbers > 3
	if numbers > 3 || numbers > 2 && !measured {
		return geom.XYZ, measured
	}
	return geom.XY, measured
}

// wktReader reads a text. After an error, at is where it occurred.
type wktReader struct {
	text   string
	at     int
	layout geom.Layout
	budget budget

	measured bool // points have an m, which is dropped

	// The coordinates of the current geometry; copied when it is complete.
	flat  []float64
	ends  []int
	endss [][]int
}

func (r *wktReader) geometry() (geom.T, error) {
	kind, err := r.tag()
	if err == nil {
		err = r.budget.take(1)
	}
	if err != nil {
		return nil, err
	}
	r.flat, r.ends, r.endss = r.flat[:0], r.ends[:0], nil
	switch kind {
	case Point:
		err = r.orEmpty(r.point)
	case LineString:
		err = r.orEmpty(r.line)
	case LinearRing:
		err = r.orEmpty(r.ring)
	case Polygon:
		err = r.orEmpty(r.rings)
	case MultiPoint:
		err = r.orEmpty(r.points)
	case MultiLineString:
		err = r.orEmpty(func() error { return r.list(r.part(r.line)) })
	case MultiPolygon:
		err = r.orEmpty(func() error { return r.list(r.polygon) })
	case GeometryCollection:
		return r.collection()
	}
	if err != nil {
		return nil, err
	}
	return New(kind, r.layout, slices.Clone(r.flat), slices.Clone(r.ends), r.endss), nil
}

// polygon reads a member of a MULTIPOLYGON.
func (r *wktReader) polygon() error {
	r.ends = r.ends[:0]
	if err := r.budget.take(1); err != nil {
		return err
	}
	err := r.orEmpty(r.rings)
	r.endss = append(r.endss, slices.Clone(r.ends))
	return err
}

func (r *wktReader) collection() (geom.T, error) {
	if err := r.budget.enter(); err != nil {
		return nil, err
	}
	defer r.budget.leave()
	var members []geom.T
	err := r.orEmpty(func() error {
		return r.list(func() error {
			g, err := r.geometry()
			members = append(members, g)
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	return collect(r.layout, members), nil
}

// tag reads the name of a kind and, joined or separate, an optional Z.
func (r *wktReader) tag() (Kind, error) {
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
		case measured && !r.budget.limits.DropMeasures:
			return Any, fmt.Errorf("%s: %w", suffix, errMeasures)
		case suffix == "" || measured == r.measured && high == (r.layout == geom.XYZ):
			return kind, nil
		case high && r.layout == geom.XY:
			return Any, fmt.Errorf("%s, but the first point has no z", suffix)
		}
		return Any, fmt.Errorf("%s, but the first point has %d numbers", suffix, r.numbers())
	}
	if strings.EqualFold(word, "SRID") {
		return Any, errors.New("SRID=…; is EWKT of PostGIS: remove it and name the coordinate system in the request")
	}
	return Any, fmt.Errorf("%s, want the name of a geometry such as POINT or LINESTRING", r.found())
}

func isDimension(s string) bool {
	return s == "" || strings.EqualFold(s, "Z") || strings.EqualFold(s, "M") || strings.EqualFold(s, "ZM")
}

// orEmpty reads EMPTY, or else calls read.
func (r *wktReader) orEmpty(read func() error) error {
	if word := r.word(); strings.EqualFold(word, "EMPTY") {
		r.at += len(word)
		return nil
	}
	return read()
}

// part returns a function that reads EMPTY or a part, and notes where the part ends.
func (r *wktReader) part(read func() error) func() error {
	return func() error {
		if err := r.budget.take(1); err != nil {
			return err
		}
		err := r.orEmpty(read)
		r.ends = append(r.ends, len(r.flat))
		return err
	}
}

// list reads items in parentheses.
func (r *wktReader) list(item func() error) error {
	if !r.skip('(') {
		return fmt.Errorf("%s, want ( or EMPTY", r.found())
	}
	for {
		if err := item(); err != nil {
			return err
		}
		if r.skip(')') {
			return nil
		}
		if !r.skip(',') {
			return fmt.Errorf("%s, want , or )", r.found())
		}
	}
}

func (r *wktReader) point() error {
	if !r.skip('(') {
		return fmt.Errorf("%s, want ( or EMPTY", r.found())
	}
	if err := r.coordinates(); err != nil {
		return err
	}
	if !r.skip(')') {
		return fmt.Errorf("%s, want )", r.found())
	}
	return nil
}

// points reads the list of a MULTIPOINT. The parentheses of its points are often omitted, of all or of
// none.
func (r *wktReader) points() error {
	bare, enclosed := false, false
	return r.list(r.part(func() error {
		read := r.coordinates
		if r.peek() == '(' {
			enclosed, read = true, r.point
		} else {
			bare = true
		}
		if bare && enclosed {
			return errors.New("a MULTIPOINT has parentheses around all its points or around none")
		}
		return read()
	}))
}

func (r *wktReader) line() error  { return r.sequence(checkLine) }
func (r *wktReader) ring() error  { return r.sequence(checkRing) }
func (r *wktReader) rings() error { return r.list(r.part(r.ring)) }

func (r *wktReader) sequence(check func([]float64, int) error) error {
	start := len(r.flat)
	if err := r.list(r.coordinates); err != nil {
		return err
	}
	return check(r.flat[start:], r.layout.Stride())
}

// coordinates reads the numbers of a point.
func (r *wktReader) coordinates() error {
	if err := r.budget.take(1); err != nil {
		return err
	}
	for i := range r.numbers() {
		r.at += spaceLen(r.text[r.at:])
		n := numberLen(r.text[r.at:])
		if n == 0 {
			return fmt.Errorf("%s, want a number; points have %d", r.found(), r.numbers())
		}
		v, err := strconv.ParseFloat(r.text[r.at:r.at+n], 64)
		if err != nil {
			return fmt.Errorf("%.40q is not a number within the range of a double", r.text[r.at:r.at+n])
		}
		if i < r.layout.Stride() {
			r.flat = append(r.flat, v)
		}
		r.at += n
	}
	r.at += spaceLen(r.text[r.at:])
	if r.at < len(r.text) && numberLen(r.text[r.at:r.at+1]) > 0 {
		return fmt.Errorf("%s, but points have %d numbers", r.found(), r.numbers())
	}
	return nil
}

// numbers returns how many numbers a point has.
func (r *wktReader) numbers() int {
	if r.measured {
		return r.layout.Stride() + 1
	}
	return r.layout.Stride()
}

// peek skips white space and returns the next byte, 0 at the end.
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

// word skips white space and returns the letters that follow, without reading them.
func (r *wktReader) word() string {
	r.peek()
	end := r.at
	for end < len(r.text) && 'a' <= r.text[end]|0x20 && r.text[end]|0x20 <= 'z' {
		end++
	}
	return r.text[r.at:end]
}

// found describes what follows.
func (r *wktReader) found() string {
	r.peek()
	if r.at == len(r.text) {
		return "unexpected end of the text"
	}
	return fmt.Sprintf("unexpected %.20q", r.text[r.at:])
}

// AppendWKT appends g, which must satisfy Check, as well-known text such as
// "POINT Z (8.25 48.76 110)" or "LINESTRING EMPTY".
func AppendWKT(dst []byte, g geom.T) []byte {
	kind := KindOf(g)
	if kind == LinearRing {
		kind = LineString
	}
	dst = append(dst, kinds[kind].wkt...)
	if g.Layout() == geom.XYZ {
		dst = append(dst, " Z"...)
	}
	w := wktWriter{dst: append(dst, ' '), stride: g.Stride()}
	switch g := g.(type) {
	case *geom.Polygon, *geom.MultiPoint, *geom.MultiLineString:
		w.lines(g.FlatCoords(), 0, g.Ends())
	case *geom.MultiPolygon:
		w.open(len(g.Endss()))
		polygons(g.Endss(), func(i, start int, ends []int) {
			w.next(i)
			w.lines(g.FlatCoords(), start, ends)
		})
		w.close(len(g.Endss()))
	case *geom.GeometryCollection:
		w.open(g.NumGeoms())
		for i, member := range g.Geoms() {
			w.next(i)
			w.dst = AppendWKT(w.dst, member)
		}
		w.close(g.NumGeoms())
	default:
		w.points(g.FlatCoords())
	}
	return w.dst
}

type wktWriter struct {
	dst    []byte
	stride int
}

func (w *wktWriter) lines(flat []float64, start int, ends []int) {
	w.open(len(ends))
	parts(flat, start, ends, func(i int, part []float64) {
		w.next(i)
		w.points(part)
	})
	w.close(len(ends))
}

func (w *wktWriter) points(flat []float64) {
	w.open(len(flat))
	for i, v := range flat {
		switch {
		case i == 0:
		case i%w.stride == 0:
			w.dst = append(w.dst, ", "...)
		default:
			w.dst = append(w.dst, ' ')
		}
		w.dst = appendNumber(w.dst, v)
	}
	w.close(len(flat))
}

// open begins a list of n items, next precedes item i, close ends the list.
func (w *wktWriter) open(n int) {
	if n == 0 {
		w.dst = append(w.dst, "EMPTY"...)
	} else {
		w.dst = append(w.dst, '(')
	}
}

func (w *wktWriter) next(i int) {
	if i > 0 {
		w.dst = append(w.dst, ", "...)
	}
}

func (w *wktWriter) close(n int) {
	if n > 0 {
		w.dst = append(w.dst, ')')
	}
}

// appendNumber appends the shortest text that reads back as the same number. It uses an exponent only
// if there would be more than 21 digits otherwise.
func appendNumber(dst []byte, v float64) []byte {
	if a := math.Abs(v); v != 0 && (a < 1e-6 || a >= 1e21) {
		dst = strconv.AppendFloat(dst, v, 'e', -1, 64)
		if n := len(dst); dst[n-2] == '0' && dst[n-3] == '-' { // e-07 is one byte longer than necessary
			dst = append(dst[:n-2], dst[n-1])
		}
		return dst
	}
	return strconv.AppendFloat(dst, v, 'f', -1, 64)
}

// numberLen returns the length of what may be a number at the start of the text.
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

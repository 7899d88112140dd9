package geo

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/twpayne/go-geom"
)

// ParseWKT reads well-known text. The error names the byte, counted from 0, and
// is ErrKind or ErrTooLarge where it is one of these.
func (l Limits) ParseWKT(text string, want Kind) (geom.T, error) {
	r := wktReader{text: text, layout: wktLayout(text), budget: budget{limits: l}}
	g, err := r.geometry()
	if err == nil && !r.end() {
		err = fmt.Errorf("%s behind the geometry", r.found())
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read WKT: byte %d: %w", r.at, err)
	}
	return as(g, want)
}

// wktLayout looks ahead: the first point has a z or none, and so have all
// others. No keyword has a Z in it, and none a digit.
func wktLayout(text string) geom.Layout {
	digit := strings.IndexAny(text, "0123456789")
	if digit < 0 {
		if strings.ContainsAny(text, "zZ") {
			return geom.XYZ
		}
		return geom.XY
	}
	point := text[digit:]
	if end := strings.IndexAny(point, ",)"); end >= 0 {
		point = point[:end]
	}
	numbers := 0
	for range strings.FieldsSeq(point) {
		if numbers++; numbers > 2 {
			return geom.XYZ
		}
	}
	return geom.XY
}

// wktReader walks along a text. Where something is wrong, at is its place.
type wktReader struct {
	text   string
	at     int
	layout geom.Layout
	budget budget

	// Of the geometry under way; copied when it is complete.
	flat []float64
	ends []int
}

func (r *wktReader) geometry() (geom.T, error) {
	kind, err := r.tag()
	if err != nil {
		return nil, err
	}
	if err := r.budget.take(1); err != nil {
		return nil, err
	}
	r.flat, r.ends = r.flat[:0], r.ends[:0]
	switch kind {
	case Point:
		err = r.partOr(r.point)
		return geom.NewPointFlat(r.layout, r.points()), err
	case LineString:
		err = r.partOr(r.line)
		return geom.NewLineStringFlat(r.layout, r.points()), err
	case LinearRing:
		err = r.partOr(r.ring)
		return geom.NewLinearRingFlat(r.layout, r.points()), err
	case Polygon:
		err = r.partOr(r.rings)
		return geom.NewPolygonFlat(r.layout, r.points(), slices.Clone(r.ends)), err
	case MultiPoint:
		err = r.partOr(func() error { return r.list(r.part(r.memberPoint)) })
		ends := geom.NewMultiPointFlatOptionWithEnds(slices.Clone(r.ends))
		return geom.NewMultiPointFlat(r.layout, r.points(), ends), err
	case MultiLineString:
		err = r.partOr(func() error { return r.list(r.part(r.line)) })
		return geom.NewMultiLineStringFlat(r.layout, r.points(), slices.Clone(r.ends)), err
	case MultiPolygon:
		return r.multiPolygon()
	default:
		return r.collection()
	}
}

func (r *wktReader) points() []float64 { return slices.Clone(r.flat) }

func (r *wktReader) multiPolygon() (geom.T, error) {
	var endss [][]int
	err := r.partOr(func() error {
		return r.list(func() error {
			r.ends = r.ends[:0]
			if err := r.budget.take(1); err != nil {
				return err
			}
			err := r.partOr(r.rings)
			endss = append(endss, slices.Clone(r.ends))
			return err
		})
	})
	return geom.NewMultiPolygonFlat(r.layout, r.points(), endss), err
}

func (r *wktReader) collection() (geom.T, error) {
	if err := r.budget.deeper(); err != nil {
		return nil, err
	}
	defer r.budget.leave()
	var members []geom.T
	err := r.partOr(func() error {
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

// collect makes a collection of members in the layout.
func collect(layout geom.Layout, members []geom.T) *geom.GeometryCollection {
	return geom.NewGeometryCollection().MustPush(members...).MustSetLayout(layout)
}

var wktKinds = [...]struct {
	word string
	kind Kind
}{
	{"POINT", Point},
	{"LINESTRING", LineString},
	{"LINEARRING", LinearRing},
	{"POLYGON", Polygon},
	{"MULTIPOINT", MultiPoint},
	{"MULTILINESTRING", MultiLineString},
	{"MULTIPOLYGON", MultiPolygon},
	{"GEOMETRYCOLLECTION", GeometryCollection},
}

// tag reads the name of a kind and what follows it, joined or apart: Z or nothing.
func (r *wktReader) tag() (Kind, error) {
	word := r.word()
	for _, k := range wktKinds {
		if len(word) < len(k.word) || !strings.EqualFold(word[:len(k.word)], k.word) {
			continue
		}
		suffix := word[len(k.word):]
		if !dimension(suffix) {
			break
		}
		r.at += len(word)
		if next := r.word(); suffix == "" && next != "" && dimension(next) {
			suffix = next
			r.at += len(next)
		}
		return k.kind, r.checkDimension(suffix)
	}
	if strings.EqualFold(word, "SRID") {
		return Any, errors.New("SRID=…; is PostGIS's EWKT; name the coordinate system in the request and leave it out")
	}
	return Any, fmt.Errorf("%s, expected is the name of a geometry, as POINT or LINESTRING", r.found())
}

func dimension(s string) bool {
	return s == "" || strings.EqualFold(s, "Z") || strings.EqualFold(s, "M") || strings.EqualFold(s, "ZM")
}

func (r *wktReader) checkDimension(suffix string) error {
	switch {
	case suffix == "":
		return nil
	case !strings.EqualFold(suffix, "Z"):
		return fmt.Errorf("%s: measures (M) are not supported, only x, y and z", strings.ToUpper(suffix))
	case r.layout != geom.XYZ:
		return errors.New("a Z, but the first point has no z")
	}
	return nil
}

// partOr reads EMPTY, or else what read reads.
func (r *wktReader) partOr(read func() error) error {
	if word := r.word(); strings.EqualFold(word, "EMPTY") {
		r.at += len(word)
		return nil
	}
	return read()
}

// part gives a function that reads EMPTY or a part, and notes its end.
func (r *wktReader) part(read func() error) func() error {
	return func() error {
		if err := r.budget.take(1); err != nil {
			return err
		}
		err := r.partOr(read)
		r.ends = append(r.ends, len(r.flat))
		return err
	}
}

// list reads items in parentheses.
func (r *wktReader) list(item func() error) error {
	if !r.skip('(') {
		return fmt.Errorf("%s, expected is ( or EMPTY", r.found())
	}
	for {
		if err := item(); err != nil {
			return err
		}
		if r.skip(')') {
			return nil
		}
		if !r.skip(',') {
			return fmt.Errorf("%s, expected is , or )", r.found())
		}
	}
}

func (r *wktReader) point() error {
	if !r.skip('(') {
		return fmt.Errorf("%s, expected is ( or EMPTY", r.found())
	}
	if err := r.coordinates(); err != nil {
		return err
	}
	if !r.skip(')') {
		return fmt.Errorf("%s, expected is )", r.found())
	}
	return nil
}

// memberPoint reads a point of a MULTIPOINT: many leave its parentheses out.
func (r *wktReader) memberPoint() error {
	if r.peek() == '(' {
		return r.point()
	}
	return r.coordinates()
}

func (r *wktReader) line() error { return r.sequence(checkLine) }
func (r *wktReader) ring() error { return r.sequence(checkRing) }

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
	for range r.layout.Stride() {
		r.space()
		n := numberLen(r.text[r.at:])
		if n == 0 {
			return fmt.Errorf("%s, expected is a number; points have %d", r.found(), r.layout.Stride())
		}
		v, err := strconv.ParseFloat(r.text[r.at:r.at+n], 64)
		if err != nil {
			return fmt.Errorf("%.40q is no number within the range of a double", r.text[r.at:r.at+n])
		}
		r.flat = append(r.flat, v)
		r.at += n
	}
	r.space()
	if r.at < len(r.text) && numberLen(r.text[r.at:r.at+1]) > 0 {
		return fmt.Errorf("%s, but points have %d numbers", r.found(), r.layout.Stride())
	}
	return nil
}

func (r *wktReader) space() { r.at += spaceLen(r.text[r.at:]) }

func (r *wktReader) end() bool {
	r.space()
	return r.at == len(r.text)
}

// peek gives the next byte behind white space, 0 at the end.
func (r *wktReader) peek() byte {
	if r.end() {
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

// word gives the letters that come next, without passing over them.
func (r *wktReader) word() string {
	r.space()
	for i := r.at; i < len(r.text); i++ {
		if c := r.text[i] | 0x20; c < 'a' || c > 'z' {
			return r.text[r.at:i]
		}
	}
	return r.text[r.at:]
}

// found describes what stands at the place.
func (r *wktReader) found() string {
	if r.end() {
		return "the end of the text"
	}
	return fmt.Sprintf("%.20q", r.text[r.at:])
}

package geo

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/twpayne/go-geom"
)

// Flags of PostGIS's EWKB in the type code.
const (
	ewkbZ    = 0x8000_0000
	ewkbM    = 0x4000_0000
	ewkbSRID = 0x2000_0000
	ewkbAll  = ewkbZ | ewkbM | ewkbSRID
)

const (
	bigEndian    = 0
	littleEndian = 1

	wkbHeader = 5 // byte order and type
	wkbCount  = 4
	isoStep   = 1000 // between the type codes of XY, Z, M and ZM
)

// ParseWKB reads well-known binary. It keeps nothing of data. The error names
// the byte, counted from 0, and is ErrKind or ErrTooLarge where it is one of
// these. An SRID of the outermost geometry stays in the geometry.
func (l Limits) ParseWKB(data []byte, want Kind) (geom.T, error) {
	r := wkbReader{data: data, budget: budget{limits: l}}
	g, err := r.outermost()
	if err == nil && r.at < len(data) {
		err = fmt.Errorf("%d bytes behind the geometry", len(data)-r.at)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read WKB: byte %d: %w", r.at, err)
	}
	return as(g, want)
}

// wkbReader walks along WKB. Where something is wrong, at is its place.
type wkbReader struct {
	data   []byte
	at     int
	little bool
	layout geom.Layout // of the outermost geometry; all others have the same
	srid   uint32
	budget budget
}

func (r *wkbReader) outermost() (geom.T, error) {
	g, err := r.geometry(Any)
	if err != nil || r.srid == 0 {
		return g, err
	}
	return geom.SetSRID(g, int(r.srid))
}

// geometry reads one that is of the kind, if it is not Any.
func (r *wkbReader) geometry(want Kind) (geom.T, error) {
	kind, err := r.header(want)
	if err != nil {
		return nil, err
	}
	switch kind {
	case Point:
		flat, err := r.point(nil)
		return geom.NewPointFlat(r.layout, flat), err
	case LineString:
		flat, err := r.points(nil, checkLine)
		return geom.NewLineStringFlat(r.layout, flat), err
	case Polygon:
		flat, ends, err := r.rings(nil)
		return geom.NewPolygonFlat(r.layout, flat, ends), err
	case MultiPoint:
		flat, ends, err := r.multi(Point, r.point)
		return geom.NewMultiPointFlat(r.layout, flat, geom.NewMultiPointFlatOptionWithEnds(ends)), err
	case MultiLineString:
		flat, ends, err := r.multi(LineString, func(flat []float64) ([]float64, error) { return r.points(flat, checkLine) })
		return geom.NewMultiLineStringFlat(r.layout, flat, ends), err
	case MultiPolygon:
		return r.multiPolygon()
	default:
		return r.collection()
	}
}

// header reads byte order, type and SRID.
func (r *wkbReader) header(want Kind) (Kind, error) {
	if err := r.budget.take(1); err != nil {
		return Any, err
	}
	if len(r.data)-r.at < wkbHeader {
		return Any, r.ends(wkbHeader)
	}
	order := r.data[r.at]
	if order != bigEndian && order != littleEndian {
		return Any, fmt.Errorf("byte order %d, expected is 0 (big-endian) or 1 (little-endian)", order)
	}
	r.little = order == littleEndian
	code := r.uint32(1)
	kind, layout, err := wkbType(code)
	if err != nil {
		return Any, err
	}
	if err := r.fits(kind, layout, want); err != nil {
		return Any, err
	}
	r.at += wkbHeader
	return kind, r.readSRID(code)
}

// wkbType knows Z in both conventions.
func wkbType(code uint32) (Kind, geom.Layout, error) {
	iso := code &^ ewkbAll
	dimension, number := iso/isoStep, iso%isoStep
	if number < uint32(Point) || number > uint32(GeometryCollection) || dimension > 3 {
		return Any, geom.NoLayout, fmt.Errorf("type code %#x is none of the seven kinds of geometry", code)
	}
	switch {
	case dimension >= 2 || code&ewkbM != 0:
		return Any, geom.NoLayout, fmt.Errorf("type code %#x: measures (M) are not supported, only x, y and z", code)
	case dimension == 1 || code&ewkbZ != 0:
		return Kind(number), geom.XYZ, nil
	}
	return Kind(number), geom.XY, nil
}

// fits holds a geometry against those around it.
func (r *wkbReader) fits(kind Kind, layout geom.Layout, want Kind) error {
	switch {
	case want != Any && kind != want:
		return fmt.Errorf("a member is a %s, expected is a %s", kind, want)
	case r.layout == geom.NoLayout:
		r.layout = layout
	case r.layout != layout:
		return errMixed
	}
	return nil
}

func (r *wkbReader) readSRID(code uint32) error {
	if code&ewkbSRID == 0 {
		return nil
	}
	if len(r.data)-r.at < 4 {
		return r.ends(4)
	}
	if r.at == wkbHeader {
		r.srid = r.uint32(0)
	}
	r.at += 4
	return nil
}

func (r *wkbReader) ends(need int) error {
	return fmt.Errorf("it ends: %d bytes are left, at least %d are missing", len(r.data)-r.at, need-(len(r.data)-r.at))
}

// count reads the number of things that follow, of at least so many bytes each.
// Nothing is allocated for what cannot be there.
func (r *wkbReader) count(noun string, size int) (int, error) {
	if len(r.data)-r.at < wkbCount {
		return 0, r.ends(wkbCount)
	}
	n, left := r.uint32(0), len(r.data)-r.at-wkbCount
	if uint64(n)*uint64(size) > uint64(left) {
		return 0, fmt.Errorf("it says %d %s of at least %d bytes, but %d bytes are left", n, noun, size, left)
	}
	r.at += wkbCount
	return int(n), nil
}

// point reads coordinates. A point that is empty is written as not-a-number.
func (r *wkbReader) point(flat []float64) ([]float64, error) {
	stride := r.layout.Stride()
	if need := 8 * stride; len(r.data)-r.at < need {
		return flat, r.ends(need)
	}
	if math.IsNaN(r.float(0)) && math.IsNaN(r.float(8)) {
		r.at += 8 * stride
		return flat, nil
	}
	return r.floats(flat, 1)
}

// points reads those of a line or ring.
func (r *wkbReader) points(flat []float64, check func([]float64, int) error) ([]float64, error) {
	stride, start := r.layout.Stride(), len(flat)
	n, err := r.count("points", 8*stride)
	if err != nil {
		return flat, err
	}
	if flat, err = r.floats(flat, n); err != nil {
		return flat, err
	}
	return flat, check(flat[start:], stride)
}

// floats reads the numbers of n points, whose bytes are there.
func (r *wkbReader) floats(flat []float64, n int) ([]float64, error) {
	if err := r.budget.take(n); err != nil {
		return flat, err
	}
	numbers := n * r.layout.Stride()
	flat = slices.Grow(flat, numbers)
	for range numbers {
		v := r.float(0)
		if !finite(v) {
			return flat, fmt.Errorf("coordinate %v is no finite number", v)
		}
		flat = append(flat, v)
		r.at += 8
	}
	return flat, nil
}

func (r *wkbReader) float(offset int) float64 {
	b := r.data[r.at+offset:]
	if r.little {
		return math.Float64frombits(binary.LittleEndian.Uint64(b))
	}
	return math.Float64frombits(binary.BigEndian.Uint64(b))
}

func (r *wkbReader) uint32(offset int) uint32 {
	b := r.data[r.at+offset:]
	if r.little {
		return binary.LittleEndian.Uint32(b)
	}
	return binary.BigEndian.Uint32(b)
}

func (r *wkbReader) rings(flat []float64) ([]float64, []int, error) {
	n, err := r.count("rings", wkbCount)
	if err != nil {
		return flat, nil, err
	}
	if err := r.budget.take(n); err != nil {
		return flat, nil, err
	}
	ends := make([]int, 0, n)
	for range n {
		if flat, err = r.points(flat, checkRing); err != nil {
			return flat, ends, err
		}
		ends = append(ends, len(flat))
	}
	return flat, ends, nil
}

// multi reads members of one kind, each with a header.
func (r *wkbReader) multi(kind Kind, read func([]float64) ([]float64, error)) (flat []float64, ends []int, err error) {
	n, err := r.count("members", wkbHeader+wkbCount)
	if err != nil {
		return nil, nil, err
	}
	ends = make([]int, 0, n)
	for range n {
		if _, err = r.header(kind); err != nil {
			return flat, ends, err
		}
		if flat, err = read(flat); err != nil {
			return flat, ends, err
		}
		ends = append(ends, len(flat))
	}
	return flat, ends, nil
}

func (r *wkbReader) multiPolygon() (geom.T, error) {
	n, err := r.count("polygons", wkbHeader+wkbCount)
	if err != nil {
		return nil, err
	}
	var flat []float64
	endss := make([][]int, 0, n)
	for range n {
		if _, err := r.header(Polygon); err != nil {
			return nil, err
		}
		var ends []int
		if flat, ends, err = r.rings(flat); err != nil {
			return nil, err
		}
		endss = append(endss, ends)
	}
	return geom.NewMultiPolygonFlat(r.layout, flat, endss), nil
}

func (r *wkbReader) collection() (geom.T, error) {
	if err := r.budget.deeper(); err != nil {
		return nil, err
	}
	defer r.budget.leave()
	n, err := r.count("members", wkbHeader+wkbCount)
	if err != nil {
		return nil, err
	}
	members := make([]geom.T, 0, n)
	for range n {
		g, err := r.geometry(Any)
		if err != nil {
			return nil, err
		}
		members = append(members, g)
	}
	return collect(r.layout, members), nil
}

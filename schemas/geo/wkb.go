package geo

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/twpayne/go-geom"
)

// Flags of EWKB, the format of PostGIS, in the type code.
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

// ParseWKB reads well-known binary. It keeps nothing of data. The error names the byte, counted from
// 0. It is ErrKind or ErrTooLarge if one of these applies. The geometry keeps the SRID of the
// outermost geometry.
func (l Limits) ParseWKB(data []byte, want Kind) (geom.T, error) {
	r := wkbReader{data: data, budget: budget{limits: l}}
	g, err := r.geometry()
	if err == nil && r.at < len(data) {
		err = fmt.Errorf("%d bytes after the geometry", len(data)-r.at)
	}
	if err == nil && r.srid != 0 {
		g, err = geom.SetSRID(g, int(r.srid))
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read WKB: byte %d: %w", r.at, err)
	}
	return as(g, want)
}

// wkbReader reads WKB. After an error, at is where it occurred.
type wkbReader struct {
	data   []byte
	at     int
	order  binary.ByteOrder
	layout geom.Layout // of the outermost geometry; all others must have the same
	stride int         // numbers of a point, with an m that is dropped
	srid   uint32
	budget budget

	// The coordinates of the current geometry, which takes them over.
	flat  []float64
	ends  []int
	endss [][]int
}

func (r *wkbReader) geometry() (geom.T, error) {
	kind, err := r.header(Any)
	if err != nil {
		return nil, err
	}
	r.flat, r.ends, r.endss = nil, nil, nil
	switch kind {
	case Point:
		err = r.point()
	case LineString:
		err = r.points(checkLine)
	case Polygon:
		err = r.rings()
	case MultiPoint:
		err = r.members("members", Point, r.point)
	case MultiLineString:
		err = r.members("members", LineString, func() error { return r.points(checkLine) })
	case MultiPolygon:
		err = r.members("polygons", Polygon, func() error {
			r.ends = nil
			err := r.rings()
			r.endss = append(r.endss, r.ends)
			return err
		})
	case GeometryCollection:
		return r.collection()
	}
	if err != nil {
		return nil, err
	}
	return New(kind, r.layout, r.flat, r.ends, r.endss), nil
}

// header reads byte order, type and SRID of a geometry, which must be of the kind unless that is Any.
func (r *wkbReader) header(want Kind) (Kind, error) {
	if err := r.budget.take(1); err != nil {
		return Any, err
	}
	if err := r.need(wkbHeader); err != nil {
		return Any, err
	}
	switch order := r.data[r.at]; order {
	case bigEndian:
		r.order = binary.BigEndian
	case littleEndian:
		r.order = binary.LittleEndian
	default:
		return Any, fmt.Errorf("byte order %d, want 0 (big-endian) or 1 (little-endian)", order)
	}
	code := r.order.Uint32(r.data[r.at+1:])
	kind, layout, measured, err := wkbType(code)
	stride := layout.Stride()
	if measured {
		stride++
	}
	switch {
	case err != nil:
		return Any, err
	case want != Any && kind != want:
		return Any, fmt.Errorf("member is a %s, want a %s", kind, want)
	case measured && !r.budget.limits.DropMeasures:
		return Any, fmt.Errorf("type code %#x: %w", code, errMeasures)
	case r.layout == geom.NoLayout:
		r.layout, r.stride = layout, stride
	case r.layout != layout || r.stride != stride:
		return Any, errMixed
	}
	r.at += wkbHeader
	if code&ewkbSRID == 0 {
		return kind, nil
	}
	if err := r.need(4); err != nil {
		return Any, err
	}
	if r.at == wkbHeader {
		r.srid = r.order.Uint32(r.data[r.at:])
	}
	r.at += 4
	return kind, nil
}

// wkbType reads a type code of ISO WKB or EWKB.
func wkbType(code uint32) (kind Kind, layout geom.Layout, measured bool, err error) {
	iso := code &^ ewkbAll
	dimension, number := iso/isoStep, iso%isoStep
	switch {
	case number < uint32(Point) || number > uint32(GeometryCollection) || dimension > 3:
		return Any, geom.NoLayout, false, fmt.Errorf("type code %#x is not one of the seven kinds of geometry", code)
	case dimension%2 == 1 || code&ewkbZ != 0:
		layout = geom.XYZ
	default:
		layout = geom.XY
	}
	return Kind(number), layout, dimension >= 2 || code&ewkbM != 0, nil
}

func (r *wkbReader) need(bytes int) error {
	if left := len(r.data) - r.at; left < bytes {
		return fmt.Errorf("unexpected end: %d bytes left, need %d", left, bytes)
	}
	return nil
}

// count reads the number of items that follow, of at least size bytes each. It fails if the data
// cannot contain them, so that nothing is allocated for a wrong number.
func (r *wkbReader) count(items string, size int) (int, error) {
	if err := r.need(wkbCount); err != nil {
		return 0, err
	}
	n, left := r.order.Uint32(r.data[r.at:]), len(r.data)-r.at-wkbCount
	if uint64(n)*uint64(size) > uint64(left) {
		return 0, fmt.Errorf("%d %s of at least %d bytes announced, but %d bytes left", n, items, size, left)
	}
	r.at += wkbCount
	return int(n), nil
}

// point reads coordinates. An empty point is encoded as NaN.
func (r *wkbReader) point() error {
	if err := r.need(8 * r.stride); err != nil {
		return err
	}
	if math.IsNaN(r.float(0)) && math.IsNaN(r.float(8)) {
		r.at += 8 * r.stride
		return nil
	}
	return r.floats(1)
}

// points reads the points of a line or ring.
func (r *wkbReader) points(check func([]float64, int) error) error {
	stride, start := r.layout.Stride(), len(r.flat)
	n, err := r.count("points", 8*r.stride)
	if err == nil {
		err = r.floats(n)
	}
	if err != nil {
		return err
	}
	return check(r.flat[start:], stride)
}

// floats reads the numbers of n points, whose bytes are present.
func (r *wkbReader) floats(n int) error {
	if err := r.budget.take(n); err != nil {
		return err
	}
	kept := r.layout.Stride()
	flat := slices.Grow(r.flat, n*kept)
	for range n {
		for range kept {
			v := r.float(0)
			if !finite(v) {
				return fmt.Errorf("coordinate %v is not a finite number", v)
			}
			flat = append(flat, v)
			r.at += 8
		}
		r.at += 8 * (r.stride - kept)
	}
	r.flat = flat
	return nil
}

func (r *wkbReader) float(offset int) float64 {
	return math.Float64frombits(r.order.Uint64(r.data[r.at+offset:]))
}

func (r *wkbReader) rings() error {
	n, err := r.count("rings", wkbCount)
	if err == nil {
		err = r.budget.take(n)
	}
	if err != nil {
		return err
	}
	r.ends = make([]int, 0, n)
	for range n {
		if err := r.points(checkRing); err != nil {
			return err
		}
		r.ends = append(r.ends, len(r.flat))
	}
	return nil
}

// members reads members of one kind, each with a header.
func (r *wkbReader) members(items string, kind Kind, read func() error) error {
	n, err := r.count(items, wkbHeader+wkbCount)
	if err != nil {
		return err
	}
	if kind != Polygon {
		r.ends = make([]int, 0, n)
	}
	for range n {
		if _, err := r.header(kind); err != nil {
			return err
		}
		if err := read(); err != nil {
			return err
		}
		if kind != Polygon {
			r.ends = append(r.ends, len(r.flat))
		}
	}
	return nil
}

func (r *wkbReader) collection() (geom.T, error) {
	if err := r.budget.enter(); err != nil {
		return nil, err
	}
	defer r.budget.leave()
	n, err := r.count("members", wkbHeader+wkbCount)
	if err != nil {
		return nil, err
	}
	members := make([]geom.T, n)
	for i := range members {
		if members[i], err = r.geometry(); err != nil {
			return nil, err
		}
	}
	return collect(r.layout, members), nil
}

// AppendWKB appends g, which must satisfy Check, as ISO well-known binary: the type code of a geometry
// with z is 1000 higher. The order is binary.LittleEndian or binary.BigEndian. An SRID is not written.
func AppendWKB(dst []byte, g geom.T, order binary.AppendByteOrder) []byte {
	w := wkbWriter{dst: dst, order: order, layout: g.Layout()}
	w.geometry(g)
	return w.dst
}

type wkbWriter struct {
	dst    []byte
	order  binary.AppendByteOrder
	layout geom.Layout
}

func (w *wkbWriter) geometry(g geom.T) {
	switch g := g.(type) {
	case *geom.Point:
		w.point(g.FlatCoords())
	case *geom.LineString, *geom.LinearRing:
		w.line(g.FlatCoords())
	case *geom.Polygon:
		w.polygon(g.FlatCoords(), 0, g.Ends())
	case *geom.MultiPoint:
		w.header(MultiPoint, len(g.Ends()))
		parts(g.FlatCoords(), 0, g.Ends(), func(_ int, part []float64) { w.point(part) })
	case *geom.MultiLineString:
		w.header(MultiLineString, len(g.Ends()))
		parts(g.FlatCoords(), 0, g.Ends(), func(_ int, part []float64) { w.line(part) })
	case *geom.MultiPolygon:
		w.header(MultiPolygon, len(g.Endss()))
		polygons(g.Endss(), func(_, start int, ends []int) { w.polygon(g.FlatCoords(), start, ends) })
	case *geom.GeometryCollection:
		w.header(GeometryCollection, g.NumGeoms())
		for _, member := range g.Geoms() {
			w.geometry(member)
		}
	}
}

// header appends byte order, type and, for all kinds but Point, the number of items.
func (w *wkbWriter) header(kind Kind, n int) {
	code := uint32(kind)
	if w.layout == geom.XYZ {
		code += isoStep
	}
	w.dst = w.order.AppendUint16(w.dst, littleEndian) // its first byte is 1 in one order and 0 in the other
	w.dst = w.order.AppendUint32(w.dst[:len(w.dst)-1], code)
	if kind != Point {
		w.dst = w.order.AppendUint32(w.dst, uint32(n))
	}
}

// point appends an empty point as NaN, as PostGIS and GEOS do.
func (w *wkbWriter) point(flat []float64) {
	w.header(Point, 1)
	w.floats(flat)
	if len(flat) == 0 {
		for range w.layout.Stride() {
			w.dst = w.order.AppendUint64(w.dst, geom.PointEmptyCoordHex)
		}
	}
}

func (w *wkbWriter) line(flat []float64) {
	w.header(LineString, len(flat)/w.layout.Stride())
	w.floats(flat)
}

func (w *wkbWriter) polygon(flat []float64, start int, ends []int) {
	w.header(Polygon, len(ends))
	parts(flat, start, ends, func(_ int, part []float64) {
		w.dst = w.order.AppendUint32(w.dst, uint32(len(part)/w.layout.Stride()))
		w.floats(part)
	})
}

func (w *wkbWriter) floats(flat []float64) {
	for _, v := range flat {
		w.dst = w.order.AppendUint64(w.dst, math.Float64bits(v))
	}
}

package geo

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"
)

// Flags in the type code of EWKB, the format of PostGIS.
const (
	ewkbZ    = 0x8000_0000
	ewkbM    = 0x4000_0000
	ewkbSRID = 0x2000_0000
	ewkbAll  = ewkbZ | ewkbM | ewkbSRID
)

const (
	bigEndian    = 0
	littleEndian = 1

	wkbHeader = 5 // byte order and type code
	wkbCount  = 4
	isoStep   = 1000 // difference between the type codes of XY, Z, M and ZM

	emptyCoordinate = 0x7ff8_0000_0000_0000 // NaN as PostGIS and GEOS write it
)

// ParseWKB parses a geometry in well-known binary (WKB). The result does not retain data, and has
// the SRID that it or any of its members declares. The error contains the byte offset, counted from
// 0, and wraps ErrKind, ErrTooLarge or ErrNotFinite where applicable.
func (l Limits) ParseWKB(data []byte, want Kind) (*Geometry, error) {
	r := wkbReader{data: data, Builder: Builder{Limits: l}}
	g, err := r.Read(&r)
	if err == nil && r.at < len(data) {
		err = errors.New("unexpected data after the geometry")
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read WKB: byte %d: %w", r.at, err)
	}
	g.SRID = r.srid
	return asKind(g, want)
}

// wkbReader is a Reader. After an error, at is the position of the error.
type wkbReader struct {
	Builder
	data   []byte
	at     int
	big    bool // big-endian
	stride int  // coordinates per point, including an m that is dropped
	first  int  // stride of the first geometry
	mixed  bool // the current geometry has other coordinates than the first one, so it must have no points
	srid   uint32
}

func (r *wkbReader) Kind() (Kind, error) { return r.header(Any) }

// header reads the byte order, type code and SRID of a geometry. The kind must be want, unless want
// is Any.
func (r *wkbReader) header(want Kind) (Kind, error) {
	if err := r.need(wkbHeader); err != nil {
		return Any, err
	}
	order := r.data[r.at]
	if order > littleEndian {
		return Any, fmt.Errorf("byte order %d, must be 0 (big-endian) or 1 (little-endian)", order)
	}
	r.big = order == bigEndian
	code := r.uint32(1)
	iso := code &^ ewkbAll
	dimension, number := iso/isoStep, iso%isoStep // 0: XY, 1: XYZ, 2: XYM, 3: XYZM
	if number < uint32(Point) || number > uint32(GeometryCollection) || dimension > 3 {
		return Any, fmt.Errorf("unknown geometry type code %#x", code)
	}
	kind, layout := Kind(number), XY
	if dimension%2 == 1 || code&ewkbZ != 0 {
		layout = XYZ
	}
	stride, measured := int(layout), dimension >= 2 || code&ewkbM != 0
	if measured {
		stride++
	}
	switch {
	case want != Any && kind != want:
		return Any, fmt.Errorf("member is a %s, must be a %s", kind, want)
	case measured && !r.Limits.DropMeasures:
		return Any, fmt.Errorf("type code %#x: %w", code, errMeasures)
	case r.Layout == NoLayout:
		r.Layout, r.first = layout, stride
	}
	r.stride, r.mixed = stride, r.Layout != layout || r.first != stride
	r.at += wkbHeader
	if code&ewkbSRID != 0 {
		return kind, r.readSRID()
	}
	return kind, nil
}

// readSRID reads an SRID. It returns an error if the SRID before it is another one.
func (r *wkbReader) readSRID() error {
	if err := r.need(4); err != nil {
		return err
	}
	switch id := r.uint32(0); {
	case r.srid == 0:
		r.srid = id
	case id != 0 && id != r.srid:
		return fmt.Errorf("SRID %d of a member contradicts the SRID %d before it", id, r.srid)
	}
	r.at += 4
	return nil
}

func (r *wkbReader) need(bytes int) error {
	if left := len(r.data) - r.at; left < bytes {
		return fmt.Errorf("unexpected end of data: %d bytes left, need %d", left, bytes)
	}
	return nil
}

// count reads the number of items that follow. Each item takes at least size bytes. count returns
// an error if the data is too short for them, so that an invalid count cannot cause a large
// allocation.
func (r *wkbReader) count(items string, size int) (int, error) {
	if err := r.need(wkbCount); err != nil {
		return 0, err
	}
	n, left := r.uint32(0), len(r.data)-r.at-wkbCount
	if uint64(n)*uint64(size) > uint64(left) {
		return 0, fmt.Errorf("%d %s of at least %d bytes each declared, but only %d bytes left", n, items, size, left)
	}
	r.at += wkbCount
	return int(n), nil
}

// Path implements Reader. An empty point is encoded as NaN.
func (r *wkbReader) Path(kind, _ Kind) error {
	if kind != Point {
		n, err := r.count("points", 8*r.stride)
		if err != nil {
			return err
		}
		return r.floats(n)
	}
	if err := r.need(8 * r.stride); err != nil {
		return err
	}
	if math.IsNaN(r.float(0)) && math.IsNaN(r.float(8)) {
		r.at += 8 * r.stride
		return nil
	}
	return r.floats(1)
}

// floats reads the coordinates of n points. The caller must have checked that the data is long
// enough.
func (r *wkbReader) floats(n int) error {
	if err := r.Take(n); err != nil {
		return err
	}
	if n > 0 && r.mixed {
		return errMixed
	}
	kept := int(r.Layout)
	flat := slices.Grow(r.Flat, n*kept)
	for i := range n {
		for j := range kept {
			offset := 8 * (i*r.stride + j)
			v := r.float(offset)
			if !finite(v) {
				r.at += offset
				return fmt.Errorf("coordinate %v is %w", v, ErrNotFinite)
			}
			flat = append(flat, v)
		}
	}
	r.at += 8 * n * r.stride
	r.Flat = flat
	return nil
}

func (r *wkbReader) float(offset int) float64 {
	v := binary.LittleEndian.Uint64(r.data[r.at+offset:])
	if r.big {
		v = bits.ReverseBytes64(v)
	}
	return math.Float64frombits(v)
}

func (r *wkbReader) uint32(offset int) uint32 {
	v := binary.LittleEndian.Uint32(r.data[r.at+offset:])
	if r.big {
		v = bits.ReverseBytes32(v)
	}
	return v
}

// List implements Reader. All parts except rings have a header.
func (r *wkbReader) List(kind Kind, part func() error) error {
	items, size := "members", wkbHeader+wkbCount
	switch kind {
	case Polygon:
		items, size = "rings", wkbCount
	case MultiPolygon:
		items = "polygons"
	}
	n, err := r.count(items, size)
	if err != nil {
		return err
	}
	for range n {
		if kind != Polygon && kind != GeometryCollection {
			if _, err := r.header(kinds[kind].part); err != nil {
				return err
			}
		}
		if err := part(); err != nil {
			return err
		}
	}
	return nil
}

// AppendWKB appends g as ISO well-known binary, which adds 1000 to the type code of a geometry with
// z. order is binary.LittleEndian or binary.BigEndian. AppendWKB omits the SRID, and writes an
// empty point as NaN, as PostGIS and GEOS do.
func AppendWKB(dst []byte, g *Geometry, order binary.AppendByteOrder) []byte {
	for p := range Parts(g) {
		if p.End {
			continue
		}
		if p.In != Polygon {
			code := uint32(p.Kind)
			if p.Kind == LinearRing {
				code = uint32(LineString)
			}
			if p.Layout == XYZ {
				code += isoStep
			}
			dst = order.AppendUint16(dst, littleEndian) // its first byte is 1 if little-endian, 0 if big-endian
			dst = order.AppendUint32(dst[:len(dst)-1], code)
		}
		if p.Kind != Point {
			dst = order.AppendUint32(dst, uint32(p.Len))
		} else if p.Len == 0 {
			for range int(p.Layout) {
				dst = order.AppendUint64(dst, emptyCoordinate)
			}
		}
		for _, v := range p.Flat {
			dst = order.AppendUint64(dst, math.Float64bits(v))
		}
	}
	return dst
}

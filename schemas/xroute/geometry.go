package xroute

import (
	"reflect"

	"trafficd/schemas/geo"
)

// GeometryEncoding is the name of an encoding of geometries.
type GeometryEncoding string

// The encodings.
const (
	EncodingPlain GeometryEncoding = "PLAIN"
	EncodingWKB   GeometryEncoding = "WKB"
	EncodingWKT   GeometryEncoding = "WKT"
	EncodingKML   GeometryEncoding = "KML"
)

// CoordFormat is a coordinate format.
type CoordFormat = geo.Format

// EncodedGeometryBase is the root type of geometries, all of which also implement EncodedGeometry.
type EncodedGeometryBase interface{ encodedGeometryBase() }

// EncodedGeometry is one of *Point, *LineString, *LinearRing, *Polygon, *MultiPoint,
// *MultiLineString, *MultiPolygon and *GeometryCollection.
type EncodedGeometry interface {
	EncodedGeometryBase
	// Encoded returns the encodings other than PLAIN. The caller may change them.
	Encoded() *Encodings
}

type geometryBase struct{}

func (*geometryBase) encodedGeometryBase() {}

// Encodings contains the members that every EncodedGeometry has.
type Encodings struct {
	geometryBase
	KML *KML    `xsd:"kml"`
	WKB []byte  `xsd:"@wkb"`
	WKT *string `xsd:"@wkt"`
}

// Encoded implements EncodedGeometry.
func (e *Encodings) Encoded() *Encodings { return e }

// encoded is a geometry. The element with its PLAIN encoding is named after the kind of geometry.
type encoded[P any] struct {
	Encodings
	Plain *P `xsd:"<kind>"`
}

//nolint:revive // contract 5.4 describes these types
type (
	Point              encoded[PlainPoint]
	LineString         encoded[PlainLineString]
	LinearRing         encoded[PlainLinearRing]
	Polygon            encoded[PlainPolygon]
	MultiPoint         encoded[PlainMultiPoint]
	MultiLineString    encoded[PlainMultiLineString]
	MultiPolygon       encoded[PlainMultiPolygon]
	GeometryCollection encoded[PlainGeometryCollection]
)

// BoundingBox is a rectangle given by two opposite corners.
type BoundingBox struct {
	LeftTop     *Point `xsd:"leftTop,nillable"`
	RightBottom *Point `xsd:"rightBottom,nillable"`
}

// PlainGeometry is a pointer to one of the Plain types, including PlainGeometryBase.
type PlainGeometry interface{ plainGeometry() }

// PlainGeometryBase is the base of the plain geometries. Because it is not abstract in contract
// 5.4, it may also occur on its own, as a geometry without coordinates.
type PlainGeometryBase struct{}

func (*PlainGeometryBase) plainGeometry() {}

//nolint:revive // contract 5.4 describes these types
type (
	PlainPoint struct {
		PlainGeometryBase
		X float64  `xsd:"@x,required"`
		Y float64  `xsd:"@y,required"`
		Z *float64 `xsd:"@z"`
	}
	PlainLineString struct {
		PlainGeometryBase
		Points []PlainPoint `xsd:"wrappedPoints,required"`
	}
	PlainLinearRing PlainLineString
	PlainMultiPoint PlainLineString
	PlainPolygon    struct {
		PlainGeometryBase
		LinearRings []PlainLinearRing `xsd:"wrappedLinearRings,required"`
	}
	PlainMultiLineString struct {
		PlainGeometryBase
		LineStrings []PlainLineString `xsd:"wrappedLineStrings,required"`
	}
	PlainMultiPolygon struct {
		PlainGeometryBase
		Polygons []PlainPolygon `xsd:"wrappedPolygons,required"`
	}
	PlainGeometryCollection struct {
		PlainGeometryBase
		Geometries []PlainGeometry `xsd:"wrappedGeometries,required"`
	}
)

// KML is a geometry as a KML document or as placemarks.
type KML struct {
	Placemarks []string `xsd:"wrappedPlacemarks"`
	KML        *string  `xsd:"@kml"`
}

// elements maps each kind to the Go type of its elements.
var elements = map[geo.Kind]reflect.Type{
	geo.Point:              reflect.TypeFor[Point](),
	geo.LineString:         reflect.TypeFor[LineString](),
	geo.LinearRing:         reflect.TypeFor[LinearRing](),
	geo.Polygon:            reflect.TypeFor[Polygon](),
	geo.MultiPoint:         reflect.TypeFor[MultiPoint](),
	geo.MultiLineString:    reflect.TypeFor[MultiLineString](),
	geo.MultiPolygon:       reflect.TypeFor[MultiPolygon](),
	geo.GeometryCollection: reflect.TypeFor[GeometryCollection](),
}

const plainField = 1 // index of the field Plain in every element

// kinds maps the pointer types of elements and plain geometries to their kinds.
var kinds = func() map[reflect.Type]geo.Kind {
	m := map[reflect.Type]geo.Kind{}
	for kind, element := range elements {
		m[reflect.PointerTo(element)], m[element.Field(plainField).Type] = kind, kind
	}
	return m
}()

// KindOf returns the kind of an element's geometry, or geo.Any for nil.
func KindOf(e EncodedGeometry) geo.Kind { return kinds[reflect.TypeOf(e)] }

// PlainOf returns the PLAIN encoding of an element, or nil if it has none.
func PlainOf(e EncodedGeometry) PlainGeometry {
	if KindOf(e) == geo.Any {
		return nil
	}
	plain := reflect.ValueOf(e).Elem().Field(plainField)
	if plain.IsNil() {
		return nil
	}
	return plain.Interface().(PlainGeometry)
}

// NewElement returns an element of the given kind whose PLAIN encoding is plain, or nil for
// geo.Any. plain must be nil or of the type for that kind.
func NewElement(kind geo.Kind, plain PlainGeometry) EncodedGeometry {
	if kind == geo.Any {
		return nil
	}
	e := reflect.New(elements[kind])
	if plain != nil {
		e.Elem().Field(plainField).Set(reflect.ValueOf(plain))
	}
	return e.Interface().(EncodedGeometry)
}

// The encodings of an element that Read reads. A KML has placemarks besides a document, or instead.
const (
	plain      = string(EncodingPlain)
	wkb        = string(EncodingWKB)
	wkt        = string(EncodingWKT)
	kml        = string(EncodingKML)
	placemarks = "KML placemarks"
)

// EncodingsOf returns the encodings of an element: PLAIN, WKB, WKT, KML or KML placemarks. WKB
// comes first, because only a geometry read from WKB has an SRID.
func EncodingsOf(e EncodedGeometry) (list []string) {
	encoded := e.Encoded()
	if encoded.WKB != nil {
		list = append(list, wkb)
	}
	if PlainOf(e) != nil {
		list = append(list, plain)
	}
	if encoded.WKT != nil {
		list = append(list, wkt)
	}
	if k := encoded.KML; k != nil {
		if k.KML != nil {
			list = append(list, kml)
		}
		if k.Placemarks != nil || k.KML == nil {
			list = append(list, placemarks)
		}
	}
	return list
}

// Read reads the geometry of an element from one of its encodings.
func Read(e EncodedGeometry, encoding string, l geo.Limits) (*geo.Geometry, error) {
	kind, encoded := KindOf(e), e.Encoded()
	switch encoding {
	case wkb:
		return l.ParseWKB(encoded.WKB, kind)
	case plain:
		return FromPlain(PlainOf(e), l)
	case wkt:
		return l.ParseWKT(*encoded.WKT, kind)
	case kml:
		return l.ParseKML(kind, *encoded.KML.KML)
	}
	return l.ParseKML(kind, encoded.KML.Placemarks...)
}

package xroute

import "trafficd/schemas/geo"

// GeometryEncoding names a way to write a geometry.
type GeometryEncoding string

// The encodings.
const (
	EncodingPlain GeometryEncoding = "PLAIN"
	EncodingWKB   GeometryEncoding = "WKB"
	EncodingWKT   GeometryEncoding = "WKT"
	EncodingKML   GeometryEncoding = "KML"
)

// CoordFormat names the coordinates of a geometry. Package geo lists the formats.
type CoordFormat = geo.Format

// EncodedGeometryBase is the root of the geometries. All of them implement EncodedGeometry.
type EncodedGeometryBase interface{ encodedGeometryBase() }

// EncodedGeometry is one of *Point, *LineString, *LinearRing, *Polygon, *MultiPoint,
// *MultiLineString, *MultiPolygon and *GeometryCollection.
type EncodedGeometry interface {
	EncodedGeometryBase
	// Encoded returns the encodings other than the plain one, to read and to set.
	Encoded() *Encodings
}

type geometryBase struct{}

func (*geometryBase) encodedGeometryBase() {}

// Encodings are the members that every EncodedGeometry has.
type Encodings struct {
	geometryBase
	KML *KML    `xsd:"kml"`
	WKB []byte  `xsd:"@wkb"`
	WKT *string `xsd:"@wkt"`
}

// Encoded returns e.
func (e *Encodings) Encoded() *Encodings { return e }

// encoded is a geometry of one kind. The element of its plain form has the name of the kind.
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

// BoundingBox is a rectangle.
type BoundingBox struct {
	LeftTop     *Point `xsd:"leftTop,nillable"`
	RightBottom *Point `xsd:"rightBottom,nillable"`
}

// PlainGeometry is a pointer to one of the Plain types, PlainGeometryBase included.
type PlainGeometry interface{ plainGeometry() }

// PlainGeometryBase is the base of the plain geometries. Contract 5.4 does not call it abstract: on
// its own it is a geometry without coordinates.
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

// KML is a geometry as a KML document or as its placemarks.
type KML struct {
	Placemarks []string `xsd:"wrappedPlacemarks"`
	KML        *string  `xsd:"@kml"`
}

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

// EncodedGeometry is one of *Point, *LineString, *LinearRing, *Polygon, *MultiPoint, *MultiLineString,
// *MultiPolygon and *GeometryCollection.
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

// The encoded geometries.
type (
	// Point is an encoded point.
	Point struct {
		Encodings
		Point *PlainPoint `xsd:"point"`
	}
	// LineString is an encoded line.
	LineString struct {
		Encodings
		LineString *PlainLineString `xsd:"lineString"`
	}
	// LinearRing is an encoded closed line.
	LinearRing struct {
		Encodings
		LinearRing *PlainLinearRing `xsd:"linearRing"`
	}
	// Polygon is an encoded polygon.
	Polygon struct {
		Encodings
		Polygon *PlainPolygon `xsd:"polygon"`
	}
	// MultiPoint is an encoded set of points.
	MultiPoint struct {
		Encodings
		MultiPoint *PlainMultiPoint `xsd:"multiPoint"`
	}
	// MultiLineString is an encoded set of lines.
	MultiLineString struct {
		Encodings
		MultiLineString *PlainMultiLineString `xsd:"multiLineString"`
	}
	// MultiPolygon is an encoded set of polygons.
	MultiPolygon struct {
		Encodings
		MultiPolygon *PlainMultiPolygon `xsd:"multiPolygon"`
	}
	// GeometryCollection is an encoded set of geometries of any kind.
	GeometryCollection struct {
		Encodings
		GeometryCollection *PlainGeometryCollection `xsd:"geometryCollection"`
	}
)

// BoundingBox is a rectangle.
type BoundingBox struct {
	LeftTop     *Point `xsd:"leftTop,nillable"`
	RightBottom *Point `xsd:"rightBottom,nillable"`
}

// PlainGeometry is a pointer to one of the Plain types, PlainGeometryBase included.
type PlainGeometry interface{ plainGeometry() }

// PlainGeometryBase is the base of the plain geometries. Contract 5.4 does not call it abstract: on its
// own it is a geometry without coordinates.
type PlainGeometryBase struct{}

func (*PlainGeometryBase) plainGeometry() {}

// The plain geometries.
type (
	// PlainPoint is a point given by its coordinates.
	PlainPoint struct {
		PlainGeometryBase
		X float64  `xsd:"@x,required"`
		Y float64  `xsd:"@y,required"`
		Z *float64 `xsd:"@z"`
	}
	// PlainLineString is a line given by its points.
	PlainLineString struct {
		PlainGeometryBase
		Points []PlainPoint `xsd:"wrappedPoints,required"`
	}
	// PlainLinearRing is a closed line given by its points.
	PlainLinearRing PlainLineString
	// PlainMultiPoint is a set of points.
	PlainMultiPoint PlainLineString
	// PlainPolygon is a polygon given by its rings.
	PlainPolygon struct {
		PlainGeometryBase
		LinearRings []PlainLinearRing `xsd:"wrappedLinearRings,required"`
	}
	// PlainMultiLineString is a set of lines.
	PlainMultiLineString struct {
		PlainGeometryBase
		LineStrings []PlainLineString `xsd:"wrappedLineStrings,required"`
	}
	// PlainMultiPolygon is a set of polygons.
	PlainMultiPolygon struct {
		PlainGeometryBase
		Polygons []PlainPolygon `xsd:"wrappedPolygons,required"`
	}
	// PlainGeometryCollection is a set of geometries of any kind.
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

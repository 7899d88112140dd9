package xroute

// GeometryEncoding names a way to write a geometry.
type GeometryEncoding string

// The encodings.
const (
	EncodingPlain GeometryEncoding = "PLAIN"
	EncodingWKB   GeometryEncoding = "WKB"
	EncodingWKT   GeometryEncoding = "WKT"
	EncodingKML   GeometryEncoding = "KML"
)

// CoordFormat names the coordinates of a geometry.
type CoordFormat string

// The coordinate formats.
const (
	FormatOGGeoDecimal CoordFormat = "OG_GEODECIMAL"
	FormatMercator     CoordFormat = "VENDOR_MERCATOR"
	FormatGeoMinSec    CoordFormat = "VENDOR_GEOMINSEC"
	FormatGeoDecimal   CoordFormat = "VENDOR_GEODECIMAL"
	FormatConform      CoordFormat = "VENDOR_CONFORM"
	FormatSuperConform CoordFormat = "VENDOR_SUPERCONFORM"
	FormatSmartUnits   CoordFormat = "VENDOR_SMARTUNITS"
	FormatOGSRID       CoordFormat = "OG_SRID"
)

// EncodedGeometryBase is the root of the geometries. All of them are an
// EncodedGeometry too.
type EncodedGeometryBase interface{ encodedGeometryBase() }

// EncodedGeometry is one of *Point, *LineString, *LinearRing, *Polygon,
// *MultiPoint, *MultiLineString, *MultiPolygon and *GeometryCollection.
type EncodedGeometry interface {
	EncodedGeometryBase
	// Encoded gives the encodings other than the plain one, to read and to set.
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

// Encoded gives the encodings themselves.
func (e *Encodings) Encoded() *Encodings { return e }

// BoundingBox is a rectangle.
type BoundingBox struct {
	LeftTop     *Point `xsd:"leftTop,nillable"`
	RightBottom *Point `xsd:"rightBottom,nillable"`
}

// Point is an encoded point.
type Point struct {
	Encodings
	Point *PlainPoint `xsd:"point"`
}

// LineString is an encoded line.
type LineString struct {
	Encodings
	LineString *PlainLineString `xsd:"lineString"`
}

// LinearRing is an encoded closed line.
type LinearRing struct {
	Encodings
	LinearRing *PlainLinearRing `xsd:"linearRing"`
}

// Polygon is an encoded polygon.
type Polygon struct {
	Encodings
	Polygon *PlainPolygon `xsd:"polygon"`
}

// MultiPoint is an encoded set of points.
type MultiPoint struct {
	Encodings
	MultiPoint *PlainMultiPoint `xsd:"multiPoint"`
}

// MultiLineString is an encoded set of lines.
type MultiLineString struct {
	Encodings
	MultiLineString *PlainMultiLineString `xsd:"multiLineString"`
}

// MultiPolygon is an encoded set of polygons.
type MultiPolygon struct {
	Encodings
	MultiPolygon *PlainMultiPolygon `xsd:"multiPolygon"`
}

// GeometryCollection is an encoded set of geometries of any kind.
type GeometryCollection struct {
	Encodings
	GeometryCollection *PlainGeometryCollection `xsd:"geometryCollection"`
}

// PlainGeometry is a pointer to any of the Plain types, PlainGeometryBase too.
type PlainGeometry interface{ plainGeometry() }

// PlainGeometryBase is the base of the plain geometries. The specification
// does not call it abstract: on its own it is a geometry without anything.
type PlainGeometryBase struct{}

func (*PlainGeometryBase) plainGeometry() {}

// PlainPoint is a point by its coordinates.
type PlainPoint struct {
	PlainGeometryBase
	X float64  `xsd:"@x,required"`
	Y float64  `xsd:"@y,required"`
	Z *float64 `xsd:"@z"`
}

// PlainLineString is a line by its points.
type PlainLineString struct {
	PlainGeometryBase
	Points []PlainPoint `xsd:"wrappedPoints,required"`
}

// PlainLinearRing is a closed line by its points.
type PlainLinearRing struct {
	PlainGeometryBase
	Points []PlainPoint `xsd:"wrappedPoints,required"`
}

// PlainPolygon is a polygon by its rings.
type PlainPolygon struct {
	PlainGeometryBase
	LinearRings []PlainLinearRing `xsd:"wrappedLinearRings,required"`
}

// PlainMultiPoint is a set of points.
type PlainMultiPoint struct {
	PlainGeometryBase
	Points []PlainPoint `xsd:"wrappedPoints,required"`
}

// PlainMultiLineString is a set of lines.
type PlainMultiLineString struct {
	PlainGeometryBase
	LineStrings []PlainLineString `xsd:"wrappedLineStrings,required"`
}

// PlainMultiPolygon is a set of polygons.
type PlainMultiPolygon struct {
	PlainGeometryBase
	Polygons []PlainPolygon `xsd:"wrappedPolygons,required"`
}

// PlainGeometryCollection is a set of geometries of any kind.
type PlainGeometryCollection struct {
	PlainGeometryBase
	Geometries []PlainGeometry `xsd:"wrappedGeometries,required"`
}

// KML is a geometry as a KML document, or as its placemarks.
type KML struct {
	Placemarks []string `xsd:"wrappedPlacemarks"`
	KML        *string  `xsd:"@kml"`
}

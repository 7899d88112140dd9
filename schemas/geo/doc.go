// Package geo reads and writes geometries in the encodings of the routing
// service (contract 5.4, GeometryEncoding) and converts their
// coordinates between its formats (CoordFormat, decisions 3).
//
// A geometry is a geom.T of github.com/twpayne/go-geom, in the layout XY or XYZ,
// the same for all members of a collection:
//
//	Point, LineString, LinearRing, Polygon
//	MultiPoint, MultiLineString, MultiPolygon, GeometryCollection
//
// That library has readers too. They take the memory that a count in the input
// asks for (64 GB for nine bytes), follow collections to any depth and allocate
// for each number. The readers here are bounded by Limits, and are held against
// the library's in the tests.
//
// # What is read
//
// WKT and WKB as the OGC's Simple Features 1.2.1 have them, and what PostGIS and
// JTS write beside that: `POINT(1 2 3)` without a Z, `LINEARRING`, in WKB the
// flags for Z and SRID. The SRID stays in the geometry; a Conversion refuses one
// that contradicts the coordinates' system. M is refused. A line has no points or
// two and more; a ring is closed and has none or four and more.
//
// KML 2.2 and its forerunners, in any namespace or none: a whole document, a
// placemark or a geometry alone. If some points have an altitude, that of the
// others is 0. KML has one word, MultiGeometry, for four kinds; which one it is
// says the kind that is wanted, else its members: those of one kind make a
// MultiPoint, MultiLineString or MultiPolygon, all others a GeometryCollection.
//
// A linear ring is a LINESTRING in WKT and WKB: neither has another word that all
// tools read. Where a LinearRing is wanted, a closed line is one.
//
// # What is written
//
// One text for one geometry, with the shortest numbers that read back the same.
//
// # Coordinates
//
// x is the longitude or easting, y the latitude or northing in all formats, also
// where a registry names them the other way round. All conversions go over
// degrees, and none shifts the datum. z is never touched.
package geo

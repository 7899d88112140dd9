// Package geo reads and writes geometries in the encodings of the routing service (contract 5.4,
// GeometryEncoding) and converts their coordinates between its formats (contract 3.2).
//
// A geometry is a geom.T of github.com/twpayne/go-geom with layout XY or XYZ, the same for all
// members of a collection:
//
//	Point, LineString, LinearRing, Polygon
//	MultiPoint, MultiLineString, MultiPolygon, GeometryCollection
//
// The readers of that library allocate as much as a count in the input asks for (64 GB for nine
// bytes), follow collections to any depth and allocate for each number. The readers of this package
// are bounded by Limits; tests compare them with the readers of the library.
//
// # Reading
//
// WKT and WKB follow OGC Simple Features 1.2.1, plus what PostGIS and JTS write: `POINT(1 2 3)`
// without a Z, `LINEARRING`, and in WKB the EWKB flags for Z and SRID. The geometry keeps the SRID;
// a Conversion rejects one that contradicts the coordinate system. M is rejected, or dropped if
// Limits say so. A line has no points or at least two. A ring is closed and has no points or at
// least four.
//
// KML 2.2 and earlier is read in any namespace or none: a whole document, a placemark or a
// geometry. If only some points have an altitude, the others get altitude 0. A MultiGeometry of KML
// can represent four kinds. If none is requested, members of one kind make a MultiPoint,
// MultiLineString or MultiPolygon, and other members make a GeometryCollection.
//
// A linear ring is written as a LINESTRING in WKT and WKB, because not all tools read LINEARRING.
// If a LinearRing is wanted, a closed line is accepted.
//
// Each reader is a Source, from which a Builder makes the geometry. Package xroute has another
// Source, for plain elements.
//
// # Writing
//
// All writers iterate over the Parts of a geometry. Each geometry has exactly one text, with the
// shortest numbers that parse to the same values.
//
// # Coordinates
//
// x is the longitude or easting, y the latitude or northing in all formats, even if the
// EPSG registry has the other order. All conversions go through degrees. None shifts the datum or
// changes z.
package geo

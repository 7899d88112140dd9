// Package geo reads and writes geometries in the encodings of the routing service (contract 5.4,
// GeometryEncoding) and converts their coordinates between formats (contract 3.2).
//
// A Geometry has the layout XY or XYZ, the same for all members of a collection:
//
//	Point, LineString, LinearRing, Polygon
//	MultiPoint, MultiLineString, MultiPolygon, GeometryCollection
//
// Readers are bounded by Limits, whatever counts and depths the input claims.
//
// # Reading
//
// WKT and WKB follow OGC Simple Features 1.2.1, with extensions that PostGIS and JTS write:
// `POINT(1 2 3)` without a Z, `LINEARRING`, and in WKB the EWKB flags for Z and SRID. The geometry
// keeps the SRID; a Conversion rejects an SRID that contradicts the coordinate system. M values are
// rejected, or dropped if Limits.DropMeasures is set. A line has no points or at least two. A ring
// has no points, or is closed and has at least four.
//
// KML 2.2 and earlier is read in any namespace or none: a whole document, a placemark or a
// geometry. If only some points have an altitude, the altitude of the others is 0. A KML
// MultiGeometry can represent four kinds. If no kind is requested, members of the same kind become
// a MultiPoint, MultiLineString or MultiPolygon, and other members a GeometryCollection.
//
// A linear ring is written as a LINESTRING in WKT and WKB, because not all tools read LINEARRING.
// Where a LinearRing is wanted, a closed line is accepted.
//
// A Builder builds the geometry from a Reader: wktReader, wkbReader or kmlTree. Package xroute has
// another Reader, for plain elements.
//
// # Writing
//
// Writers (WKT, WKB, KML, GeoJSON) iterate over the Parts of a geometry. They write equal
// geometries identically, and each number as the shortest text that parses to the same value.
//
// # Coordinates
//
// In every format x is the longitude or easting and y the latitude or northing, even where the EPSG
// registry has the opposite order. All conversions go through degrees. No conversion shifts the
// datum or changes z.
package geo

// Package openlr reads and writes line location references in version 3 of the OpenLR binary
// format, the format that trafficd assumes for the openLRcode of a street. (Contract 5.3 defines it
// only as a string.)
//
// The layout follows public descriptions and open-source decoders of the format. It was checked
// against 20,000 real codes (TestRealCodes), not against the OpenLR white paper. A line consists of
// these bytes; numbers are big-endian:
//
//	status     1  bit 7 reserved, 6 and 4 area, 5 point, 3 attributes, 2–0 version
//	first      9  longitude 3, latitude 3, class, path, distance
//	inner  n × 7  longitude 2, latitude 2, class, path, distance
//	last       6  longitude 2, latitude 2, class, end
//	offsets  0–2  positive, negative, each only if its flag in `end` is set
//
//	class     bits 7–6 reserved, 5–3 functional road class, 2–0 form of way
//	path      bits 7–5 lowest functional road class to the next point (LFRCNP), 4–0 bearing
//	end       bit 7 reserved, flags of the offsets: 6 positive, 5 negative; 4–0 bearing
//	distance  to the next point, along the road
//
// The coordinates of the first point are absolute, in steps of 360/2²⁴ degrees. All others are
// relative to the previous point, in steps of 1/100000 degree. Bearing, distance and offsets are
// indexes of intervals: this package returns the midpoints, and defines constants for half the
// widths.
//
// The number of points follows from the length, because two offsets take fewer bytes than a point.
// Reserved bits must be zero, because their meaning is unknown. Decoding a code and encoding the
// result returns the same bits (FuzzDecodeBinary).
package openlr

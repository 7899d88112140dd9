// Package openlr reads and writes location references of the OpenLR binary
// format, version 3, as far as they are lines: the openLRcode of a street
// (contract 5.3; that it is this format is our reading, the
// specification says "a string").
//
// The layout below is that of public descriptions and open decoders of the
// format. It was held against 20,000 real codes (TestRealCodes), not against
// the text of the OpenLR white paper. A line is, byte by byte, all numbers
// big-endian:
//
//	status     1  bit 7 reserved, 6 and 4 area, 5 point, 3 attributes, 2–0 version
//	first      9  longitude 3, latitude 3, class, path, distance
//	inner  n × 7  longitude 2, latitude 2, class, path, distance
//	last       6  longitude 2, latitude 2, class, end
//	offsets  0–2  positive, negative: those that `end` announces
//
//	class     bits 7–6 reserved, 5–3 functional road class, 2–0 form of way
//	path      bits 7–5 lowest road class up to the next point, 4–0 bearing
//	end       bit 7 reserved, 6 positive and 5 negative offset follow, 4–0 bearing
//	distance  to the next point, along the road
//
// The coordinates of the first point are absolute, in 360/2²⁴ of a degree; all
// others are relative to the point before, in 1/100000 of a degree. Bearing,
// distance and offsets are numbers of intervals; this package gives the middle
// of the interval, and its half width as a constant.
//
// How many points there are follows from the length alone, since up to two
// offsets are always fewer bytes than a point. Nothing may be left over.
// Reserved bits have to be zero: a code that sets them says something that this
// package does not know. What is read is therefore written again bit by bit
// (FuzzDecodeBinary).
package openlr

package routing

import (
	"encoding/binary"
	"fmt"
	"slices"

	"trafficd/schemas/geo"
	"trafficd/schemas/xroute"
)

// syntaxCodes maps each encoding to the error code for input that cannot be parsed.
var syntaxCodes = map[string]xroute.ErrorCode{
	"PLAIN": xroute.CodeGeometryObject, "WKB": xroute.CodeInvalidWKB, "WKT": xroute.CodeInvalidWKT,
	"KML": xroute.CodeInvalidKML, "KML placemarks": xroute.CodeInvalidKML,
}

// read returns the geometry of an element. All its encodings must represent the same geometry.
func read(element xroute.EncodedGeometry, limits geo.Limits) (first *geo.Geometry, _ *failure) {
	kind := xroute.KindOf(element)
	if kind == geo.Any {
		return nil, serviceFailure(xroute.CodeGeometryObject, fmt.Sprintf("%T is not a geometry", element), nil)
	}
	all := xroute.EncodingsOf(element)
	for i, encoding := range all {
		g, err := xroute.Read(element, encoding, limits)
		switch {
		case err != nil:
			return nil, inputFailure(err, syntaxCodes[encoding], "invalid "+encoding).inContext(encoding)
		case i == 0:
			first = g
		case !same(first, g):
			return nil, serviceFailure(xroute.CodeGeometryObject,
				fmt.Sprintf("the encodings %s and %s differ: send only one of them, or the same geometry in all", all[0], encoding), nil)
		}
	}
	if len(all) == 0 {
		return nil, serviceFailure(xroute.CodeGeometryEncoding,
			fmt.Sprintf("the %s has no encoding: send it as plain elements, wkt, wkb or kml", kind), nil)
	}
	return first, nil
}

// same is like geo.Same, but ignores the layout of geometries without points, because PLAIN and KML
// cannot express that they have a z.
func same(a, b *geo.Geometry) bool {
	return geo.Same(a, b) || a.Kind == b.Kind && hasNoPoints(a) && hasNoPoints(b) && geo.Count(a) == geo.Count(b)
}

func hasNoPoints(g *geo.Geometry) bool {
	for p := range geo.Parts(g) {
		if len(p.Flat) > 0 {
			return false
		}
	}
	return true
}

// bytesPerPoint maps each encoding to the estimated size of a point.
var bytesPerPoint = map[xroute.GeometryEncoding]int{
	xroute.EncodingPlain: 80, xroute.EncodingWKB: 30, xroute.EncodingWKT: 42, xroute.EncodingKML: 42,
}

// responseSize estimates the size in bytes of a geometry in the given encodings.
func responseSize(in []xroute.GeometryEncoding, points int) int {
	size := 300 // enclosing elements
	for encoding, bytes := range bytesPerPoint {
		if slices.Contains(in, encoding) {
			size += points * bytes
		}
	}
	return size
}

func write(g *geo.Geometry, kind geo.Kind, in []xroute.GeometryEncoding) xroute.EncodedGeometry {
	var plain xroute.PlainGeometry
	if slices.Contains(in, xroute.EncodingPlain) {
		plain = xroute.ToPlain(g)
	}
	e := xroute.NewElement(kind, plain)
	texts := e.Encoded()
	if slices.Contains(in, xroute.EncodingWKB) {
		texts.WKB = geo.AppendWKB(nil, g, binary.LittleEndian)
	}
	if slices.Contains(in, xroute.EncodingWKT) {
		texts.WKT = new(string(geo.AppendWKT(nil, g)))
	}
	if slices.Contains(in, xroute.EncodingKML) {
		texts.KML = &xroute.KML{KML: new(string(geo.AppendKML(nil, g)))}
	}
	return e
}

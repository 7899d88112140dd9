package routing

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/twpayne/go-geom"

	"trafficd/schemas/geo"
	"trafficd/schemas/xroute"
)

// read returns the geometry of an element. All its encodings must represent the same geometry.
func read(element xroute.EncodedGeometry, limits geo.Limits) (geom.T, *failure) {
	kind := xroute.KindOf(element)
	if kind == geo.Any {
		return nil, serviceFailure(xroute.CodeGeometryObject, fmt.Sprintf("%T is not a geometry", element), nil)
	}
	var first geom.T
	var firstName string
	var f *failure // the first one
	add := func(name string, syntax xroute.ErrorCode, read func() (geom.T, error)) {
		if f != nil {
			return
		}
		g, err := read()
		switch {
		case err != nil:
			f = inputFailure(err, syntax, "invalid "+name).in(name)
		case first == nil:
			first, firstName = g, name
		case !same(first, g):
			f = serviceFailure(xroute.CodeGeometryObject,
				fmt.Sprintf("the encodings %s and %s differ: send only one of them, or the same geometry in all", firstName, name), nil)
		}
	}
	e := element.Encoded()
	if plain := xroute.PlainOf(element); plain != nil {
		add("PLAIN", xroute.CodeGeometryObject, func() (geom.T, error) { return xroute.FromPlain(plain, limits) })
	}
	if e.WKB != nil {
		add("WKB", xroute.CodeInvalidWKB, func() (geom.T, error) { return limits.ParseWKB(e.WKB, kind) })
	}
	if e.WKT != nil {
		add("WKT", xroute.CodeInvalidWKT, func() (geom.T, error) { return limits.ParseWKT(*e.WKT, kind) })
	}
	if e.KML != nil && e.KML.KML != nil {
		add("KML", xroute.CodeInvalidKML, func() (geom.T, error) { return limits.ParseKML(kind, *e.KML.KML) })
	}
	if e.KML != nil && (e.KML.Placemarks != nil || e.KML.KML == nil) {
		add("KML placemarks", xroute.CodeInvalidKML, func() (geom.T, error) { return limits.ParseKML(kind, e.KML.Placemarks...) })
	}
	switch {
	case f != nil:
		return nil, f
	case first == nil:
		return nil, serviceFailure(xroute.CodeGeometryEncoding,
			fmt.Sprintf("the %s has no encoding: send it as plain elements, wkt, wkb or kml", kind), nil)
	}
	return first, nil
}

// same is geo.Same, except for geometries without points: PLAIN and KML cannot express whether
// those have a z coordinate.
func same(a, b geom.T) bool {
	return geo.Same(a, b) || geo.KindOf(a) == geo.KindOf(b) && hasNoPoints(a) && hasNoPoints(b) && geo.Count(a) == geo.Count(b)
}

func hasNoPoints(g geom.T) bool {
	for p := range geo.Parts(g) {
		if len(p.Flat) > 0 {
			return false
		}
	}
	return true
}

// bytesPerPoint are estimates of the size of a geometry.
var bytesPerPoint = map[xroute.GeometryEncoding]int{
	xroute.EncodingPlain: 80, xroute.EncodingWKB: 30, xroute.EncodingWKT: 42, xroute.EncodingKML: 42,
}

// answerSize estimates the bytes of a geometry with so many points in these encodings.
func answerSize(in []xroute.GeometryEncoding, points int) int {
	size := 300 // of the elements around it
	for encoding, bytes := range bytesPerPoint {
		if slices.Contains(in, encoding) {
			size += points * bytes
		}
	}
	return size
}

func write(g geom.T, kind geo.Kind, in []xroute.GeometryEncoding) xroute.EncodedGeometry {
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

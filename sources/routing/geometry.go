package routing

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/twpayne/go-geom"

	"trafficd/schemas/geo"
	"trafficd/schemas/xroute"
)

// read returns the geometry of an element. All its encodings must represent the same geometry. A
// non-nil error is a *failure.
func read(element xroute.EncodedGeometry, limits geo.Limits) (geom.T, error) {
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
			if !errors.As(err, &f) {
				f = inputFailure(err, syntax, "invalid "+name)
			}
			f = f.in(name)
		case first == nil:
			first, firstName = g, name
		case !same(first, g):
			f = serviceFailure(xroute.CodeGeometryObject,
				fmt.Sprintf("the encodings %s and %s differ: send only one of them, or the same geometry in all", firstName, name), nil)
		}
	}
	e := element.Encoded()
	if plain := xroute.PlainOf(element); plain != nil {
		add("PLAIN", xroute.CodeGeometryObject, func() (geom.T, error) { return readPlain(plain, limits) })
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

// same is geo.Same, except for geometries without points: PLAIN and KML cannot express whether those
// have a z coordinate.
func same(a, b geom.T) bool {
	return geo.Same(a, b) || geo.KindOf(a) == geo.KindOf(b) && hasNoPoints(a) && hasNoPoints(b) && parts(a) == parts(b)
}

func hasNoPoints(g geom.T) bool {
	return !slices.ContainsFunc(flats(g), func(part geom.T) bool { return len(part.FlatCoords()) > 0 })
}

func readPlain(p xroute.PlainGeometry, limits geo.Limits) (geom.T, error) {
	g, err := xroute.FromPlain(p)
	if err != nil {
		return nil, serviceFailure(xroute.CodeGeometryObject, "invalid plain elements", err)
	}
	if at := notFinite(g); at >= 0 {
		return nil, serviceFailure(xroute.CodeCoordinateFormat, fmt.Sprintf("point %d has a coordinate that is not a finite number", at), nil)
	}
	return g, limits.Check(g)
}

// notFinite returns the index of the first point with a coordinate that is NaN or infinite, or -1. XML
// can express these values, the other encodings cannot.
func notFinite(g geom.T) int {
	points := 0
	for _, part := range flats(g) {
		for i, v := range part.FlatCoords() {
			if math.IsNaN(v) || math.IsInf(v, 0) {
				return points + i/part.Stride()
			}
		}
		points += len(part.FlatCoords()) / max(part.Stride(), 1)
	}
	return -1
}

// flats returns the geometries with coordinates: g, or the members of all its collections.
func flats(g geom.T) []geom.T {
	c, ok := g.(*geom.GeometryCollection)
	if !ok {
		return []geom.T{g}
	}
	var list []geom.T
	for _, member := range c.Geoms() {
		list = append(list, flats(member)...)
	}
	return list
}

// parts counts what geo.Limits counts: points, rings, lines, members.
func parts(g geom.T) int {
	n := 1
	if c, ok := g.(*geom.GeometryCollection); ok {
		for _, member := range c.Geoms() {
			n += parts(member)
		}
		return n
	}
	n += len(g.FlatCoords())/max(g.Stride(), 1) + len(g.Ends())
	for _, ends := range g.Endss() {
		n += 1 + len(ends)
	}
	return n
}

// encodings is a set of encodings.
type encodings struct{ plain, wkb, wkt, kml bool }

// size estimates the size in bytes of a response with the given number of points.
func (e encodings) size(points int) int {
	const frame, plain, wkb, text = 300, 80, 30, 42
	size := frame
	for _, x := range []struct {
		wanted bool
		bytes  int
	}{{e.plain, plain}, {e.wkb, wkb}, {e.wkt, text}, {e.kml, text}} {
		if x.wanted {
			size += points * x.bytes
		}
	}
	return size
}

// write returns the geometry as an element of its kind, in the given encodings.
func write(g geom.T, kind geo.Kind, in encodings) xroute.EncodedGeometry {
	var plain xroute.PlainGeometry
	if in.plain {
		plain = xroute.ToPlain(g)
	}
	e := xroute.NewElement(kind, plain)
	texts := e.Encoded()
	if in.wkb {
		texts.WKB = geo.AppendWKB(nil, g, binary.LittleEndian)
	}
	if in.wkt {
		text := string(geo.AppendWKT(nil, g))
		texts.WKT = &text
	}
	if in.kml {
		text := string(geo.AppendKML(nil, g))
		texts.KML = &xroute.KML{KML: &text}
	}
	return e
}

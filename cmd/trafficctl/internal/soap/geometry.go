package soap

import (
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"

	"github.com/twpayne/go-geom"

	"trafficd/schemas/geo"
	"trafficd/schemas/xroute"
)

// Encode gives a geometry to send: as WKB, which keeps every bit of a coordinate.
func Encode(g geom.T) (xroute.EncodedGeometry, error) {
	e := elements[geo.KindOf(g)]
	if e == nil {
		return nil, fmt.Errorf("a %T cannot be sent to the routing service", g)
	}
	made := e()
	made.Encoded().WKB = geo.AppendWKB(nil, g, binary.LittleEndian)
	return made, nil
}

// elements make the type of each kind.
var elements = map[geo.Kind]func() xroute.EncodedGeometry{
	geo.Point:              func() xroute.EncodedGeometry { return new(xroute.Point) },
	geo.LineString:         func() xroute.EncodedGeometry { return new(xroute.LineString) },
	geo.LinearRing:         func() xroute.EncodedGeometry { return new(xroute.LinearRing) },
	geo.Polygon:            func() xroute.EncodedGeometry { return new(xroute.Polygon) },
	geo.MultiPoint:         func() xroute.EncodedGeometry { return new(xroute.MultiPoint) },
	geo.MultiLineString:    func() xroute.EncodedGeometry { return new(xroute.MultiLineString) },
	geo.MultiPolygon:       func() xroute.EncodedGeometry { return new(xroute.MultiPolygon) },
	geo.GeometryCollection: func() xroute.EncodedGeometry { return new(xroute.GeometryCollection) },
}

// kindOf gives the kind that a type stands for.
func kindOf(e xroute.EncodedGeometry) geo.Kind {
	for kind, element := range elements {
		if reflect.TypeOf(element()) == reflect.TypeOf(e) {
			return kind
		}
	}
	return geo.Any
}

// errNoEncoding is what Decode returns for a geometry in plain elements only.
var errNoEncoding = errors.New("it came as PLAIN only: start jobs with WKB, WKT or KML among wrappedResponseGeometry to fetch them here")

// Decode reads a geometry from the best of the encodings that it has.
func Decode(e xroute.EncodedGeometry, limits geo.Limits) (geom.T, error) {
	encoded, kind := e.Encoded(), kindOf(e)
	switch {
	case encoded.WKB != nil:
		return limits.ParseWKB(encoded.WKB, kind)
	case encoded.WKT != nil:
		return limits.ParseWKT(*encoded.WKT, kind)
	case encoded.KML != nil && encoded.KML.KML != nil:
		return limits.ParseKML(kind, *encoded.KML.KML)
	case encoded.KML != nil:
		return limits.ParseKML(kind, encoded.KML.Placemarks...)
	}
	return nil, errNoEncoding
}

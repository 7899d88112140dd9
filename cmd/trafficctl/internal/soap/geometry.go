package soap

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/twpayne/go-geom"

	"trafficd/schemas/geo"
	"trafficd/schemas/xroute"
)

// Encode gives a geometry to send: as WKB, which keeps every bit of a coordinate.
func Encode(g geom.T) (xroute.EncodedGeometry, error) {
	e := xroute.NewElement(geo.KindOf(g), nil)
	if e == nil {
		return nil, fmt.Errorf("a %T cannot be sent to the routing service", g)
	}
	e.Encoded().WKB = geo.AppendWKB(nil, g, binary.LittleEndian)
	return e, nil
}

var errNoEncoding = errors.New("the answer has it in no encoding")

// Decode reads a geometry from the best of the encodings that it has.
func Decode(e xroute.EncodedGeometry, limits geo.Limits) (geom.T, error) {
	encoded, kind := e.Encoded(), xroute.KindOf(e)
	plain := xroute.PlainOf(e)
	switch {
	case encoded.WKB != nil:
		return limits.ParseWKB(encoded.WKB, kind)
	case plain != nil:
		return decodePlain(plain, limits)
	case encoded.WKT != nil:
		return limits.ParseWKT(*encoded.WKT, kind)
	case encoded.KML != nil && encoded.KML.KML != nil:
		return limits.ParseKML(kind, *encoded.KML.KML)
	case encoded.KML != nil:
		return limits.ParseKML(kind, encoded.KML.Placemarks...)
	}
	return nil, errNoEncoding
}

func decodePlain(p xroute.PlainGeometry, limits geo.Limits) (geom.T, error) {
	g, err := xroute.FromPlain(p)
	if err != nil {
		return nil, err
	}
	return g, limits.Check(g)
}

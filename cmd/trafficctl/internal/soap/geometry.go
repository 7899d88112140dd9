package soap

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

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
	wkb := geo.AppendWKB(nil, g, binary.LittleEndian)
	if id := g.SRID(); id != 0 {
		wkb = withSRID(wkb, id)
	}
	e.Encoded().WKB = wkb
	return e, nil
}

// withSRID makes the WKB of a geometry, which begins with the order of its bytes and its
// kind, PostGIS's EWKB: the service is to see where an SRID contradicts the
// coordinates' format.
func withSRID(wkb []byte, id int) []byte {
	const kindAt, idAt, flag = 1, 5, 0x2000_0000
	order := binary.LittleEndian
	order.PutUint32(wkb[kindAt:], order.Uint32(wkb[kindAt:])|flag)
	return slices.Insert(wkb, idAt, order.AppendUint32(nil, uint32(id))...)
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

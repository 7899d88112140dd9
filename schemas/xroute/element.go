package xroute

import (
	"reflect"

	"github.com/twpayne/go-geom"

	"trafficd/schemas/geo"
)

// elements has the type of each kind's element.
var elements = map[geo.Kind]reflect.Type{
	geo.Point:              reflect.TypeFor[Point](),
	geo.LineString:         reflect.TypeFor[LineString](),
	geo.LinearRing:         reflect.TypeFor[LinearRing](),
	geo.Polygon:            reflect.TypeFor[Polygon](),
	geo.MultiPoint:         reflect.TypeFor[MultiPoint](),
	geo.MultiLineString:    reflect.TypeFor[MultiLineString](),
	geo.MultiPolygon:       reflect.TypeFor[MultiPolygon](),
	geo.GeometryCollection: reflect.TypeFor[GeometryCollection](),
}

const plainField = 1 // of every element

// kinds has the kind of each pointer to an element or a plain geometry.
var kinds = func() map[reflect.Type]geo.Kind {
	m := map[reflect.Type]geo.Kind{}
	for kind, element := range elements {
		m[reflect.PointerTo(element)], m[element.Field(plainField).Type] = kind, kind
	}
	return m
}()

// KindOf returns the kind of an element's geometry, geo.Any for nil.
func KindOf(e EncodedGeometry) geo.Kind { return kinds[reflect.TypeOf(e)] }

// PlainOf returns the plain encoding of an element, nil if it has none.
func PlainOf(e EncodedGeometry) PlainGeometry {
	if KindOf(e) == geo.Any {
		return nil
	}
	plain := reflect.ValueOf(e).Elem().Field(plainField)
	if plain.IsNil() {
		return nil
	}
	return plain.Interface().(PlainGeometry)
}

// NewElement returns the element of a kind, nil for geo.Any. plain is nil or of the type that
// belongs to the kind.
func NewElement(kind geo.Kind, plain PlainGeometry) EncodedGeometry {
	if kind == geo.Any {
		return nil
	}
	e := reflect.New(elements[kind])
	if plain != nil {
		e.Elem().Field(plainField).Set(reflect.ValueOf(plain))
	}
	return e.Interface().(EncodedGeometry)
}

// Reading reads the geometry of an element from one of its encodings.
type Reading struct {
	Encoding string // PLAIN, WKB, WKT, KML or KML placemarks
	Read     func(geo.Limits) (geom.T, error)
}

// Readings lists the encodings that an element has.
func Readings(e EncodedGeometry) (list []Reading) {
	kind, plain, encoded := KindOf(e), PlainOf(e), e.Encoded()
	add := func(encoding string, read func(geo.Limits) (geom.T, error)) {
		list = append(list, Reading{encoding, read})
	}
	if plain != nil {
		add("PLAIN", func(l geo.Limits) (geom.T, error) { return FromPlain(plain, l) })
	}
	if encoded.WKB != nil {
		add("WKB", func(l geo.Limits) (geom.T, error) { return l.ParseWKB(encoded.WKB, kind) })
	}
	if encoded.WKT != nil {
		add("WKT", func(l geo.Limits) (geom.T, error) { return l.ParseWKT(*encoded.WKT, kind) })
	}
	if kml := encoded.KML; kml != nil {
		if kml.KML != nil {
			add("KML", func(l geo.Limits) (geom.T, error) { return l.ParseKML(kind, *kml.KML) })
		}
		if kml.Placemarks != nil || kml.KML == nil {
			add("KML placemarks", func(l geo.Limits) (geom.T, error) { return l.ParseKML(kind, kml.Placemarks...) })
		}
	}
	return list
}

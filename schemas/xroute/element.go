package xroute

import (
	"reflect"

	"trafficd/schemas/geo"
)

// elements has the type of each kind's element. Its second field is the plain encoding.
var elements = [...]reflect.Type{
	geo.Point:              reflect.TypeFor[Point](),
	geo.LineString:         reflect.TypeFor[LineString](),
	geo.LinearRing:         reflect.TypeFor[LinearRing](),
	geo.Polygon:            reflect.TypeFor[Polygon](),
	geo.MultiPoint:         reflect.TypeFor[MultiPoint](),
	geo.MultiLineString:    reflect.TypeFor[MultiLineString](),
	geo.MultiPolygon:       reflect.TypeFor[MultiPolygon](),
	geo.GeometryCollection: reflect.TypeFor[GeometryCollection](),
}

const plainField = 1

// KindOf returns the kind of geometry that an element is for, geo.Any for nil.
func KindOf(e EncodedGeometry) geo.Kind {
	for kind, element := range elements {
		if element != nil && reflect.TypeOf(e) == reflect.PointerTo(element) {
			return geo.Kind(kind)
		}
	}
	return geo.Any
}

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

// NewElement returns the element of a kind, nil for geo.Any. plain is nil or of the type that belongs to
// the kind.
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

// kindOfPlain returns the kind of a plain geometry, geo.Any for a PlainGeometryBase.
func kindOfPlain(p PlainGeometry) geo.Kind {
	for kind, element := range elements {
		if element != nil && reflect.TypeOf(p) == element.Field(plainField).Type {
			return geo.Kind(kind)
		}
	}
	return geo.Any
}

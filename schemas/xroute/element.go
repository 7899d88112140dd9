package xroute

import "trafficd/schemas/geo"

// KindOf gives the kind of geometry that an element is for, geo.Any for what is none.
func KindOf(e EncodedGeometry) geo.Kind {
	kind, _ := partsOf(e)
	return kind
}

// PlainOf gives the plain encoding of an element, nil where it has none.
func PlainOf(e EncodedGeometry) PlainGeometry {
	_, plain := partsOf(e)
	return plain
}

func partsOf(e EncodedGeometry) (geo.Kind, PlainGeometry) {
	switch e := e.(type) {
	case *Point:
		return geo.Point, orNil(e.Point)
	case *LineString:
		return geo.LineString, orNil(e.LineString)
	case *LinearRing:
		return geo.LinearRing, orNil(e.LinearRing)
	case *Polygon:
		return geo.Polygon, orNil(e.Polygon)
	case *MultiPoint:
		return geo.MultiPoint, orNil(e.MultiPoint)
	case *MultiLineString:
		return geo.MultiLineString, orNil(e.MultiLineString)
	case *MultiPolygon:
		return geo.MultiPolygon, orNil(e.MultiPolygon)
	case *GeometryCollection:
		return geo.GeometryCollection, orNil(e.GeometryCollection)
	}
	return geo.Any, nil
}

// orNil keeps a nil pointer from being an interface that is not nil.
func orNil[P interface {
	comparable
	PlainGeometry
}](plain P) PlainGeometry {
	var none P
	if plain == none {
		return nil
	}
	return plain
}

// NewElement makes the element of a kind, nil for geo.Any. plain is of the type that goes
// with it, or nil.
func NewElement(kind geo.Kind, plain PlainGeometry) EncodedGeometry {
	switch kind {
	case geo.Point:
		return &Point{Point: as[*PlainPoint](plain)}
	case geo.LineString:
		return &LineString{LineString: as[*PlainLineString](plain)}
	case geo.LinearRing:
		return &LinearRing{LinearRing: as[*PlainLinearRing](plain)}
	case geo.Polygon:
		return &Polygon{Polygon: as[*PlainPolygon](plain)}
	case geo.MultiPoint:
		return &MultiPoint{MultiPoint: as[*PlainMultiPoint](plain)}
	case geo.MultiLineString:
		return &MultiLineString{MultiLineString: as[*PlainMultiLineString](plain)}
	case geo.MultiPolygon:
		return &MultiPolygon{MultiPolygon: as[*PlainMultiPolygon](plain)}
	case geo.GeometryCollection:
		return &GeometryCollection{GeometryCollection: as[*PlainGeometryCollection](plain)}
	}
	return nil
}

// as gives nil for nil, where a type assertion would panic.
func as[P PlainGeometry](plain PlainGeometry) P {
	p, _ := plain.(P)
	return p
}

package geo

import "errors"

// AppendGeoJSON appends g as a geometry of RFC 7946. A ring becomes a line, because GeoJSON has no
// rings. A MultiPoint with an empty point is an error.
func AppendGeoJSON(dst []byte, g *Geometry) ([]byte, error) {
	for p := range Parts(g) {
		if p.Index > 0 && !p.End {
			dst = append(dst, ',')
		}
		whole := p.In == Any || p.In == GeometryCollection
		if whole && !p.End {
			kind, list := p.Kind, `","coordinates":`
			switch kind {
			case LinearRing:
				kind = LineString
			case GeometryCollection:
				list = `","geometries":`
			}
			dst = append(append(append(dst, `{"type":"`...), kinds[kind].name...), list...)
		}
		switch {
		case p.End:
			dst = append(dst, ']')
		case p.Kind.hasParts():
			dst = append(dst, '[')
		case p.Kind != Point && p.Len == 0:
			dst = append(dst, "[]"...)
		case p.Kind != Point:
			dst = append(p.appendPoints(append(dst, "[["...), ',', "],["), "]]"...)
		case p.Len == 0 && !whole:
			return dst, errors.New("it does not support empty points in a MultiPoint")
		default:
			dst = append(p.appendPoints(append(dst, '['), ',', ""), ']')
		}
		if whole && (p.End || !p.Kind.hasParts()) {
			dst = append(dst, '}')
		}
	}
	return dst, nil
}

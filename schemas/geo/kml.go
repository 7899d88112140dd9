package geo

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/twpayne/go-geom"
)

// ErrNoPlacemark means that KML is well-formed, but no placemark in it has a geometry.
var ErrNoPlacemark = errors.New("no placemark with a geometry")

const (
	maxXMLDepth = 256 // of elements: folders in folders, and what is skipped
	kmlStride   = 3
)

// ParseKML reads the geometries of all placemarks of all texts as one geometry: one geometry as
// itself, several as if they were in a MultiGeometry. Each text is a document, a placemark or a
// geometry. Each MultiGeometry counts as a collection for the Depth. The error names the byte, counted
// from 0 after a byte order mark. It is ErrNoPlacemark, ErrKind or ErrTooLarge if one of these applies.
func (l Limits) ParseKML(want Kind, texts ...string) (geom.T, error) {
	r := kmlReader{budget: budget{limits: l}}
	for i, text := range texts {
		if err := r.document(text); err != nil {
			number := ""
			if len(texts) > 1 {
				number = fmt.Sprintf("text %d, ", i)
			}
			return nil, fmt.Errorf("cannot read KML: %sbyte %d: %w", number, r.xml.InputOffset(), err)
		}
	}
	if len(r.found) == 0 {
		return nil, fmt.Errorf("cannot read KML: %w", ErrNoPlacemark)
	}
	g, err := r.result(want)
	if err != nil || r.altitude {
		return g, err
	}
	return withoutZ(g), nil
}

// result returns what was found, as the kind that is wanted.
func (r *kmlReader) result(want Kind) (geom.T, error) {
	if len(r.found) > 1 {
		return combine(r.found, want)
	}
	multi, ok := r.found[0].(*geom.GeometryCollection)
	switch {
	case ok:
		return combine(multi.Geoms(), want)
	case want.hasMembers():
		return combine(r.found, want)
	}
	return as(r.found[0], want)
}

// combine returns one geometry of the wanted kind from members: MultiGeometry represents four
// kinds. Collections among the members become what their own members are.
func combine(members []geom.T, want Kind) (geom.T, error) {
	common := Any
	for i, g := range members {
		if multi, ok := g.(*geom.GeometryCollection); ok {
			var err error
			if members[i], err = combine(multi.Geoms(), Any); err != nil {
				return nil, err
			}
		}
		switch multi := kinds[KindOf(members[i])].multi; {
		case i == 0:
			common = multi
		case multi != common:
			common = GeometryCollection
		}
	}
	if common == Any {
		common = GeometryCollection
	}
	switch {
	case want == GeometryCollection || want == Any && common == GeometryCollection:
		return collect(geom.XYZ, members), nil
	case want == Any:
		want = common
	case !want.hasMembers():
		return nil, kindError(common, want)
	}
	var flat []float64
	var ends []int
	var endss [][]int
	for i, g := range members {
		g, err := as(g, want-MultiPoint+Point)
		if err != nil {
			return nil, fmt.Errorf("member %d of a %s: %w", i, want, err)
		}
		rings := slices.Clone(g.Ends())
		for i := range rings {
			rings[i] += len(flat)
		}
		flat = append(flat, g.FlatCoords()...)
		ends, endss = append(ends, len(flat)), append(endss, rings)
	}
	return New(want, geom.XYZ, flat, ends, endss), nil
}

// withoutZ returns g with the layout XY. It reuses the memory of g.
func withoutZ(g geom.T) geom.T {
	if c, ok := g.(*geom.GeometryCollection); ok {
		members := c.Geoms()
		for i, member := range members {
			members[i] = withoutZ(member)
		}
		return collect(geom.XY, members)
	}
	flat := g.FlatCoords()
	n := 0
	for i := 0; i < len(flat); i += kmlStride {
		flat[n], flat[n+1] = flat[i], flat[i+1]
		n += 2
	}
	for _, ends := range append([][]int{g.Ends()}, g.Endss()...) {
		for i := range ends {
			ends[i] = ends[i] / kmlStride * 2
		}
	}
	return New(KindOf(g), geom.XY, flat[:n], g.Ends(), g.Endss())
}

// kmlReader collects geometries, all of layout XYZ. A MultiGeometry is a collection until the kind
// that is wanted is known.
type kmlReader struct {
	xml      *xml.Decoder
	in       *tagMeter
	depth    int // of elements
	found    []geom.T
	altitude bool // some point has one
	budget   budget
	text     []byte // of the current coordinates
}

// document reads a text to its end.
func (r *kmlReader) document(text string) error {
	r.in = &tagMeter{Reader: strings.NewReader(strings.TrimPrefix(text, "\ufeff"))}
	r.xml = xml.NewDecoder(r.in)
	// The text is decoded already, whatever its declaration says.
	r.xml.CharsetReader = func(_ string, in io.Reader) (io.Reader, error) { return in, nil }
	r.depth = 0
	root, found, err := r.topLevel("before the first element")
	switch {
	case err != nil:
		return err
	case !found:
		return errors.New("no element")
	case kmlKind(root) == Any:
		err = r.search(root.Name.Local == "Placemark")
	default:
		err = r.add(root)
	}
	if err != nil {
		return err
	}
	second, found, err := r.topLevel("after the last element")
	if found {
		return fmt.Errorf("second root element %.40q", second.Name.Local)
	}
	return err
}

// topLevel reads up to the next element outside the root, where only white space is allowed. It
// returns false at the end of the text.
func (r *kmlReader) topLevel(place string) (e xml.StartElement, found bool, err error) {
	for {
		token, err := r.next()
		if errors.Is(err, io.EOF) {
			return e, false, nil
		}
		if err != nil {
			return e, false, err
		}
		switch token := token.(type) {
		case xml.StartElement:
			return token, true, nil
		case xml.CharData:
			if spaceLen(token) < len(token) {
				return e, false, errors.New("text " + place)
			}
		}
	}
}

// next returns the next token and follows the depth.
func (r *kmlReader) next() (xml.Token, error) {
	r.in.next()
	token, err := r.xml.Token()
	switch token.(type) {
	case xml.StartElement:
		r.depth++
		if r.depth > maxXMLDepth {
			return nil, fmt.Errorf("%w: elements deeper than %d", ErrTooLarge, maxXMLDepth)
		}
	case xml.EndElement:
		r.depth--
	}
	return token, err
}

// content calls child and text for the content of the open element, up to its end. child must read
// the element to its end. text may be nil.
func (r *kmlReader) content(child func(xml.StartElement) error, text func(xml.CharData)) error {
	for {
		token, err := r.next()
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return err
		}
		switch token := token.(type) {
		case xml.StartElement:
			if err := child(token); err != nil {
				return err
			}
		case xml.CharData:
			if text != nil {
				text(token)
			}
		case xml.EndElement:
			return nil
		}
	}
}

func (r *kmlReader) skip() error {
	return r.content(func(xml.StartElement) error { return r.skip() }, nil)
}

// search looks for placemarks at any depth, and for geometries in them.
func (r *kmlReader) search(inPlacemark bool) error {
	return r.content(func(child xml.StartElement) error {
		if !inPlacemark || kmlKind(child) == Any {
			return r.search(child.Name.Local == "Placemark")
		}
		return r.add(child)
	}, nil)
}

// add reads the geometry of an open element and keeps it.
func (r *kmlReader) add(e xml.StartElement) error {
	g, err := r.geometry(e)
	if err == nil {
		r.found = append(r.found, g)
	}
	return err
}

// kmlKind returns GeometryCollection for a MultiGeometry, and Any for what is not a geometry.
func kmlKind(e xml.StartElement) Kind {
	switch e.Name.Local {
	case "Point":
		return Point
	case "LineString":
		return LineString
	case "LinearRing":
		return LinearRing
	case "Polygon":
		return Polygon
	case "MultiGeometry":
		return GeometryCollection
	}
	return Any
}

// geometry reads the geometry of an open element.
func (r *kmlReader) geometry(e xml.StartElement) (geom.T, error) {
	if err := r.budget.take(1); err != nil {
		return nil, err
	}
	kind := kmlKind(e)
	switch kind {
	case Polygon:
		return r.polygon()
	case GeometryCollection:
		return r.multiGeometry()
	}
	flat, err := r.points(e.Name.Local)
	switch {
	case err != nil:
		return nil, err
	case kind == LineString:
		err = checkLine(flat, kmlStride)
	case kind == LinearRing:
		err = checkRing(flat, kmlStride)
	case len(flat) > kmlStride:
		err = fmt.Errorf("a Point of %d points", len(flat)/kmlStride)
	}
	return New(kind, geom.XYZ, flat, nil, nil), err
}

// multiGeometry returns a collection of the members as they are in KML.
func (r *kmlReader) multiGeometry() (geom.T, error) {
	if err := r.budget.enter(); err != nil {
		return nil, err
	}
	defer r.budget.leave()
	var members []geom.T
	err := r.content(func(child xml.StartElement) error {
		if kmlKind(child) == Any {
			return r.skip()
		}
		g, err := r.geometry(child)
		members = append(members, g)
		return err
	}, nil)
	if err != nil {
		return nil, err
	}
	return collect(geom.XYZ, members), nil
}

func (r *kmlReader) polygon() (geom.T, error) {
	var outer, inner [][]float64
	err := r.content(func(child xml.StartElement) error {
		switch child.Name.Local {
		case "outerBoundaryIs":
			return r.boundary(&outer)
		case "innerBoundaryIs":
			return r.boundary(&inner)
		}
		return r.skip()
	}, nil)
	if err != nil {
		return nil, err
	}
	if len(outer) > 1 || len(outer) == 0 && len(inner) > 0 {
		return nil, fmt.Errorf("a Polygon with %d outer and %d inner rings: want one outer ring", len(outer), len(inner))
	}
	var flat []float64
	var ends []int
	for _, ring := range append(outer, inner...) {
		flat = append(flat, ring...)
		ends = append(ends, len(flat))
	}
	return New(Polygon, geom.XYZ, flat, ends, nil), nil
}

func (r *kmlReader) boundary(rings *[][]float64) error {
	return r.content(func(child xml.StartElement) error {
		if kmlKind(child) != LinearRing {
			return r.skip()
		}
		if err := r.budget.take(1); err != nil {
			return err
		}
		flat, err := r.points(child.Name.Local)
		*rings = append(*rings, flat)
		if err != nil {
			return err
		}
		return checkRing(flat, kmlStride)
	}, nil)
}

// points reads the coordinates of an open element.
func (r *kmlReader) points(element string) (flat []float64, err error) {
	seen := false
	err = r.content(func(child xml.StartElement) error {
		if child.Name.Local != "coordinates" {
			return r.skip()
		}
		if seen {
			return fmt.Errorf("duplicate coordinates of a %s", element)
		}
		seen = true
		r.text = r.text[:0]
		err := r.content(func(child xml.StartElement) error {
			return fmt.Errorf("element %.40q within coordinates", child.Name.Local)
		}, func(text xml.CharData) { r.text = append(r.text, text...) })
		if err == nil {
			flat, err = r.tuples(r.text)
		}
		return err
	}, nil)
	if err == nil && !seen {
		err = fmt.Errorf("a %s without coordinates", element)
	}
	return flat, err
}

// tuples reads "x,y,z x,y …".
func (r *kmlReader) tuples(text []byte) (flat []float64, err error) {
	for text = text[spaceLen(text):]; len(text) > 0; {
		if err := r.budget.take(1); err != nil {
			return nil, err
		}
		if flat, text, err = r.tuple(flat, text); err != nil {
			return nil, fmt.Errorf("coordinates of point %d: %w", len(flat)/kmlStride, err)
		}
	}
	return flat, nil
}

// tuple reads the numbers of a point and the white space after it. White space beside a comma is an
// error, as in the standard: "9, 10,50" can be a point, or two points without a y of the first.
func (r *kmlReader) tuple(flat []float64, text []byte) ([]float64, []byte, error) {
	for n := 1; ; n++ {
		length := numberLen(text)
		v, err := strconv.ParseFloat(string(text[:length]), 64)
		if err != nil || !finite(v) {
			return flat, nil, fmt.Errorf("%.20q does not start with a number within the range of a double", text)
		}
		flat = append(flat, v)
		text = text[length:]
		space := spaceLen(text)
		switch comma := len(text) > space && text[space] == ','; {
		case comma && (space > 0 || spaceLen(text[1:]) > 0):
			return flat, nil, fmt.Errorf("white space beside a comma: %.20q", text)
		case comma && n < kmlStride:
			text = text[1:]
		case comma:
			return flat, nil, fmt.Errorf("more than x,y,z: %.20q", text)
		case n == 1:
			return flat, nil, fmt.Errorf("no y after the x %v", v)
		case n == 2:
			return append(flat, 0), text[space:], nil
		default:
			r.altitude = true
			return flat, text[space:], nil
		}
	}
}

// maxTag bounds what the XML decoder keeps of a tag, because an attribute takes more than ten times the
// memory of its text. Tags of KML contain names and namespaces only.
const maxTag = 16 << 10

// tagMeter is the text on its way to the XML decoder, which reads byte by byte. It fails at a tag of
// more than maxTag bytes.
type tagMeter struct {
	*strings.Reader
	at    int // bytes of the token so far
	last  byte
	inTag bool
}

// next must be called before each token. The decoder reads no further than to the end of a token, but
// for the < that ends a text.
func (m *tagMeter) next() {
	m.at = 0
	if m.last == '<' {
		m.at = 1
	}
}

// ReadByte implements io.ByteReader.
func (m *tagMeter) ReadByte() (byte, error) {
	c, err := m.Reader.ReadByte()
	if err != nil {
		return 0, err
	}
	if m.at <= 1 { // a tag is < followed by neither ! nor ?, which start comments and the like
		m.inTag = m.at == 0 && c == '<' || m.at == 1 && m.last == '<' && c != '!' && c != '?'
	}
	m.last = c
	if m.at++; m.inTag && m.at > maxTag {
		return 0, fmt.Errorf("%w: a tag of more than %d bytes", ErrTooLarge, maxTag)
	}
	return c, nil
}

// AppendKML appends g, which must satisfy Check, as a KML document with one placemark.
func AppendKML(dst []byte, g geom.T) []byte {
	dst = append(dst, `<kml xmlns="http://www.opengis.net/kml/2.2">`...)
	dst = AppendPlacemark(dst, g)
	return append(dst, "</kml>"...)
}

// AppendPlacemark appends g as a placemark.
func AppendPlacemark(dst []byte, g geom.T) []byte {
	dst = append(dst, "<Placemark>"...)
	dst = AppendKMLGeometry(dst, g)
	return append(dst, "</Placemark>"...)
}

// AppendKMLGeometry appends g as the element of a geometry.
func AppendKMLGeometry(dst []byte, g geom.T) []byte {
	w := kmlWriter{dst: dst, stride: g.Stride()}
	w.geometry(g)
	return w.dst
}

type kmlWriter struct {
	dst    []byte
	stride int
}

func (w *kmlWriter) geometry(g geom.T) {
	kind, flat := KindOf(g), g.FlatCoords
	if kind.hasMembers() {
		w.text("<MultiGeometry>")
		defer w.text("</MultiGeometry>")
	}
	switch kind {
	case Point, LineString, LinearRing:
		w.points(kind.String(), flat())
	case Polygon:
		w.polygon(flat(), 0, g.Ends())
	case MultiPoint:
		parts(flat(), 0, g.Ends(), func(_ int, part []float64) { w.points("Point", part) })
	case MultiLineString:
		parts(flat(), 0, g.Ends(), func(_ int, part []float64) { w.points("LineString", part) })
	case MultiPolygon:
		polygons(g.Endss(), func(_, start int, ends []int) { w.polygon(flat(), start, ends) })
	case GeometryCollection:
		for _, member := range membersOf(g) {
			w.geometry(member)
		}
	}
}

func (w *kmlWriter) polygon(flat []float64, start int, ends []int) {
	w.text("<Polygon>")
	parts(flat, start, ends, func(i int, part []float64) {
		boundary := "innerBoundaryIs"
		if i == 0 {
			boundary = "outerBoundaryIs"
		}
		w.text("<", boundary, ">")
		w.points("LinearRing", part)
		w.text("</", boundary, ">")
	})
	w.text("</Polygon>")
}

func (w *kmlWriter) points(element string, flat []float64) {
	w.text("<", element, "><coordinates>")
	for i, v := range flat {
		switch {
		case i == 0:
		case i%w.stride == 0:
			w.dst = append(w.dst, ' ')
		default:
			w.dst = append(w.dst, ',')
		}
		w.dst = appendNumber(w.dst, v)
	}
	w.text("</coordinates></", element, ">")
}

func (w *kmlWriter) text(parts ...string) {
	for _, part := range parts {
		w.dst = append(w.dst, part...)
	}
}

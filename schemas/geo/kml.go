package geo

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"trafficd/schemas/contract"
)

// ErrNoPlacemark means that the KML is well-formed but none of its placemarks has a geometry.
var ErrNoPlacemark = errors.New("no placemark with a geometry")

const (
	maxXMLDepth = 256 // maximum nesting depth of elements, such as folders
	kmlStride   = 3
)

// ParseKML reads the geometries of all placemarks in all texts as one geometry. Several geometries
// are combined as if they were in a MultiGeometry. Each text is a document, a placemark or a
// geometry. Limits.Depth applies to nested MultiGeometries. The error contains the byte offset,
// counted from 0 after any byte order mark, and wraps ErrNoPlacemark, ErrKind or ErrTooLarge where
// applicable.
func (l Limits) ParseKML(want Kind, texts ...string) (*Geometry, error) {
	r := kmlReader{Builder: Builder{Limits: l}}
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
	top := r.found[0]
	if len(r.found) > 1 || want.hasMembers() && top.kind != GeometryCollection {
		top = kmlNode{kind: GeometryCollection, parts: r.found}
	}
	if err := top.resolve(want); err != nil {
		return nil, err
	}
	unlimited := Limits{Points: math.MaxInt, Depth: math.MaxInt} // r has applied l
	from := kmlTree{node: &top, Builder: Builder{Limits: unlimited, Layout: XY}}
	if r.altitude {
		from.Layout = XYZ
	}
	g, err := from.Read(&from)
	if err != nil {
		return nil, err
	}
	return asKind(g, want)
}

// kmlNode is the geometry of an element. Before resolve, a MultiGeometry is a GeometryCollection.
type kmlNode struct {
	kind  Kind
	flat  []float64 // x, y and z of each point
	parts []kmlNode
}

// resolve sets the kind of a MultiGeometry: the wanted kind or, if that is Any, the kind implied by
// its members.
func (n *kmlNode) resolve(want Kind) error {
	if n.kind != GeometryCollection {
		return nil
	}
	for i := range n.parts {
		if err := n.parts[i].resolve(Any); err != nil {
			return err
		}
		if multi := kinds[n.parts[i].kind].multi; i == 0 {
			n.kind = multi
		} else if multi != n.kind {
			n.kind = GeometryCollection
		}
	}
	switch {
	case want == Any || n.kind == want:
		return nil
	case !want.hasMembers():
		return kindError(n.kind, want)
	}
	n.kind = want
	for i, member := range n.parts {
		part := kinds[want].part
		if want != GeometryCollection && member.kind != part && (member.kind != LinearRing || part != LineString) {
			return fmt.Errorf("member %d of a %s: %w", i, want, kindError(member.kind, part))
		}
	}
	return nil
}

// kmlTree is the Reader for a node.
type kmlTree struct {
	Builder
	node *kmlNode
}

func (s *kmlTree) Kind() (Kind, error) { return s.node.kind, nil }

func (s *kmlTree) List(_ Kind, part func() error) error {
	node := s.node
	for i := range node.parts {
		s.node = &node.parts[i]
		if err := part(); err != nil {
			return err
		}
	}
	return nil
}

func (s *kmlTree) Path(Kind, Kind) error {
	if s.Layout == XYZ {
		s.Flat = append(s.Flat, s.node.flat...)
		return nil
	}
	s.Flat = slices.Grow(s.Flat, len(s.node.flat)/kmlStride*2)
	for point := range slices.Chunk(s.node.flat, kmlStride) {
		s.Flat = append(s.Flat, point[:2]...)
	}
	return nil
}

type kmlReader struct {
	Builder  // for its limits only
	xml      *xml.Decoder
	in       *tagMeter
	depth    int // number of open elements
	found    []kmlNode
	altitude bool   // at least one point has an altitude
	text     []byte // of the current coordinates element
}

func (r *kmlReader) document(text string) error {
	r.in = &tagMeter{Reader: strings.NewReader(strings.TrimPrefix(text, "\ufeff"))}
	r.xml = xml.NewDecoder(r.in)
	// The text is UTF-8, regardless of its XML declaration.
	r.xml.CharsetReader = func(_ string, in io.Reader) (io.Reader, error) { return in, nil }
	r.depth = 0
	for started := false; ; {
		token, err := r.next()
		switch {
		case errors.Is(err, io.EOF) && started:
			return nil
		case errors.Is(err, io.EOF):
			return errors.New("no element")
		case err != nil:
			return err
		}
		switch token := token.(type) {
		case xml.StartElement:
			if started {
				return fmt.Errorf("second root element %q", contract.Echo(token.Name.Local))
			}
			started = true
			if err := r.search(token, true); err != nil {
				return err
			}
		case xml.CharData:
			if spaceLen(token) == len(token) {
				continue
			}
			if started {
				return errors.New("text after the last element")
			}
			return errors.New("text before the first element")
		}
	}
}

func (r *kmlReader) next() (xml.Token, error) {
	r.in.next()
	token, err := r.xml.Token()
	if err != nil && err != io.EOF && !errors.Is(err, ErrTooLarge) {
		return nil, errors.New(XMLReason(err))
	}
	switch token.(type) {
	case xml.StartElement:
		r.depth++
		if r.depth > maxXMLDepth {
			return nil, fmt.Errorf("%w: elements nested deeper than %d", ErrTooLarge, maxXMLDepth)
		}
	case xml.EndElement:
		r.depth--
	}
	return token, err
}

// XMLReason returns the reason why an xml.Decoder cannot read a text. It shortens the reason, which
// may quote a name of any length.
func XMLReason(err error) string {
	if syntax, ok := errors.AsType[*xml.SyntaxError](err); ok {
		return fmt.Sprintf("line %d is not XML: %s", syntax.Line, contract.Echo(syntax.Msg))
	}
	return contract.Echo(strings.TrimPrefix(err.Error(), "xml: "))
}

// content reads the open element to its end. It calls child, which must read its element to the
// end, for each child element. If text is not nil, content calls it for the text.
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

// search reads the open element. If a geometry is expected there and the element is one, search
// collects it; otherwise it searches the element for placemarks with geometries, at any depth.
func (r *kmlReader) search(e xml.StartElement, expected bool) error {
	if expected && kmlKinds[e.Name.Local] != Any {
		n, err := r.geometry(e)
		r.found = append(r.found, n)
		return err
	}
	inPlacemark := e.Name.Local == "Placemark"
	return r.content(func(child xml.StartElement) error { return r.search(child, inPlacemark) }, nil)
}

var kmlKinds = map[string]Kind{
	"Point": Point, "LineString": LineString, "LinearRing": LinearRing, "Polygon": Polygon, "MultiGeometry": GeometryCollection,
}

func (r *kmlReader) geometry(e xml.StartElement) (n kmlNode, err error) {
	if err := r.Take(1); err != nil {
		return n, err
	}
	switch n.kind = kmlKinds[e.Name.Local]; n.kind {
	case Polygon:
		n.parts, err = r.rings()
	case GeometryCollection:
		if err = r.enter(); err == nil {
			err = r.members(&n.parts, Any)
			r.leave()
		}
	default:
		if n.flat, err = r.points(e.Name.Local); err != nil {
			return n, err
		}
		if n.kind == Point && len(n.flat) > kmlStride {
			return n, fmt.Errorf("a Point with %d points", len(n.flat)/kmlStride)
		}
		err = checkPath(n.kind, n.flat, kmlStride)
	}
	return n, err
}

// members appends the wanted geometries in the open element to list, and skips everything else.
func (r *kmlReader) members(list *[]kmlNode, want Kind) error {
	return r.content(func(child xml.StartElement) error {
		kind := kmlKinds[child.Name.Local]
		if kind == Any || want != Any && kind != want {
			return r.skip()
		}
		n, err := r.geometry(child)
		*list = append(*list, n)
		return err
	}, nil)
}

// rings returns the rings of a polygon, the outer one first.
func (r *kmlReader) rings() ([]kmlNode, error) {
	var outer, inner []kmlNode
	err := r.content(func(child xml.StartElement) error {
		switch child.Name.Local {
		case "outerBoundaryIs":
			return r.members(&outer, LinearRing)
		case "innerBoundaryIs":
			return r.members(&inner, LinearRing)
		}
		return r.skip()
	}, nil)
	if err == nil && (len(outer) > 1 || len(outer) == 0 && len(inner) > 0) {
		err = fmt.Errorf("a Polygon with %d outer and %d inner rings: must have one outer ring", len(outer), len(inner))
	}
	return append(outer, inner...), err
}

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
			return fmt.Errorf("element %q within coordinates", contract.Echo(child.Name.Local))
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
		if err := r.Take(1); err != nil {
			return nil, err
		}
		if flat, text, err = r.tuple(flat, text); err != nil {
			return nil, fmt.Errorf("coordinates of point %d: %w", len(flat)/kmlStride, err)
		}
	}
	return flat, nil
}

// tuple reads the numbers of a point and the white space after it. As the standard requires, white
// space next to a comma is an error: "9, 10,50" could be one point, or two, the first without a y.
func (r *kmlReader) tuple(flat []float64, text []byte) ([]float64, []byte, error) {
	for n := 1; ; n++ {
		length := numberLen(text)
		v, err := strconv.ParseFloat(string(text[:length]), 64)
		if err != nil || !finite(v) {
			return flat, nil, fmt.Errorf("%q does not start with a number within the range of a double", contract.Echo(text))
		}
		flat = append(flat, v)
		text = text[length:]
		space := spaceLen(text)
		switch comma := len(text) > space && text[space] == ','; {
		case comma && (space > 0 || spaceLen(text[1:]) > 0):
			return flat, nil, fmt.Errorf("white space next to a comma: %q", contract.Echo(text))
		case comma && n < kmlStride:
			text = text[1:]
		case comma:
			return flat, nil, fmt.Errorf("more than x,y,z: %q", contract.Echo(text))
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

// maxTag is the maximum length of a tag in bytes. The XML decoder keeps all attributes of a tag, in
// more than ten times the memory of their text. KML needs only names and namespaces in its tags.
const maxTag = 16 << 10

// tagMeter passes the text to the XML decoder byte by byte, and fails on a tag longer than maxTag.
type tagMeter struct {
	*strings.Reader
	at    int // number of bytes read of the current token
	last  byte
	inTag bool
}

// next must be called before each token. The decoder reads only to the end of a token or, for text,
// to the < that follows it.
func (m *tagMeter) next() {
	m.at = 0
	if m.last == '<' {
		m.at = 1
	}
}

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
		return 0, fmt.Errorf("%w: a tag with more than %d bytes", ErrTooLarge, maxTag)
	}
	return c, nil
}

// AppendKML appends g as a KML document with one placemark.
func AppendKML(dst []byte, g *Geometry) []byte {
	dst = append(dst, `<kml xmlns="http://www.opengis.net/kml/2.2">`...)
	dst = AppendPlacemark(dst, g)
	return append(dst, "</kml>"...)
}

// AppendPlacemark appends g as a placemark.
func AppendPlacemark(dst []byte, g *Geometry) []byte {
	dst = append(dst, "<Placemark>"...)
	for p := range Parts(g) {
		boundary, element := "", kinds[p.Kind].name
		switch {
		case p.Kind.hasMembers():
			element = "MultiGeometry"
		case p.In == Polygon && p.Index == 0:
			boundary = "outerBoundaryIs"
		case p.In == Polygon:
			boundary = "innerBoundaryIs"
		}
		if !p.End {
			dst = appendTag(dst, "<", boundary)
			dst = appendTag(dst, "<", element)
		}
		if !p.Kind.hasParts() {
			dst = append(dst, "<coordinates>"...)
			dst = p.appendPoints(dst, ',', " ")
			dst = append(dst, "</coordinates>"...)
		}
		if p.End || !p.Kind.hasParts() {
			dst = appendTag(dst, "</", element)
			dst = appendTag(dst, "</", boundary)
		}
	}
	return append(dst, "</Placemark>"...)
}

func appendTag(dst []byte, start, name string) []byte {
	if name == "" {
		return dst
	}
	return append(append(append(dst, start...), name...), '>')
}

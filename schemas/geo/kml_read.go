package geo

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/twpayne/go-geom"
)

// ErrNoPlacemark says that KML is well-formed, but no placemark in it has a
// geometry.
var ErrNoPlacemark = errors.New("no placemark with a geometry")

// deepestXML bounds how deep elements of KML lie in one another: folders in
// folders, and what is passed over.
const deepestXML = 256

// ParseKML reads the geometries of all placemarks of all texts, each a document,
// a placemark or a geometry alone, as one geometry: one that stands alone is
// itself, several are members as those of a MultiGeometry are. Each MultiGeometry
// counts as a collection for the Depth. The error names the byte, counted from 0
// behind a byte order mark, and is ErrNoPlacemark, ErrKind or ErrTooLarge where it
// is one of these.
func (l Limits) ParseKML(want Kind, texts ...string) (geom.T, error) {
	r := kmlReader{budget: budget{limits: l}}
	for i, text := range texts {
		if err := r.document(text); err != nil {
			return nil, fmt.Errorf("cannot read KML: %sbyte %d: %w", numbered(i, len(texts)), r.xml.InputOffset(), err)
		}
	}
	if len(r.found) == 0 {
		return nil, fmt.Errorf("cannot read KML: %w", ErrNoPlacemark)
	}
	g, err := kmlCombine(r.found, want)
	switch {
	case err != nil:
		return nil, err
	case r.altitude:
		return g, nil
	}
	return withoutZ(g), nil
}

// numbered names one of several texts.
func numbered(i, of int) string {
	if of < 2 {
		return ""
	}
	return fmt.Sprintf("text %d, ", i)
}

// kmlReader gathers geometries, all in the layout XYZ. A MultiGeometry is a
// collection until it is known what is wanted.
type kmlReader struct {
	xml      *xml.Decoder
	in       *tagMeter
	depth    int // of elements
	found    []geom.T
	altitude bool // some point has one
	budget   budget
	text     []byte // of the coordinates under way
}

// document reads a text to its end.
func (r *kmlReader) document(text string) error {
	r.in = &tagMeter{in: strings.NewReader(strings.TrimPrefix(text, "\ufeff"))}
	r.xml = xml.NewDecoder(r.in)
	// The text has been decoded already, whatever its declaration says.
	r.xml.CharsetReader = func(_ string, in io.Reader) (io.Reader, error) { return in, nil }
	r.depth = 0
	root, err := r.root()
	if err != nil {
		return err
	}
	if kmlKind(root) != Any {
		g, err := r.geometry(root)
		if err != nil {
			return err
		}
		r.found = append(r.found, g)
	} else if err := r.search(root.Name.Local == "Placemark"); err != nil {
		return err
	}
	return r.rest()
}

// root passes over what stands before the first element.
func (r *kmlReader) root() (xml.StartElement, error) {
	for {
		token, err := r.next()
		if errors.Is(err, io.EOF) {
			return xml.StartElement{}, errors.New("there is no element")
		}
		if err != nil {
			return xml.StartElement{}, err
		}
		switch token := token.(type) {
		case xml.StartElement:
			return token, nil
		case xml.CharData:
			if !blank(token) {
				return xml.StartElement{}, errors.New("text before the first element")
			}
		}
	}
}

// rest demands that nothing but comments follows the root.
func (r *kmlReader) rest() error {
	for {
		token, err := r.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		switch token := token.(type) {
		case xml.StartElement:
			return fmt.Errorf("a second root element %.40q", token.Name.Local)
		case xml.CharData:
			if !blank(token) {
				return errors.New("text behind the last element")
			}
		}
	}
}

func blank(text []byte) bool { return spaceLen(text) == len(text) }

// next counts how deep it is.
func (r *kmlReader) next() (xml.Token, error) {
	r.in.next()
	token, err := r.xml.Token()
	switch token.(type) {
	case xml.StartElement:
		r.depth++
		if r.depth > deepestXML {
			return nil, fmt.Errorf("%w: elements deeper than %d", ErrTooLarge, deepestXML)
		}
	case xml.EndElement:
		r.depth--
	}
	return token, err
}

// children calls f for each child of the element that has been opened, until its
// end. f has to read the child to its end.
func (r *kmlReader) children(f func(xml.StartElement) error) error {
	for {
		token, err := r.next()
		if err != nil {
			return unexpected(err)
		}
		switch token := token.(type) {
		case xml.StartElement:
			if err := f(token); err != nil {
				return err
			}
		case xml.EndElement:
			return nil
		}
	}
}

func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

func (r *kmlReader) skip() error {
	return r.children(func(xml.StartElement) error { return r.skip() })
}

// search looks for placemarks at any depth, and for geometries in them.
func (r *kmlReader) search(inPlacemark bool) error {
	return r.children(func(child xml.StartElement) error {
		if !inPlacemark || kmlKind(child) == Any {
			return r.search(child.Name.Local == "Placemark")
		}
		g, err := r.geometry(child)
		if err == nil {
			r.found = append(r.found, g)
		}
		return err
	})
}

// kmlKind gives GeometryCollection for a MultiGeometry and Any for what is no
// geometry.
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

// geometry reads the element that has been opened.
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
	if err != nil {
		return nil, err
	}
	switch kind {
	case LineString:
		return geom.NewLineStringFlat(geom.XYZ, flat), checkLine(flat, kmlStride)
	case LinearRing:
		return geom.NewLinearRingFlat(geom.XYZ, flat), checkRing(flat, kmlStride)
	}
	if len(flat) > kmlStride {
		return nil, fmt.Errorf("a Point of %d points", len(flat)/kmlStride)
	}
	return geom.NewPointFlat(geom.XYZ, flat), nil
}

const kmlStride = 3

// multiGeometry gives a collection; its members are what they are in KML.
func (r *kmlReader) multiGeometry() (geom.T, error) {
	if err := r.budget.deeper(); err != nil {
		return nil, err
	}
	defer r.budget.leave()
	var members []geom.T
	err := r.children(func(child xml.StartElement) error {
		if kmlKind(child) == Any {
			return r.skip()
		}
		g, err := r.geometry(child)
		members = append(members, g)
		return err
	})
	if err != nil {
		return nil, err
	}
	return collect(geom.XYZ, members), nil
}

func (r *kmlReader) polygon() (geom.T, error) {
	var outer, inner [][]float64
	err := r.children(func(child xml.StartElement) error {
		switch child.Name.Local {
		case "outerBoundaryIs":
			return r.boundary(&outer)
		case "innerBoundaryIs":
			return r.boundary(&inner)
		}
		return r.skip()
	})
	if err != nil {
		return nil, err
	}
	if len(outer) > 1 || len(outer) == 0 && len(inner) > 0 {
		return nil, fmt.Errorf("a Polygon with outer rings: %d, inner: %d; it has one outer ring", len(outer), len(inner))
	}
	p := geom.NewPolygon(geom.XYZ)
	for _, ring := range append(outer, inner...) {
		if err := p.Push(geom.NewLinearRingFlat(geom.XYZ, ring)); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func (r *kmlReader) boundary(rings *[][]float64) error {
	return r.children(func(child xml.StartElement) error {
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
	})
}

// points reads the coordinates of the element that has been opened.
func (r *kmlReader) points(element string) (flat []float64, err error) {
	seen := false
	err = r.children(func(child xml.StartElement) error {
		if child.Name.Local != "coordinates" {
			return r.skip()
		}
		if seen {
			return fmt.Errorf("a %s with coordinates twice", element)
		}
		seen = true
		if err := r.charData(); err != nil {
			return err
		}
		flat, err = r.tuples(r.text)
		return err
	})
	if err == nil && !seen {
		err = fmt.Errorf("a %s without coordinates", element)
	}
	return flat, err
}

// charData gathers the text of the element that has been opened.
func (r *kmlReader) charData() error {
	r.text = r.text[:0]
	for {
		token, err := r.next()
		if err != nil {
			return unexpected(err)
		}
		switch token := token.(type) {
		case xml.CharData:
			r.text = append(r.text, token...)
		case xml.StartElement:
			return fmt.Errorf("an element %.40q within coordinates", token.Name.Local)
		case xml.EndElement:
			return nil
		}
	}
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

// tuple reads the numbers of a point and passes over the white space behind it.
// That around its commas is against the standard, but not ambiguous.
func (r *kmlReader) tuple(flat []float64, text []byte) ([]float64, []byte, error) {
	for n := 1; ; n++ {
		length := numberLen(text)
		v, err := strconv.ParseFloat(string(text[:length]), 64)
		if err != nil || !finite(v) {
			return flat, nil, fmt.Errorf("%.20q begins with no number within the range of a double", text)
		}
		flat = append(flat, v)
		text = text[length:]
		text = text[spaceLen(text):]
		switch comma := len(text) > 0 && text[0] == ','; {
		case comma && n < kmlStride:
			text = text[1:]
			text = text[spaceLen(text):]
		case comma:
			return flat, nil, fmt.Errorf("more than x,y,z: %.20q", text)
		case n == 1:
			return flat, nil, fmt.Errorf("no y behind the x %v", v)
		case n == 2:
			return append(flat, 0), text, nil
		default:
			r.altitude = true
			return flat, text, nil
		}
	}
}

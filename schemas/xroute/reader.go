package xroute

import (
	"encoding/xml"
	"errors"
	"io"
	"strconv"
	"strings"

	"trafficd/schemas/contract"
	"trafficd/schemas/geo"
)

// reader reads XML element by element. It resolves prefixes, tracks the path for errors, and
// rejects XML that SOAP forbids.
type reader struct {
	xml    *xml.Decoder
	meter  *meter
	limits Limits

	open    []element // open elements, the root first
	scope   []binding // prefixes in scope, the innermost last
	started bool      // the start tag of the root has been read
}

type element struct {
	tag      xml.Name // with its prefix, which the end tag must repeat
	position int      // for an item of an array, its position from 1; otherwise 0
	bindings int      // number of bindings in scope outside the element
}

type binding struct{ prefix, space string }

// start is the start tag of an element. Its name is resolved; the names of its attributes are not.
type start struct {
	name       name
	attributes []xml.Attr
}

func newReader(r io.Reader, limits Limits) *reader {
	limits = limits.withDefaults()
	m := newMeter(r, limits)
	d := &reader{xml: xml.NewDecoder(m), meter: m, limits: limits}
	d.xml.CharsetReader = m.charset
	return d
}

// child opens the next element inside the open element, which must not contain text. It returns
// false after the end tag of the open element; the caller must then call leave.
func (d *reader) child() (start, bool, error) {
	for {
		token, err := d.token()
		if err != nil {
			return start{}, false, err
		}
		switch token := token.(type) {
		case xml.StartElement:
			s, err := d.begin(token)
			return s, err == nil, err
		case xml.EndElement:
			return start{}, false, d.end(token)
		case xml.CharData:
			text := trim(string(token))
			if text != "" && len(d.open) == 0 {
				return start{}, false, d.syntax("unexpected " + echo(text) + " before the first element")
			}
			if text != "" {
				return start{}, false, &Error{Kind: KindValue, Path: d.path(), Reason: "text " + echo(text) + " where only elements are allowed"}
			}
		}
	}
}

// children calls f for each element inside the open element, up to its end tag. f must read its
// element and leave it.
func (d *reader) children(f func(start) error) error {
	for {
		s, ok, err := d.child()
		if err != nil || !ok {
			return err
		}
		if err := f(s); err != nil {
			return err
		}
	}
}

// text returns the text of the open element, up to its end tag.
func (d *reader) text() (string, error) {
	var text []byte // the decoder splits it at comments
	for {
		token, err := d.token()
		if err != nil {
			return "", err
		}
		switch token := token.(type) {
		case xml.StartElement:
			return "", &Error{Kind: KindValue, Path: d.path(), Reason: "element " + echo(token.Name.Local) + " where only text is allowed"}
		case xml.EndElement:
			return string(text), d.end(token)
		case xml.CharData:
			text = append(text, token...)
		}
	}
}

// skip reads to the end of the open element and leaves it.
func (d *reader) skip() error {
	for depth := len(d.open); len(d.open) >= depth; {
		token, err := d.token()
		if err != nil {
			return err
		}
		switch token := token.(type) {
		case xml.StartElement:
			_, err = d.begin(token)
		case xml.EndElement:
			if err = d.end(token); err == nil {
				d.leave()
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// finish reads to the end of the input. Only white space and comments may follow the root.
func (d *reader) finish() error {
	for {
		token, err := d.token()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if text, ok := token.(xml.CharData); !ok || trim(string(text)) != "" {
			return d.syntax("content after the end of the envelope")
		}
	}
}

// token returns the next token other than a comment or the XML declaration. It returns io.EOF only
// after the root; an input that ends earlier is a syntax error.
func (d *reader) token() (xml.Token, error) {
	for {
		at := d.xml.InputOffset()
		d.meter.next()
		token, err := d.xml.RawToken()
		if err != nil {
			return nil, d.failed(err)
		}
		switch token := token.(type) {
		case xml.Comment:
		case xml.Directive:
			return nil, d.syntax("a SOAP message must not contain a document type")
		case xml.ProcInst:
			if at != 0 || token.Target != "xml" {
				return nil, d.syntax("a SOAP message must not contain processing instructions")
			}
		default:
			return token, nil
		}
	}
}

// failed converts an error of the XML decoder to an Error. Errors of the underlying reader, and
// io.EOF after the root, are returned unchanged.
func (d *reader) failed(err error) error {
	if own, ok := errors.AsType[*Error](err); ok {
		return d.withPath(own)
	}
	if d.meter.failed != nil {
		return d.meter.failed
	}
	if err == io.EOF {
		if d.started && len(d.open) == 0 {
			return err
		}
		return d.syntax("unexpected end of the envelope")
	}
	return d.syntax(geo.XMLReason(err))
}

func (d *reader) syntax(reason string) *Error {
	return &Error{Kind: KindSyntax, Path: d.path(), Reason: reason}
}

func (d *reader) begin(s xml.StartElement) (start, error) {
	if len(d.open) >= d.limits.Depth {
		return start{}, d.withPath(tooMany(int64(d.limits.Depth), "nested elements"))
	}
	d.open = append(d.open, element{tag: s.Name, bindings: len(d.scope)})
	d.started = true
	for i, a := range s.Attr {
		for _, other := range s.Attr[:i] {
			if a.Name == other.Name {
				return start{}, d.syntax("duplicate attribute " + echo(a.Name.Local))
			}
		}
		if err := d.bind(a); err != nil {
			return start{}, err
		}
	}
	for i, a := range s.Attr {
		resolved, err := d.resolveAttribute(a)
		if err != nil {
			return start{}, err
		}
		if resolved.space == "" {
			continue
		}
		for _, other := range s.Attr[:i] { // another prefix can be bound to the same namespace
			if other.Name.Local != a.Name.Local {
				continue
			}
			if same, _ := d.resolveAttribute(other); same == resolved {
				return start{}, d.syntax("duplicate attribute " + echo(a.Name.Local) + " in the namespace " + echo(resolved.space))
			}
		}
	}
	space, err := d.resolve(s.Name.Space)
	return start{name{space, s.Name.Local}, s.Attr}, err
}

// bind adds the prefix that an xmlns attribute declares to the scope. It ignores other attributes.
func (d *reader) bind(a xml.Attr) error {
	switch {
	case a.Name.Space == "" && a.Name.Local == "xmlns":
		d.scope = append(d.scope, binding{"", a.Value})
	case a.Name.Space == "xmlns" && a.Value == "":
		return d.syntax("the prefix " + echo(a.Name.Local) + " is declared with an empty namespace")
	case a.Name.Space == "xmlns" && (a.Name.Local == "xml") != (a.Value == nsXML), a.Name.Space == "xmlns" && a.Name.Local == "xmlns":
		return d.syntax("the prefix " + echo(a.Name.Local) + " must not be bound to " + echo(a.Value))
	case a.Name.Space == "xmlns":
		d.scope = append(d.scope, binding{a.Name.Local, a.Value})
	}
	if len(d.scope) > d.limits.Attributes {
		return d.withPath(tooMany(int64(d.limits.Attributes), "namespaces in scope"))
	}
	return nil
}

func (d *reader) end(e xml.EndElement) error {
	if len(d.open) == 0 || d.open[len(d.open)-1].tag != e.Name {
		return d.syntax("the end tag of " + echo(e.Name.Local) + " does not match the open element")
	}
	return nil
}

// leave closes the open element, whose end tag has been read.
func (d *reader) leave() {
	last := len(d.open) - 1
	d.scope = d.scope[:d.open[last].bindings]
	d.open = d.open[:last]
}

// resolve returns the namespace of an element's prefix.
func (d *reader) resolve(prefix string) (string, error) {
	for i := len(d.scope) - 1; i >= 0; i-- {
		if d.scope[i].prefix == prefix {
			return d.scope[i].space, nil
		}
	}
	switch prefix {
	case "":
		return "", nil
	case "xml":
		return nsXML, nil
	}
	return "", d.syntax("the prefix " + echo(prefix) + " is not declared")
}

// resolveAttribute returns the name of an attribute. Without a prefix, it has no namespace.
func (d *reader) resolveAttribute(a xml.Attr) (name, error) {
	if a.Name.Space == "" || a.Name.Space == "xmlns" {
		return name{"", a.Name.Local}, nil
	}
	space, err := d.resolve(a.Name.Space)
	return name{space, a.Name.Local}, err
}

// attribute returns the value of the attribute want, which has a namespace, or false if s has none.
func (d *reader) attribute(s start, want name) (string, bool) {
	for _, a := range s.attributes {
		if a.Name.Local == want.local && a.Name.Space != "" {
			if found, err := d.resolveAttribute(a); err == nil && found == want {
				return a.Value, true
			}
		}
	}
	return "", false
}

// qname resolves a name in a value, such as the value of xsi:type.
func (d *reader) qname(text string) (name, error) {
	prefix, local, found := strings.Cut(trim(text), ":")
	if !found {
		prefix, local = "", prefix
	}
	space, err := d.resolve(prefix)
	return name{space, local}, err
}

func (d *reader) withPath(err *Error) *Error {
	err.Path = d.path()
	return err
}

// path returns the names of the open elements. The name of an array item is followed by its
// position, counted from 1 as in XPath.
func (d *reader) path() string {
	var b strings.Builder
	for i, f := range d.open {
		if i > 0 {
			b.WriteByte('/')
		}
		b.WriteString(contract.Echo(f.tag.Local))
		if f.position > 0 {
			b.WriteString("[" + strconv.Itoa(f.position) + "]")
		}
	}
	return b.String()
}

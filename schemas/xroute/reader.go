package xroute

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// A reader walks through XML element by element. It resolves prefixes, keeps
// the path for errors, and takes only the XML that SOAP allows.
type reader struct {
	xml    *xml.Decoder
	meter  *meter
	limits Limits

	open    []frame   // from the root to where the reader stands
	scope   []binding // of prefixes, the innermost last
	started bool      // the root has been met
}

// A frame is an element that is open.
type frame struct {
	tag      xml.Name // with its prefix, as the end tag has to repeat it
	position int      // among its parent's items; 0 is none
	bindings int      // in scope outside of it
}

type binding struct{ prefix, space string }

// A start is an element's start tag, resolved. Attributes keep their prefix.
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

// child opens the next element inside the open one, which has no text of its
// own. It gives false at the end tag; leave closes the element then.
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
				return start{}, false, d.syntax(echo(text) + " stands where XML has to start")
			}
			if text != "" {
				return start{}, false, &Error{Kind: KindValue, Path: d.path(), Reason: echo(text) + " is text where only elements may stand"}
			}
		}
	}
}

// text gives the text of the open element, up to its end tag.
func (d *reader) text() (string, error) {
	var text []byte // in parts, if comments stand between them
	for {
		token, err := d.token()
		if err != nil {
			return "", err
		}
		switch token := token.(type) {
		case xml.StartElement:
			return "", &Error{Kind: KindValue, Path: d.path(), Reason: "an element " + echo(token.Name.Local) + " stands where only text may stand"}
		case xml.EndElement:
			return string(text), d.end(token)
		case xml.CharData:
			text = append(text, token...)
		}
	}
}

// skip passes over the open element and leaves it.
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

// finish takes what may stand after the root.
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
			return d.syntax("something follows after the end of the envelope")
		}
	}
}

// token gives the next token that means something. At the root io.EOF is the
// end; inside it is an error.
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
			return nil, d.syntax("a SOAP message holds no document type")
		case xml.ProcInst:
			if at != 0 || token.Target != "xml" {
				return nil, d.syntax("a SOAP message holds no processing instructions")
			}
		default:
			return token, nil
		}
	}
}

// failed tells what is wrong with the XML from what is wrong with the reader
// beneath, whose error stays as it is.
func (d *reader) failed(err error) error {
	if own, ok := errors.AsType[*Error](err); ok {
		return d.at(own)
	}
	if d.meter.failed != nil {
		return d.meter.failed
	}
	if err == io.EOF {
		if d.started && len(d.open) == 0 {
			return err
		}
		return d.syntax("the XML ends before the envelope does")
	}
	if syntax, ok := errors.AsType[*xml.SyntaxError](err); ok {
		return d.syntax(fmt.Sprintf("line %d is not XML: %s", syntax.Line, shown(syntax.Msg)))
	}
	return d.syntax(shown(strings.TrimPrefix(err.Error(), "xml: ")))
}

func (d *reader) syntax(reason string) *Error {
	return &Error{Kind: KindSyntax, Path: d.path(), Reason: reason}
}

func (d *reader) begin(s xml.StartElement) (start, error) {
	if len(d.open) >= d.limits.Depth {
		return start{}, d.at(tooMany(int64(d.limits.Depth), "elements in one another"))
	}
	d.open = append(d.open, frame{tag: s.Name, bindings: len(d.scope)})
	d.started = true
	for i, a := range s.Attr {
		for _, other := range s.Attr[:i] {
			if a.Name == other.Name {
				return start{}, d.syntax("the attribute " + echo(a.Name.Local) + " stands twice")
			}
		}
		if err := d.bind(a); err != nil {
			return start{}, err
		}
	}
	for _, a := range s.Attr {
		if _, err := d.resolveAttribute(a); err != nil {
			return start{}, err
		}
	}
	space, err := d.resolve(s.Name.Space)
	return start{name{space, s.Name.Local}, s.Attr}, err
}

// bind takes a declaration of a namespace.
func (d *reader) bind(a xml.Attr) error {
	switch {
	case a.Name.Space == "" && a.Name.Local == "xmlns":
		d.scope = append(d.scope, binding{"", a.Value})
	case a.Name.Space == "xmlns" && a.Value == "":
		return d.syntax("the prefix " + echo(a.Name.Local) + " is declared as no namespace")
	case a.Name.Space == "xmlns":
		d.scope = append(d.scope, binding{a.Name.Local, a.Value})
	}
	if len(d.scope) > d.limits.Attributes {
		return d.at(tooMany(int64(d.limits.Attributes), "namespaces at one place"))
	}
	return nil
}

// end checks that an end tag is that of the open element.
func (d *reader) end(e xml.EndElement) error {
	if len(d.open) == 0 || d.open[len(d.open)-1].tag != e.Name {
		return d.syntax("the end tag of " + echo(e.Name.Local) + " ends another element")
	}
	return nil
}

// leave closes the open element, whose end tag has been met.
func (d *reader) leave() {
	last := len(d.open) - 1
	d.scope = d.scope[:d.open[last].bindings]
	d.open = d.open[:last]
}

// resolve gives the namespace of an element's prefix.
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
		return "http://www.w3.org/XML/1998/namespace", nil
	}
	return "", d.syntax("the prefix " + echo(prefix) + " is not declared")
}

// resolveAttribute gives the name of an attribute: without a prefix it is in
// no namespace. That of a declaration is not asked for by anyone.
func (d *reader) resolveAttribute(a xml.Attr) (name, error) {
	if a.Name.Space == "" || a.Name.Space == "xmlns" {
		return name{"", a.Name.Local}, nil
	}
	space, err := d.resolve(a.Name.Space)
	return name{space, a.Name.Local}, err
}

// attribute finds an attribute that has a namespace.
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

// qname resolves a name in a value, such as that of xsi:type.
func (d *reader) qname(text string) (name, error) {
	prefix, local, found := strings.Cut(trim(text), ":")
	if !found {
		prefix, local = "", prefix
	}
	space, err := d.resolve(prefix)
	return name{space, local}, err
}

// at gives an error its path.
func (d *reader) at(err *Error) *Error {
	err.Path = d.path()
	return err
}

// path names the open elements, the items of arrays with their position as
// XPath has it: the first is 1.
func (d *reader) path() string {
	var b strings.Builder
	for i, f := range d.open {
		if i > 0 {
			b.WriteByte('/')
		}
		b.WriteString(shown(f.tag.Local))
		if f.position > 0 {
			b.WriteString("[" + strconv.Itoa(f.position) + "]")
		}
	}
	return b.String()
}

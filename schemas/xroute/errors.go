package xroute

import (
	"strconv"

	"trafficd/schemas/contract"
)

// Kind is the kind of an error in an envelope.
type Kind int

// The kinds of errors.
const (
	KindSyntax         Kind = iota + 1 // not XML, or XML that SOAP forbids
	KindVersion                        // an envelope of a SOAP version other than 1.1
	KindEnvelope                       // XML, but not an envelope with one message
	KindMustUnderstand                 // an unsupported header with mustUnderstand
	KindOperation                      // an unknown operation
	KindMissing                        // a missing required member
	KindValue                          // a value that its type does not allow
	KindLimit                          // an exceeded limit, see Limits
)

// Error reports an invalid envelope, or a message that cannot be written. Errors of the underlying
// io.Reader are returned unchanged instead.
type Error struct {
	Kind   Kind
	Path   string // such as Envelope/Body/convertGeometry/options/@coordFormat
	Type   string // expected type for KindMissing and KindValue, such as CoordFormat
	Reason string
}

func (e *Error) Error() string {
	if e.Path == "" {
		return e.Reason
	}
	return e.Path + ": " + e.Reason
}

// echo returns text, truncated and quoted for an error (contract 6.4).
func echo(text string) string { return strconv.Quote(contract.Echo(text)) }

func (m *member) errMissing(path string) *Error {
	reason := "required attribute is missing"
	if m.name.space != "" {
		reason = "required element in the namespace " + m.name.space + " is missing"
	}
	return &Error{Kind: KindMissing, Path: path, Type: m.typ.label, Reason: reason}
}

func (t *typ) invalid(path, text string, err error) *Error {
	label := t.label
	if t.simple != nil && t.simple.values == nil {
		label = t.simple.xsd // base64Binary is clearer than byte
	}
	return &Error{Kind: KindValue, Path: path, Type: t.label, Reason: echo(text) + " is not a valid " + label + ": " + err.Error()}
}

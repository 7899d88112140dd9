package xroute

import (
	"strconv"
	"strings"

	"trafficd/schemas/contract"
)

// Kind is the kind of an error in an envelope.
type Kind int

// The kinds of errors.
const (
	KindSyntax         Kind = iota + 1 // not the XML that a SOAP message may contain
	KindVersion                        // an envelope of a version other than SOAP 1.1
	KindEnvelope                       // XML, but not an envelope with one message
	KindMustUnderstand                 // an unsupported header with mustUnderstand
	KindOperation                      // no message has this name
	KindMissing                        // a required member is missing
	KindValue                          // a member has a value that its type does not allow
	KindLimit                          // a limit of Limits is exceeded
)

// Error is the error for an invalid envelope, or for a message that cannot be written. Errors of
// the underlying io.Reader are not of this type.
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

// missing returns the error for a required member that is missing.
func (m *member) missing(path string) *Error {
	reason := "required attribute is missing"
	if m.name.space != "" {
		reason = "required element in the namespace " + m.name.space + " is missing"
	}
	return &Error{Kind: KindMissing, Path: path, Type: m.typ.label, Reason: reason}
}

// invalid returns the error for text that is not a value of the type.
func (t *typ) invalid(path, text string, err error) *Error {
	label := t.label
	if t.simple != nil && t.simple.values == nil {
		label = t.simple.xsd // base64Binary is clearer than byte
	}
	article := "a "
	if strings.ContainsRune("aeiouAEIOU", rune(label[0])) {
		article = "an "
	}
	return &Error{Kind: KindValue, Path: path, Type: t.label, Reason: echo(text) + " is not " + article + label + ": " + err.Error()}
}

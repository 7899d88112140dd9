package xroute

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// Kind is what is wrong with an envelope.
type Kind int

// The kinds. The zero value is none of them.
const (
	KindSyntax         Kind = iota + 1 // not the XML that a SOAP message may hold
	KindVersion                        // an envelope, but not of SOAP 1.1
	KindEnvelope                       // XML, but no envelope with one message
	KindMustUnderstand                 // a header that has to be understood, and is not
	KindOperation                      // no message of that name
	KindMissing                        // a required member is not there
	KindValue                          // a member has a value that its type does not allow
	KindLimit                          // more than Limits allow
)

// Error says what is wrong with an envelope that was read, or with a message
// that was to be written. An error of the reader that the bytes come from is
// no Error.
type Error struct {
	Kind   Kind
	Path   string // such as Envelope/Body/convertGeometry/options/@coordFormat
	Type   string // the wanted type of KindMissing and KindValue, such as CoordFormat
	Reason string // a phrase that goes on after the path
}

func (e *Error) Error() string {
	if e.Path == "" {
		return e.Reason
	}
	return e.Path + ": " + e.Reason
}

// maxEcho is how much of a text that was read stands in an error (contract 1.1).
const maxEcho = 64

// cut shortens text between two characters, and gives what tells of it.
func cut(text string) (short, more string) {
	if len(text) <= maxEcho {
		return text, ""
	}
	end := maxEcho
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end], "…"
}

// echo quotes text.
func echo(text string) string {
	short, more := cut(text)
	return strconv.Quote(short) + more
}

// shown is text as it is, but for its length.
func shown(text string) string {
	short, more := cut(text)
	return short + more
}

// missing says that a required member is not there.
func (m *member) missing(path string) *Error {
	reason := "this attribute is required"
	if m.name.space != "" {
		reason = "this element is required, in the namespace " + m.name.space
	}
	return &Error{Kind: KindMissing, Path: path, Type: m.typ.label, Reason: reason}
}

// invalid says that text is no value of a type.
func (t *typ) invalid(path, text string, err error) *Error {
	called := t.label
	if t.simple != nil && t.simple.values == nil {
		called = t.simple.xsd // that of base64 is byte, which says little
	}
	article := "a "
	if strings.ContainsRune("aeiouAEIOU", rune(called[0])) {
		article = "an "
	}
	return &Error{Kind: KindValue, Path: path, Type: t.label, Reason: echo(text) + " is not " + article + called + ": " + err.Error()}
}

package xroute

import (
	"fmt"
	"io"
	"reflect"

	"trafficd/schemas/contract"
)

var (
	soapEnvelope       = name{nsEnvelope, "Envelope"}
	soapHeader         = name{nsEnvelope, "Header"}
	soapBody           = name{nsEnvelope, "Body"}
	soapFault          = name{nsEnvelope, "Fault"}
	soapMustUnderstand = name{nsEnvelope, "mustUnderstand"}
	soapActor          = name{nsEnvelope, "actor"}
)

const actorNext = "http://schemas.xmlsoap.org/soap/actor/next"

// ReadRequest reads an envelope with a request. The error is an *Error, unless reading from r
// fails.
func ReadRequest(r io.Reader, limits Limits) (Request, error) {
	m, err := read(r, limits)
	if err != nil {
		return nil, err
	}
	return expect[Request](m)
}

// ReadResponse reads an envelope with a response. If it contains a fault, the error is a *Fault.
func ReadResponse(r io.Reader, limits Limits) (Response, error) {
	m, err := read(r, limits)
	if err != nil {
		return nil, err
	}
	if fault, ok := m.(*Fault); ok {
		return nil, fault
	}
	return expect[Response](m)
}

func expect[T Message](m Message) (wanted T, err error) {
	wanted, ok := m.(T)
	if !ok {
		err = unknownOperation(nameOf(m))
	}
	return wanted, err
}

func nameOf(m Message) name {
	if _, ok := m.(*Fault); ok {
		return soapFault
	}
	return model.byGo[reflect.TypeOf(m).Elem()].name
}

// Operations returns the names of all operations.
func Operations() (names []string) {
	for _, m := range messageTypes {
		if r, ok := m.(Request); ok {
			names = append(names, Operation(r))
		}
	}
	return names
}

// Operation returns the name of the operation that a request calls.
func Operation(r Request) string { return nameOf(r).local }

// Caller returns the caller context of a request, or nil.
func Caller(r Request) *CallerContext {
	return reflect.ValueOf(r).Elem().FieldByName("CallerContext").Interface().(*CallerContext)
}

// JobID returns the job ID in a request, and false if the request has none.
func JobID(r Request) (id string, ok bool) {
	if field := reflect.ValueOf(r).Elem().FieldByName("ID"); field.IsValid() {
		return field.String(), true
	}
	return "", false
}

func unknownOperation(n name) *Error {
	return &Error{
		Kind: KindOperation, Path: "Envelope/Body/" + contract.Echo(n.local),
		Reason: fmt.Sprintf("no such operation in the namespace %s: see the WSDL", echo(n.space)),
	}
}

// read reads an envelope, and r to its end.
func read(r io.Reader, limits Limits) (m Message, err error) {
	d := newReader(r, limits)
	s, _, err := d.child()
	switch {
	case err != nil:
		return nil, err
	case s.name.local != soapEnvelope.local:
		return nil, d.envelopeError("a SOAP message must start with an Envelope")
	case s.name != soapEnvelope:
		return nil, d.withPath(&Error{Kind: KindVersion, Reason: "namespace " + echo(s.name.space) + ", expected SOAP 1.1, " + nsEnvelope})
	}
	err = d.children(func(s start) (err error) {
		switch {
		case s.name == soapHeader && m == nil:
			return d.header()
		case s.name == soapBody && m == nil:
			m, err = d.body()
			return err
		}
		return d.envelopeError("element is not allowed here in a SOAP message")
	})
	if err == nil && m == nil {
		err = d.envelopeError("a SOAP message must have a Body with one message")
	}
	if err != nil {
		return nil, err
	}
	d.leave()
	return m, d.finish()
}

func (d *reader) envelopeError(reason string) *Error {
	return d.withPath(&Error{Kind: KindEnvelope, Reason: reason})
}

// header skips the header. It returns an error for an entry that this receiver must understand.
func (d *reader) header() error {
	err := d.children(func(s start) error {
		actor, _ := d.attribute(s, soapActor)
		text, _ := d.attribute(s, soapMustUnderstand)
		if must, _ := parseBool(text); must && (actor == "" || actor == actorNext) {
			return d.withPath(&Error{Kind: KindMustUnderstand, Reason: "header must be understood, but is not supported"})
		}
		return d.skip()
	})
	d.leave()
	return err
}

func (d *reader) body() (m Message, err error) {
	err = d.children(func(s start) (err error) {
		if m != nil {
			return d.envelopeError("more than one message in the Body")
		}
		if s.name == soapFault {
			m, err = d.fault()
			return err
		}
		t := model.messages[s.name]
		if t == nil {
			return unknownOperation(s.name)
		}
		if _, err := d.isNil(t, false, s); err != nil {
			return err
		}
		made := reflect.New(t.goType)
		m = made.Interface().(Message)
		return d.value(t, made.Elem(), s)
	})
	if err == nil && m == nil {
		err = d.envelopeError("empty Body: must contain one message")
	}
	d.leave()
	return m, err
}

// AppendMessage appends an envelope with the message. If a required member of the message is
// missing or a value is not allowed, it returns dst unchanged and an *Error.
func AppendMessage(dst []byte, m Message) ([]byte, error) {
	e := &encoder{dst: append(dst, head...)}
	if fault, ok := m.(*Fault); ok {
		e.fault(fault)
	} else {
		t := model.byGo[reflect.TypeOf(m).Elem()]
		e.element(t.name.prefixed(), t, reflect.ValueOf(m).Elem())
	}
	if e.err != nil {
		return dst, e.err
	}
	return append(e.dst, tail...), nil
}

const tail = "</soapenv:Body></soapenv:Envelope>\n"

// head is the start of every envelope, up to its body.
var head = func() string {
	text := xmlDeclaration + "<soapenv:Envelope"
	for _, space := range []string{nsEnvelope, nsInstance, nsCommon, nsRouting, nsService, nsExceptions, nsPrimitives} {
		text += fmt.Sprintf(" xmlns:%s=%q", prefixes[space], space)
	}
	return text + "><soapenv:Body>"
}()

const xmlDeclaration = `<?xml version="1.0" encoding="UTF-8"?>` + "\n"

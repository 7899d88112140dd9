package xroute

import (
	"reflect"
	"strings"
)

// A FaultCode is a code of SOAP 1.1.
type FaultCode string

// The codes.
const (
	FaultClient          FaultCode = "Client"
	FaultServer          FaultCode = "Server"
	FaultVersionMismatch FaultCode = "VersionMismatch"
	FaultMustUnderstand  FaultCode = "MustUnderstand"
)

// A Fault is the answer when there is no Response.
type Fault struct {
	Code      FaultCode
	Text      string
	Exception Exception // in detail, as its global element; may be nil
}

func (*Fault) message() {}

func (f *Fault) Error() string { return "SOAP fault " + string(f.Code) + ": " + f.Text }

// AppendFault appends the envelope of a fault. It fails only for an Exception
// that is none of this package's types.
func AppendFault(dst []byte, f *Fault) ([]byte, error) {
	e := &encoder{dst: append(dst, head...)}
	e.put("<soapenv:Fault><faultcode>soapenv:")
	e.dst = appendText(e.dst, string(f.Code))
	e.put("</faultcode><faultstring>")
	e.dst = appendText(e.dst, f.Text)
	e.put("</faultstring>")
	if f.Exception != nil {
		e.put("<detail>")
		e.exception(reflect.ValueOf(&f.Exception).Elem())
		e.put("</detail>")
	}
	e.put("</soapenv:Fault>")
	return e.finish(dst)
}

// exception appends the global element of an exception, which has the name of
// its type.
func (e *encoder) exception(v reflect.Value) {
	declared := model.byGo[v.Type()]
	if actual, _ := declared.actual(v); actual != nil {
		declared = actual
	}
	e.element(declared.name.prefixed(), declared, v)
}

// fault reads the open Fault. Its parts have no namespace, in SOAP 1.1.
func (d *reader) fault() (*Fault, error) {
	f := &Fault{}
	for {
		s, ok, err := d.child()
		if err != nil {
			return nil, err
		}
		if !ok {
			d.leave()
			return f, nil
		}
		switch s.name {
		case name{"", "faultcode"}:
			err = d.faultCode(f)
		case name{"", "faultstring"}:
			if f.Text, err = d.text(); err == nil {
				d.leave()
			}
		case name{"", "detail"}:
			err = d.detail(f)
		default:
			err = d.skip()
		}
		if err != nil {
			return nil, err
		}
	}
}

// faultCode takes the name without its prefix, and without what some servers
// put after a point.
func (d *reader) faultCode(f *Fault) error {
	text, err := d.text()
	if err != nil {
		return err
	}
	d.leave()
	text = trim(text)
	text = text[strings.LastIndexByte(text, ':')+1:]
	text, _, _ = strings.Cut(text, ".")
	f.Code = FaultCode(text)
	return nil
}

// detail reads the first exception; what else a detail may hold is not ours.
func (d *reader) detail(f *Fault) error {
	for {
		s, ok, err := d.child()
		if err != nil {
			return err
		}
		if !ok {
			d.leave()
			return nil
		}
		t := model.byName[s.name]
		if t == nil || f.Exception != nil || !t.extends(model.byGo[reflect.TypeFor[Exception]()]) {
			err = d.skip()
		} else {
			err = d.value(t, reflect.ValueOf(&f.Exception).Elem(), s)
		}
		if err != nil {
			return err
		}
	}
}

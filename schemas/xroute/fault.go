package xroute

import (
	"reflect"
	"strings"
)

// FaultCode is a fault code of SOAP 1.1.
type FaultCode string

// The codes.
const (
	FaultClient          FaultCode = "Client"
	FaultServer          FaultCode = "Server"
	FaultVersionMismatch FaultCode = "VersionMismatch"
	FaultMustUnderstand  FaultCode = "MustUnderstand"
)

// Fault is the answer to a request that has no Response.
type Fault struct {
	Code      FaultCode
	Text      string
	Exception Exception // content of the detail; may be nil
}

func (*Fault) message() {}

func (f *Fault) Error() string { return "SOAP fault " + string(f.Code) + ": " + f.Text }

// AppendFault appends the envelope of a fault. It fails only for an Exception of an unknown type.
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

// exception appends the global element of an exception, which is named after its type. It also has an
// xsi:type, without which the SoapClient of PHP loses members.
func (e *encoder) exception(v reflect.Value) {
	declared := model.byGo[v.Type()]
	tag := declared.name.prefixed()
	if actual, _ := declared.actual(v); actual != nil {
		tag = actual.name.prefixed()
	}
	e.element(tag, declared, v)
}

// fault reads the open Fault. In SOAP 1.1 its parts are in no namespace.
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

// faultCode reads the code without its prefix, and without what some servers append after a dot.
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

// detail reads the first exception and skips everything else.
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

package xroute

import (
	"reflect"
	"strings"
)

// FaultCode is a fault code of SOAP 1.1.
type FaultCode string

// The fault codes.
const (
	FaultClient          FaultCode = "Client"
	FaultServer          FaultCode = "Server"
	FaultVersionMismatch FaultCode = "VersionMismatch"
	FaultMustUnderstand  FaultCode = "MustUnderstand"
)

// Fault is the response to a request that failed.
type Fault struct {
	Code      FaultCode
	Text      string
	Exception Exception // content of the detail; may be nil
}

func (*Fault) message() {}

func (f *Fault) Error() string { return "SOAP fault " + string(f.Code) + ": " + f.Text }

func (e *encoder) fault(f *Fault) {
	e.put("<soapenv:Fault><faultcode>soapenv:")
	e.dst = appendText(e.dst, string(f.Code))
	e.put("</faultcode><faultstring>")
	e.dst = appendText(e.dst, f.Text)
	e.put("</faultstring>")
	if f.Exception != nil {
		// The detail contains the global element of the exception, which is named after its type.
		// Without xsi:type, PHP's SoapClient would lose members.
		v := reflect.ValueOf(&f.Exception).Elem()
		declared := model.byGo[v.Type()]
		tag := declared.name.prefixed()
		if actual, _ := declared.actualType(v); actual != nil {
			tag = actual.name.prefixed()
		}
		e.put("<detail>")
		e.element(tag, declared, v)
		e.put("</detail>")
	}
	e.put("</soapenv:Fault>")
}

// fault reads the open Fault and leaves it. In SOAP 1.1, its children have no namespace.
func (d *reader) fault() (*Fault, error) {
	f := &Fault{}
	err := d.children(func(s start) (err error) {
		switch s.name {
		case name{"", "faultcode"}:
			var text string
			text, err = d.text()
			text = trim(text)
			text = text[strings.LastIndexByte(text, ':')+1:] // without the prefix
			text, _, _ = strings.Cut(text, ".")              // some servers append details
			f.Code = FaultCode(text)
		case name{"", "faultstring"}:
			f.Text, err = d.text()
		case name{"", "detail"}:
			err = d.children(func(s start) error { // use the first exception and skip everything else
				t := model.byName[s.name]
				if t == nil || f.Exception != nil || !t.extends(model.byGo[reflect.TypeFor[Exception]()]) {
					return d.skip()
				}
				return d.value(t, reflect.ValueOf(&f.Exception).Elem(), s)
			})
		default:
			return d.skip()
		}
		d.leave()
		return err
	})
	d.leave()
	return f, err
}

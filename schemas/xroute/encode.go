package xroute

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"reflect"
	"slices"
)

// encoder appends XML. It keeps the first error.
type encoder struct {
	dst []byte
	err error
}

func (e *encoder) put(texts ...string) {
	for _, text := range texts {
		e.dst = append(e.dst, text...)
	}
}

func (e *encoder) fail(err *Error) {
	if e.err == nil {
		e.err = err
	}
}

// element appends v as an element. t is its declared type.
func (e *encoder) element(tag string, t *typ, v reflect.Value) {
	actual, v := t.actualType(v)
	if actual == nil || actual.abstract || !actual.extends(t) {
		e.fail(&Error{Kind: KindValue, Path: tag, Type: t.label, Reason: fmt.Sprintf("%s is not of type %s", v.Type(), t.label)})
		return
	}
	e.put("<", tag)
	if actual != t {
		e.put(` xsi:type="`, actual.name.prefixed(), `"`)
	}
	for _, m := range actual.attributes {
		if value := v.FieldByIndex(m.index); !absent(value) {
			e.put(" ", m.name.local, `="`)
			e.simple(m.typ, reflect.Indirect(value))
			e.put(`"`)
		} else if m.required {
			e.fail(m.errMissing(actual.name.local + "/" + m.name.local))
		}
	}
	end := len(e.dst)
	e.put(">")
	e.content(actual, v)
	if len(e.dst) == end+len(">") {
		e.dst = e.dst[:end]
		e.put("/>")
		return
	}
	e.put("</", tag, ">")
}

// actualType returns the type of v, or nil if it is unknown, and the dereferenced value.
func (t *typ) actualType(v reflect.Value) (*typ, reflect.Value) {
	if v.Kind() == reflect.Interface {
		v = reflect.Indirect(v.Elem())
		return model.byGo[v.Type()], v
	}
	return t, reflect.Indirect(v)
}

func (e *encoder) content(t *typ, v reflect.Value) {
	switch {
	case t.simple != nil:
		e.simple(t, v)
	case t.item != nil:
		for i := range v.Len() {
			item := v.Index(i)
			if item.Kind() == reflect.Interface && absent(item) {
				e.fail(&Error{Kind: KindMissing, Path: t.label, Type: t.item.label, Reason: fmt.Sprintf("item %d is nil", i)})
				return
			}
			e.element(t.itemTag, t.item, item)
		}
	default:
		for _, m := range t.elements {
			switch field := v.FieldByIndex(m.index); {
			case !absent(field), m.required && !m.nillable && field.Kind() == reflect.Slice: // a nil slice becomes an empty array
				e.element(m.tag, m.typ, field)
			case m.required && m.nillable:
				e.put("<", m.tag, ` xsi:nil="true"/>`)
			case m.required:
				e.fail(m.errMissing(t.name.local + "/" + m.name.local))
			}
		}
	}
}

func (e *encoder) simple(t *typ, v reflect.Value) {
	if t.simple.values != nil && !slices.Contains(t.simple.values, v.String()) {
		e.fail(t.invalid(t.label, v.String(), t.simple.wanted()))
		return
	}
	e.dst = t.simple.append(e.dst, v)
}

// absent reports whether a member is a nil pointer, interface or slice.
func absent(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Interface:
		return v.IsNil() || absent(v.Elem())
	case reflect.Pointer, reflect.Slice:
		return v.IsNil()
	default:
		return false
	}
}

// appendText appends text, escaped for attributes and elements. Characters that XML does not allow
// become U+FFFD.
func appendText(dst []byte, text string) []byte {
	b := bytes.NewBuffer(dst)
	_ = xml.EscapeText(b, []byte(text)) // writing to a buffer cannot fail
	return b.Bytes()
}

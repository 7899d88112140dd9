package xroute

import (
	"encoding/xml"
	"errors"
	"reflect"
	"slices"

	"trafficd/schemas/geo"
)

var (
	xsiType = name{nsInstance, "type"}
	xsiNil  = name{nsInstance, "nil"}
)

// value reads the open element into v and leaves the element, whose declared type is t.
func (d *reader) value(t *typ, v reflect.Value, s start) error {
	actual, err := d.actualType(t, s)
	if err != nil {
		return err
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		v = v.Elem()
	case reflect.Interface:
		made := reflect.New(actual.goType)
		v.Set(made)
		v = made.Elem()
	}
	switch {
	case actual.simple != nil:
		var text string
		if text, err = d.text(); err != nil {
			return err
		}
		if err = actual.simple.set(v, text); err != nil {
			err = actual.invalid(d.path(), text, err)
		}
	case actual.item != nil:
		err = d.items(actual, v)
	default:
		err = d.members(actual, v, s)
	}
	if err != nil {
		return err
	}
	d.leave()
	return nil
}

// actualType returns the type that xsi:type names or, without xsi:type, the declared type.
func (d *reader) actualType(declared *typ, s start) (*typ, error) {
	t := declared
	text, typed := d.attribute(s, xsiType)
	if typed {
		wanted, err := d.qname(text)
		if err != nil {
			return nil, err
		}
		if t = model.byName[wanted]; t == nil {
			return nil, declared.invalid(d.path()+"/@xsi:type", text, errors.New("no such type in the namespace "+echo(wanted.space)))
		}
	}
	switch {
	case !t.extends(declared):
		return nil, declared.invalid(d.path()+"/@xsi:type", text, errors.New("the type does not extend "+declared.label))
	case t.abstract:
		return nil, &Error{
			Kind: KindMissing, Path: d.path() + "/@xsi:type", Type: declared.label,
			Reason: t.label + " is abstract: xsi:type must name a type that extends it",
		}
	}
	return t, nil
}

// items reads an array. An array without items is empty, not nil.
func (d *reader) items(t *typ, array reflect.Value) error {
	array.Set(reflect.MakeSlice(array.Type(), 0, 0))
	return d.children(func(s start) error {
		if s.name != t.itemName { // skipping it would lose an item with a misspelt name
			reason := "must be " + t.itemName.local + " in the namespace " + t.itemName.space
			return &Error{Kind: KindValue, Path: d.path(), Type: t.label, Reason: reason}
		}
		n := array.Len()
		d.open[len(d.open)-1].position = n + 1
		if _, err := d.isNil(t.item, false, s); err != nil {
			return err
		}
		if n == array.Cap() {
			array.Grow(max(4, n))
		}
		array.SetLen(n + 1)
		return d.value(t.item, array.Index(n), s)
	})
}

func (d *reader) members(t *typ, v reflect.Value, s start) error {
	if err := d.attributesOf(t, v, s.attributes); err != nil {
		return err
	}
	seen := uint64(0) // one bit per element; no type has more than 64 elements or attributes
	err := d.children(func(s start) error {
		i := indexOf(t.elements, s.name)
		if i < 0 {
			return d.skipUnknown(t, s)
		}
		m := t.elements[i]
		if seen&(1<<i) != 0 {
			return &Error{Kind: KindValue, Path: d.path(), Type: m.typ.label, Reason: "duplicate element"}
		}
		seen |= 1 << i
		return d.elementOf(m, v.FieldByIndex(m.index), s)
	})
	if err != nil {
		return err
	}
	return d.checkRequired(t.elements, seen)
}

// skipUnknown skips an element that t does not declare. An element with the name of an optional
// member in another namespace is an error, because ignoring it would change the meaning of the
// request. For a required member, checkRequired returns the error.
func (d *reader) skipUnknown(t *typ, s start) error {
	for _, m := range t.elements {
		if m.name.local == s.name.local && !m.required {
			reason := "must be in the namespace " + m.name.space + ", not " + echo(s.name.space)
			return &Error{Kind: KindValue, Path: d.path(), Type: m.typ.label, Reason: reason}
		}
	}
	return d.skip()
}

func (d *reader) attributesOf(t *typ, v reflect.Value, attributes []xml.Attr) error {
	seen := uint64(0)
	for _, a := range attributes {
		i := indexOf(t.attributes, name{a.Name.Space, a.Name.Local})
		if i < 0 {
			continue
		}
		seen |= 1 << i
		m := t.attributes[i]
		field := v.FieldByIndex(m.index)
		if field.Kind() == reflect.Pointer {
			field.Set(reflect.New(field.Type().Elem()))
			field = field.Elem()
		}
		value := a.Value
		if m.typ.goType == reflect.TypeFor[CoordFormat]() {
			value = geo.Canonical(trim(value), d.limits.VendorPrefix)
		}
		if err := m.typ.simple.set(field, value); err != nil {
			return m.typ.invalid(d.path()+"/@"+a.Name.Local, a.Value, err)
		}
	}
	return d.checkRequired(t.attributes, seen)
}

// elementOf reads the open element into v, the value of the member m, and leaves the element.
func (d *reader) elementOf(m *member, v reflect.Value, s start) error {
	isNil, err := d.isNil(m.typ, true, s)
	switch {
	case err != nil:
		return err
	case !isNil:
		return d.value(m.typ, v, s)
	case m.required && !m.nillable:
		return m.errMissing(d.path())
	}
	// An optional element with xsi:nil counts as absent even if it is not nillable, because
	// toolkits write xsi:nil for such elements too.
	if _, ok, err := d.child(); err != nil {
		return err
	} else if ok {
		return &Error{Kind: KindValue, Path: d.path(), Reason: "element inside an element with xsi:nil"}
	}
	d.leave()
	return nil
}

// isNil reports whether xsi:nil of the element is true. It returns an error if the value of xsi:nil
// is invalid, or true but not allowed.
func (d *reader) isNil(t *typ, allowed bool, s start) (bool, error) {
	text, found := d.attribute(s, xsiNil)
	if !found {
		return false, nil
	}
	value, ok := parseBool(text)
	switch {
	case !ok:
		return false, &Error{Kind: KindValue, Path: d.path() + "/@xsi:nil", Type: "boolean", Reason: echo(text) + " is neither true nor false"}
	case value && !allowed:
		return false, &Error{Kind: KindValue, Path: d.path() + "/@xsi:nil", Type: t.label, Reason: "element must not be nil"}
	}
	return value, nil
}

func (d *reader) checkRequired(members []*member, seen uint64) error {
	for i, m := range members {
		if !m.required || seen&(1<<i) != 0 {
			continue
		}
		if m.name.space == "" {
			return m.errMissing(d.path() + "/@" + m.name.local)
		}
		return m.errMissing(d.path() + "/" + m.name.local)
	}
	return nil
}

func indexOf(members []*member, n name) int {
	return slices.IndexFunc(members, func(m *member) bool { return m.name == n })
}

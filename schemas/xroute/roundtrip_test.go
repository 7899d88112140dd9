package xroute

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"trafficd/cmd/dev/needs"
)

// TestEveryTypeRoundTrips writes and reads two values of every type, one with all members and one
// with only the required ones, and validates them with xmllint.
func TestEveryTypeRoundTrips(t *testing.T) {
	instances := everyInstance()

	written := make([][]byte, len(instances))
	for i, in := range instances {
		e := &encoder{}
		e.element(in.tag, in.typ, in.value)
		require.NoError(t, e.err, in.tag)
		written[i] = e.dst
	}
	again := make([][]byte, len(instances))
	for i, in := range instances {
		read := readElement(t, in.typ, written[i])
		require.Equal(t, in.value.Interface(), read.Interface(), "%s", written[i])
		e := &encoder{}
		e.element(in.tag, in.typ, read)
		require.NoError(t, e.err, in.tag)
		require.Equal(t, string(written[i]), string(e.dst))
		again[i] = e.dst
	}
	t.Run("xmllint", func(t *testing.T) {
		validate(t, instances, written)
		validate(t, instances, again)
	})
}

// TestXMLLintDetectsErrors checks that xmllint rejects invalid elements.
func TestXMLLintDetectsErrors(t *testing.T) {
	f := func(goType any, invalid string) {
		t.Helper()
		typ := model.byGo[reflect.TypeOf(goType)]
		in := instance{tag: "t:" + rootName(typ), typ: typ}
		out, err := lint(t, []instance{in}, [][]byte{[]byte(fmt.Sprintf(invalid, in.tag))})
		require.ErrorContains(t, err, "exit status 3", out)
	}
	f(PlainPoint{}, `<%s x="1"/>`)
	f(PlainLineString{}, `<%s/>`)
	f(Job{}, `<%s elapsedTime="1" status="DONE"/>`)
	f(CallerContext{}, `<%s xmlns:o="urn:other"><o:wrappedProperties/></%[1]s>`)
}

// instance is a value of a type, and the name of its element.
type instance struct {
	tag   string
	typ   *typ
	value reflect.Value
}

// everyInstance returns two values of each type that is not abstract, including messages. A value
// of a type that others extend is stored in an interface.
func everyInstance() []instance {
	var all []instance
	add := func(t *typ, tag string) {
		for _, full := range []bool{true, false} {
			v := reflect.New(t.memberType()).Elem()
			(&filler{full: full}).fill(t, v)
			all = append(all, instance{tag, t, v})
		}
	}
	for _, t := range model.types {
		if !t.abstract {
			add(t, "t:"+rootName(t))
		}
	}
	for _, m := range messageTypes {
		t := model.byGo[reflect.TypeOf(m).Elem()]
		add(t, t.name.prefixed())
	}
	return all
}

// rootName returns the name of a type's element in the schema of the test.
func rootName(t *typ) string { return prefixes[t.name.space] + "-" + t.name.local }

// filler fills values with varying content, either in all members or only in the required ones.
type filler struct {
	full  bool
	made  int
	depth int
}

func (m *filler) fill(t *typ, v reflect.Value) {
	m.depth++
	defer func() { m.depth-- }()
	switch {
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		m.fill(t, v.Elem())
	case v.Kind() == reflect.Interface && t.abstract:
		m.fillInterface(concrete(t)[m.made%len(concrete(t))], v)
	case v.Kind() == reflect.Interface:
		m.fillInterface(t, v)
	case t.simple != nil:
		m.fillSimple(t, v)
	case t.item != nil:
		m.fillArray(t, v)
	default:
		for _, member := range append(append([]*member{}, t.attributes...), t.elements...) {
			if member.required || m.full && m.depth < 6 {
				m.fill(member.typ, v.FieldByIndex(member.index))
			}
		}
	}
}

func (m *filler) fillInterface(t *typ, v reflect.Value) {
	made := reflect.New(t.goType)
	m.fill(t, made.Elem())
	v.Set(made)
}

// fillArray adds one item of every possible type if m.full is set.
func (m *filler) fillArray(t *typ, v reflect.Value) {
	v.Set(reflect.MakeSlice(v.Type(), 0, 0))
	if !m.full || m.depth > 6 {
		return
	}
	for _, actual := range concrete(t.item) {
		item := reflect.New(v.Type().Elem()).Elem()
		if item.Kind() == reflect.Interface {
			m.fillInterface(actual, item)
		} else {
			m.fill(actual, item)
		}
		v.Set(reflect.Append(v, item))
	}
}

// concrete returns the types that a value of the declared type t may have.
func concrete(t *typ) []*typ {
	var found []*typ
	for _, other := range model.types {
		if other.extends(t) && !other.abstract {
			found = append(found, other)
		}
	}
	return found
}

func (m *filler) fillSimple(t *typ, v reflect.Value) {
	m.made++
	switch v.Interface().(type) {
	case time.Time:
		v.Set(reflect.ValueOf(time.Date(2026, 3, 1, 23, 59, m.made%60, 123456789, time.UTC)))
	case []byte:
		v.SetBytes(bytes.Repeat([]byte{0, 0xFF, byte(m.made)}, m.made%40))
	case bool:
		v.SetBool(m.made%2 == 0)
	case int16, int32, int64:
		v.SetInt(int64(m.made) - 20)
	case float32, float64:
		v.SetFloat(float64(m.made) / 8)
	case string:
		v.SetString(fmt.Sprintf(" <\"ä\"> & 'b'\t\r\n\U0001F6A6 ]]> %d ", m.made))
	default:
		v.SetString(t.simple.values[m.made%len(t.simple.values)])
	}
}

// wrapped returns a document with the given element in its root, which declares all prefixes.
func wrapped(element []byte) []byte {
	return []byte(xmlDeclaration + `<t:all xmlns:t="urn:test"` + declarations(append(allSpaces(), nsSchema, nsInstance)...) + ">" + string(element) + "</t:all>")
}

// readElement reads the element in a document returned by wrapped.
func readElement(t *testing.T, typ *typ, element []byte) reflect.Value {
	t.Helper()
	d := newReader(bytes.NewReader(wrapped(element)), Limits{})
	_, _, err := d.child()
	require.NoError(t, err)
	s, _, err := d.child()
	require.NoError(t, err)
	v := reflect.New(typ.memberType()).Elem()
	require.NoError(t, d.value(typ, v, s), "%s", element)
	_, more, err := d.child()
	require.NoError(t, err)
	require.False(t, more)
	d.leave()
	require.NoError(t, d.finish())
	return v
}

func validate(t *testing.T, instances []instance, written [][]byte) {
	t.Helper()
	out, err := lint(t, instances, written)
	require.NoError(t, err, out)
}

// lint validates elements against the embedded documents with xmllint.
func lint(t *testing.T, instances []instance, written [][]byte) (string, error) {
	t.Helper()
	dir := t.TempDir()
	put := func(file string, text []byte) string {
		path := filepath.Join(dir, file)
		require.NoError(t, os.WriteFile(path, text, 0o600))
		return path
	}
	for _, file := range SchemaNames() {
		put(file, Schema(file, "VENDOR"))
	}
	cmd := exec.Command(needs.Program(t, "xmllint"), "--nonet", "--noout", "--schema", put("test.xsd", testSchema(instances)),
		put("test.xml", wrapped(bytes.Join(written, nil))))
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// testSchema returns a schema with a global element for the type of each instance, and an element
// that contains any number of them.
func testSchema(instances []instance) []byte {
	var text strings.Builder
	text.WriteString(`<xsd:schema targetNamespace="urn:test"` + declarations(append(allSpaces(), nsSchema)...) + ">")
	for _, file := range schemas {
		fmt.Fprintf(&text, "<xsd:import namespace=%q schemaLocation=%q/>", file.space, file.name)
	}
	text.WriteString(`<xsd:element name="all"><xsd:complexType><xsd:sequence>` +
		`<xsd:any namespace="##any" processContents="strict" maxOccurs="unbounded"/></xsd:sequence></xsd:complexType></xsd:element>`)
	declared := map[string]bool{}
	for _, in := range instances {
		if local, found := strings.CutPrefix(in.tag, "t:"); found && !declared[local] {
			declared[local] = true
			fmt.Fprintf(&text, "<xsd:element name=%q type=%q/>", local, in.typ.name.prefixed())
		}
	}
	text.WriteString("</xsd:schema>")
	return []byte(text.String())
}

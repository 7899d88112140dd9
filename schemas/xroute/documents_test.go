package xroute

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the documents in xsd/ from the Go types")

// TestDocuments compares the committed documents with the Go types.
func TestDocuments(t *testing.T) {
	f := func(file, want string) {
		t.Helper()
		path := filepath.Join("xsd", file)
		if *update {
			require.NoError(t, os.WriteFile(path, []byte(want), 0o644))
		}
		got, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, want, string(got), "the Go types have changed: go test ./schemas/xroute -run TestDocuments -update")
	}
	for _, file := range schemas {
		f(file.name, schemaDocument(file.space))
	}
	f(wsdlName, wsdlDocument())
	found, err := os.ReadDir("xsd")
	require.NoError(t, err)
	require.Len(t, found, len(SchemaNames())+1, "files in xsd/: must be the WSDL and the schemas")
}

// page is a document that is being written.
type page struct {
	bytes.Buffer
	depth int
}

func (p *page) line(format string, args ...any) {
	p.WriteString(strings.Repeat("  ", p.depth))
	fmt.Fprintf(p, format, args...)
	p.WriteByte('\n')
}

// in writes an element with the output of content, or an empty-element tag if content writes
// nothing.
func (p *page) in(tag string, content func()) {
	p.line("<%s>", tag)
	before := p.Len()
	p.depth++
	content()
	p.depth--
	if p.Len() == before {
		p.Truncate(before - len(">\n"))
		p.WriteString("/>\n")
		return
	}
	element, _, _ := strings.Cut(tag, " ")
	p.line("</%s>", element)
}

// allSpaces returns the namespaces of the schemas, in the order of schemas.
func allSpaces() []string {
	var spaces []string
	for _, file := range schemas {
		spaces = append(spaces, file.space)
	}
	return spaces
}

func declarations(spaces ...string) string {
	var text string
	for _, space := range spaces {
		text += fmt.Sprintf(" xmlns:%s=%q", prefixes[space], space)
	}
	return text
}

func schemaDocument(space string) string {
	p := &page{}
	p.WriteString(xmlDeclaration)
	used := usedSpaces(space)
	tag := fmt.Sprintf(`xsd:schema targetNamespace=%q elementFormDefault="qualified" attributeFormDefault="unqualified"`, space)
	p.in(tag+declarations(append([]string{nsSchema, space}, used...)...), func() {
		for _, file := range schemas {
			if slices.Contains(used, file.space) {
				p.line(`<xsd:import namespace=%q schemaLocation=%q/>`, file.space, file.name)
			}
		}
		for _, typ := range typesOf(space) {
			p.typ(typ)
		}
		p.globals(space)
	})
	return p.String()
}

func typesOf(space string) []*typ {
	return slices.DeleteFunc(slices.Clone(model.types), func(t *typ) bool { return t.name.space != space })
}

// usedSpaces returns the other namespaces that the types in a namespace refer to.
func usedSpaces(space string) []string {
	found := map[string]bool{}
	mark := func(t *typ) {
		for _, m := range slices.Concat(t.attributes, t.elements) {
			found[m.typ.name.space] = found[m.typ.name.space] || m.owner == t
		}
	}
	for _, t := range typesOf(space) {
		mark(t)
	}
	if space == nsRouting {
		for _, m := range messageTypes {
			mark(model.byGo[reflect.TypeOf(m).Elem()])
		}
	}
	return slices.DeleteFunc(allSpaces(), func(s string) bool { return s == space || !found[s] })
}

func (p *page) typ(t *typ) {
	switch {
	case t.simple != nil:
		p.in(fmt.Sprintf("xsd:simpleType name=%q", t.name.local), func() {
			p.in(`xsd:restriction base="xsd:string"`, func() {
				for _, value := range t.simple.values {
					p.line("<xsd:enumeration value=%q/>", value)
				}
			})
		})
	case t.item != nil:
		p.in(fmt.Sprintf("xsd:complexType name=%q", t.name.local), func() {
			p.in("xsd:sequence", func() {
				p.line(`<xsd:element name=%q type=%q minOccurs="0" maxOccurs="unbounded"/>`, t.item.label, t.item.name.prefixed())
			})
		})
	default:
		p.complexType(t)
	}
}

func (p *page) complexType(t *typ) {
	tag := "xsd:complexType"
	if !t.message {
		tag += fmt.Sprintf(" name=%q", t.name.local)
	}
	if t.abstract {
		tag += ` abstract="true"`
	}
	p.in(tag, func() {
		if t.base == nil {
			p.members(t)
			return
		}
		p.in("xsd:complexContent", func() {
			p.in(fmt.Sprintf("xsd:extension base=%q", t.base.name.prefixed()), func() { p.members(t) })
		})
	})
}

// members writes the members that the type itself declares, without inherited ones.
func (p *page) members(t *typ) {
	own := func(members []*member) []*member {
		return slices.DeleteFunc(slices.Clone(members), func(m *member) bool { return m.owner != t })
	}
	if elements := own(t.elements); len(elements) > 0 {
		p.in("xsd:sequence", func() {
			for _, m := range elements {
				p.line("<xsd:element name=%q type=%q%s%s/>", m.name.local, m.typ.name.prefixed(),
					when(!m.required, ` minOccurs="0"`), when(m.nillable, ` nillable="true"`))
			}
		})
	}
	for _, m := range own(t.attributes) {
		p.line("<xsd:attribute name=%q type=%q%s/>", m.name.local, m.typ.name.prefixed(), when(m.required, ` use="required"`))
	}
}

// when returns text if the condition is met, and "" otherwise.
func when(condition bool, text string) string {
	if condition {
		return text
	}
	return ""
}

// globals writes the global elements: one for each exception, and the messages.
func (p *page) globals(space string) {
	for _, t := range typesOf(space) {
		if t.extends(model.byGo[reflect.TypeFor[Exception]()]) {
			p.line("<xsd:element name=%q type=%q/>", t.name.local, t.name.prefixed())
		}
	}
	if space != nsRouting {
		return
	}
	for _, m := range messageTypes {
		t := model.byGo[reflect.TypeOf(m).Elem()]
		p.in(fmt.Sprintf("xsd:element name=%q", t.name.local), func() { p.complexType(t) })
	}
}

// operation is an operation in the WSDL, which has the name of its request.
type operation struct {
	request Request
	about   string
	faults  []Exception
}

// Every operation can fail with a missing or invalid parameter, or an internal error (contract 3).
var (
	always  = []Exception{&IllegalParameterException{}, &ParameterNotSetException{}, &UnexpectedException{}}
	convert = append([]Exception{&XServiceException{}}, always...)
)

const noEffect = "profile, profileXMLSnippet and other properties are accepted and have no effect; log1 to log3 only appear in the log."

var operations = []operation{
	{&ConvertGeometry{}, "Converts a geometry to other encodings and coordinates. The format of its own coordinates is the property CoordFormat of the caller context, with OG_SRID also SrId. " + noEffect, convert},
	{&StartConvertGeometries{}, "Starts a job that converts many geometries. " + noEffect, convert},
	{&FetchConvertGeometries{}, "Returns what a job has converted, once. If the id is unknown, expired or already fetched, the status of the job is UNKNOWN.", always},
	{&WatchJob{}, "Returns the state of a job when it has ended or progressed, or after the maximum polling period.", always},
	{&StopJob{}, "Stops a job. Its status is STOPPING until the conversion in progress has ended, then FAILED, or SUCCEEDED if nothing was left. What was converted can be fetched.", always},
	{&DeleteJob{}, "Deletes a job and what it has converted.", always},
}

const nsWSDL = "urn:xserver:xroute"

// wsdlDocument returns the WSDL. It declares all namespaces at the root, because node-soap declares
// only these in its envelopes, and a prefix in xsi:type must be declared.
func wsdlDocument() string {
	p := &page{}
	p.WriteString(xmlDeclaration)
	p.in(`wsdl:definitions name="XRouteWSService" targetNamespace="`+nsWSDL+`" xmlns:tns="`+nsWSDL+`"`+
		` xmlns:wsdl="http://schemas.xmlsoap.org/wsdl/" xmlns:soap="http://schemas.xmlsoap.org/wsdl/soap/"`+
		declarations(nsSchema, nsCommon, nsExceptions, nsPrimitives, nsRouting, nsService), func() {
		p.in("wsdl:types", func() {
			p.in("xsd:schema", func() {
				for _, file := range schemas {
					p.line(`<xsd:import namespace=%q schemaLocation=%q/>`, file.space, file.name)
				}
			})
		})
		p.wsdlMessages()
		p.portType()
		p.binding()
		p.in(`wsdl:service name="XRouteWSService"`, func() {
			p.in(`wsdl:port name="XRouteWSPort" binding="tns:XRouteWSBinding"`, func() {
				p.line("<soap:address location=%q/>", addressPlaceholder)
			})
		})
	})
	return p.String()
}

func exceptionName(x Exception) string { return reflect.TypeOf(x).Elem().Name() }

func (p *page) wsdlMessages() {
	message := func(name, part, element string) {
		p.in(fmt.Sprintf("wsdl:message name=%q", name), func() {
			p.line("<wsdl:part name=%q element=%q/>", part, element)
		})
	}
	for _, o := range operations {
		name := Operation(o.request)
		message(name, "parameters", "r:"+name)
		message(name+"Response", "parameters", "r:"+name+"Response")
	}
	for _, x := range convert {
		message(exceptionName(x), "fault", "e:"+exceptionName(x))
	}
}

func (p *page) portType() {
	p.in(`wsdl:portType name="XRouteWS"`, func() {
		for _, o := range operations {
			name := Operation(o.request)
			p.in(fmt.Sprintf("wsdl:operation name=%q", name), func() {
				p.line("<wsdl:documentation>%s</wsdl:documentation>", o.about)
				p.line(`<wsdl:input message="tns:%s"/>`, name)
				p.line(`<wsdl:output message="tns:%sResponse"/>`, name)
				for _, x := range o.faults {
					p.line(`<wsdl:fault name="%[1]s" message="tns:%[1]s"/>`, exceptionName(x))
				}
			})
		}
	})
}

func (p *page) binding() {
	p.in(`wsdl:binding name="XRouteWSBinding" type="tns:XRouteWS"`, func() {
		p.line(`<soap:binding style="document" transport="http://schemas.xmlsoap.org/soap/http"/>`)
		for _, o := range operations {
			p.in(fmt.Sprintf("wsdl:operation name=%q", Operation(o.request)), func() {
				p.line(`<soap:operation soapAction=""/>`)
				for _, side := range []string{"input", "output"} {
					p.in("wsdl:"+side, func() { p.line(`<soap:body use="literal"/>`) })
				}
				for _, x := range o.faults {
					p.in(fmt.Sprintf("wsdl:fault name=%q", exceptionName(x)), func() {
						p.line(`<soap:fault name=%q use="literal"/>`, exceptionName(x))
					})
				}
			})
		}
	})
}

package xroute

import (
	"cmp"
	"fmt"
	"reflect"
	"strings"
)

// The namespaces, one for each family of types (contract 3.1).
const (
	nsCommon     = "urn:xserver:common"
	nsRouting    = "urn:xserver:routing"
	nsExceptions = "urn:xserver:exceptions"
	nsPrimitives = "urn:xserver:primitives"
	nsService    = "urn:xserver:service"

	nsSchema   = "http://www.w3.org/2001/XMLSchema"
	nsXML      = "http://www.w3.org/XML/1998/namespace"
	nsInstance = "http://www.w3.org/2001/XMLSchema-instance"
	nsEnvelope = "http://schemas.xmlsoap.org/soap/envelope/"
)

// prefixes maps each namespace to the prefix that this package writes.
var prefixes = map[string]string{
	nsCommon: "c", nsRouting: "r", nsExceptions: "e", nsPrimitives: "p", nsService: "s",
	nsSchema: "xsd", nsInstance: "xsi", nsEnvelope: "soapenv",
}

type name struct{ space, local string }

func (n name) prefixed() string { return prefixes[n.space] + ":" + n.local }

// typ is a simple type, an array or a complex type.
type typ struct {
	name     name
	goType   reflect.Type // the struct of a complex type, the slice of an array
	simple   *simple      // set for a simple type
	item     *typ         // type of the items of an array
	itemName name         // name of an array's elements
	itemTag  string       // itemName with its prefix
	label    string       // name in errors, and T in the name of its array, ArrayOf<T>
	base     *typ         // the type that this one extends, or nil
	abstract bool
	message  bool // anonymous type of a global element

	attributes, elements []*member // including those of the base, which come first

	iface reflect.Type // for a type that others extend, the interface that all of them implement
}

// member is an attribute or an element of a complex type.
type member struct {
	name               name   // attributes are in no namespace
	tag                string // for an element, its name with prefix
	typ                *typ
	index              []int // index of the struct field, as in FieldByIndex
	required, nillable bool
	owner              *typ // the type that declares it
}

func (t *typ) extends(other *typ) bool {
	for ; t != nil; t = t.base {
		if t == other {
			return true
		}
	}
	return false
}

// memberType returns the Go type of the items of an array of t.
func (t *typ) memberType() reflect.Type { return cmp.Or(t.iface, t.goType) }

// The complex types, in the order of the documents. Each type follows the one that it extends.
var (
	commonTypes = []any{
		&geometryBase{}, &Encodings{},
		&Point{}, &LineString{}, &LinearRing{}, &Polygon{}, &MultiPoint{}, &MultiLineString{}, &MultiPolygon{}, &GeometryCollection{},
		&BoundingBox{}, &KML{},
		&PlainGeometryBase{}, &PlainPoint{}, &PlainLineString{}, &PlainLinearRing{}, &PlainPolygon{},
		&PlainMultiPoint{}, &PlainMultiLineString{}, &PlainMultiPolygon{}, &PlainGeometryCollection{},
		&progressBase{}, &BulkProgress{}, &DistanceMatrixProgress{}, &PlanProgress{},
		&DistanceMatrixCalculationProgress{}, &ImprovementProgress{}, &KeyFigures{}, &OptimizationProgress{}, &Job{}, &WatchOptions{},
	}
	serviceTypes   = []any{&CallerContext{}, &CallerContextProperty{}}
	routingTypes   = []any{&RequestOptions{}, &ConvertedGeometries{}, &ConversionFailure{}}
	exceptionTypes = []any{
		&BaseException{}, &SystemException{}, &BusinessException{},
		&DatabaseException{}, &ConstraintViolationException{}, &TableNotFoundException{}, &UnexpectedException{},
		&OptimisticRollbackException{}, &RemoteAccessException{}, &CreateException{}, &DuplicateKeyException{}, &RemoveException{},
		&FinderException{}, &ObjectNotFoundException{}, &IllegalParameterException{}, &ParameterNotSetException{}, &XServiceException{},
		&StackElement{},
	}
	messageTypes = []Message{
		&ConvertGeometry{}, &ConvertGeometryResponse{},
		&StartConvertGeometries{}, &StartConvertGeometriesResponse{},
		&FetchConvertGeometries{}, &FetchConvertGeometriesResponse{},
		&WatchJob{}, &WatchJobResponse{},
		&StopJob{}, &StopJobResponse{}, &DeleteJob{}, &DeleteJobResponse{},
	}
)

// bases contains the extended types that have a Go interface of their own.
var bases = map[reflect.Type]struct {
	iface    reflect.Type // implemented by the type and all types that extend it
	abstract string       // name of the type if it is abstract, otherwise empty
}{
	reflect.TypeFor[geometryBase]():      {reflect.TypeFor[EncodedGeometryBase](), "EncodedGeometryBase"},
	reflect.TypeFor[Encodings]():         {reflect.TypeFor[EncodedGeometry](), "EncodedGeometry"},
	reflect.TypeFor[PlainGeometryBase](): {reflect.TypeFor[PlainGeometry](), ""},
	reflect.TypeFor[progressBase]():      {reflect.TypeFor[JobProgress](), "JobProgress"},
	reflect.TypeFor[BaseException]():     {reflect.TypeFor[Exception](), ""},
}

type schema struct {
	types    []*typ // in the order of the documents
	byName   map[name]*typ
	byGo     map[reflect.Type]*typ
	messages map[name]*typ // keyed by the name of the element
}

// model is built from the Go types.
var model = newSchema()

func newSchema() *schema {
	s := &schema{byName: map[name]*typ{}, byGo: map[reflect.Type]*typ{}, messages: map[name]*typ{}}
	for _, p := range primitives() {
		s.add(&typ{name: name{nsSchema, p.xsd}, simple: p, goType: p.goType, label: p.label})
	}
	for _, e := range enumerations() {
		s.add(&typ{name: name{e.space, e.label}, simple: e, goType: e.goType, label: e.label})
	}
	s.declare(nsCommon, commonTypes)
	s.declare(nsService, serviceTypes)
	s.declare(nsExceptions, exceptionTypes)
	s.declare(nsRouting, routingTypes)
	for _, t := range s.types {
		if t.simple == nil && t.item == nil {
			s.describe(t)
		}
	}
	for _, m := range messageTypes {
		goType := reflect.TypeOf(m).Elem()
		local := lowerFirst(goType.Name())
		t := &typ{name: name{nsRouting, local}, label: local, goType: goType, message: true}
		s.describe(t)
		s.messages[t.name], s.byGo[goType] = t, t
	}
	return s
}

// add adds a type, its array, and the array of that array. An interface represents the first type
// that implements it.
func (s *schema) add(t *typ) {
	for range 3 {
		s.types = append(s.types, t)
		s.byName[t.name] = t
		for _, goType := range []reflect.Type{t.goType, t.iface} {
			if goType != nil && s.byGo[goType] == nil {
				s.byGo[goType] = t
			}
		}
		array := &typ{name: name{t.name.space, "ArrayOf" + t.label}, item: t, goType: reflect.SliceOf(t.memberType())}
		if array.name.space == nsSchema {
			array.name.space = nsPrimitives
		}
		array.label, array.itemName = array.name.local, name{array.name.space, t.label}
		array.itemTag = array.itemName.prefixed()
		t = array
	}
}

func (s *schema) declare(space string, list []any) {
	extended := map[reflect.Type]bool{}
	for _, zero := range list {
		if goType := reflect.TypeOf(zero).Elem(); goType.NumField() > 0 && goType.Field(0).Anonymous {
			extended[goType.Field(0).Type] = true
		}
	}
	for _, zero := range list {
		goType := reflect.TypeOf(zero).Elem()
		t := &typ{goType: goType, label: goType.Name()}
		if base, ok := bases[goType]; ok {
			t.iface = base.iface
			if t.abstract = base.abstract != ""; t.abstract {
				t.label = base.abstract
			}
		} else if extended[goType] {
			t.iface = s.byGo[goType.Field(0).Type].iface
		}
		t.name = name{space, t.label}
		s.add(t)
	}
}

// describe sets the base and the members of a complex type, which extends the type that it embeds.
func (s *schema) describe(t *typ) {
	for i := range t.goType.NumField() {
		field := t.goType.Field(i)
		tag, tagged := field.Tag.Lookup("xsd")
		switch {
		case tagged:
			s.addMember(t, field, tag)
		case field.Anonymous && t.message: // marks a request or response
		case field.Anonymous:
			t.base = s.typeOf(field.Type)
			t.attributes, t.elements = inherit(i, t.base.attributes), inherit(i, t.base.elements)
		default:
			panic(fmt.Sprintf("xroute: %s.%s has no xsd tag", t.name.local, field.Name))
		}
	}
}

// inherit returns copies of the members of an embedded type. field is the index of the embedded
// field.
func inherit(field int, members []*member) (own []*member) {
	for _, m := range members {
		copied := *m
		copied.index = append([]int{field}, m.index...)
		own = append(own, &copied)
	}
	return own
}

func lowerFirst(s string) string { return strings.ToLower(s[:1]) + s[1:] }

// addMember adds a member. The tag is name[,required][,nillable]. A leading @ marks an attribute.
// <kind> in the name is replaced with the name of t.
func (s *schema) addMember(t *typ, field reflect.StructField, tag string) {
	parts := strings.Split(tag, ",")
	m := &member{typ: s.typeOf(field.Type), index: field.Index, owner: t}
	for _, part := range parts[1:] {
		m.required = m.required || part == "required"
		m.nillable = m.nillable || part == "nillable"
	}
	local, isAttribute := strings.CutPrefix(strings.Replace(parts[0], "<kind>", lowerFirst(t.label), 1), "@")
	if isAttribute {
		m.name = name{"", local}
		t.attributes = append(t.attributes, m)
		return
	}
	m.name = name{t.name.space, local}
	m.tag = m.name.prefixed()
	t.elements = append(t.elements, m)
}

func (s *schema) typeOf(goType reflect.Type) *typ {
	t := s.byGo[goType]
	switch {
	case t == nil && goType.Kind() == reflect.Pointer:
		return s.typeOf(goType.Elem())
	case t == nil:
		panic(fmt.Sprintf("xroute: %s is not declared", goType))
	}
	return t
}

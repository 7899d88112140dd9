package xroute

import (
	"fmt"
	"reflect"
	"strings"
	"unicode"
)

// The namespaces, one for each family of types (contract 3).
const (
	nsCommon     = "urn:xserver:common"
	nsRouting    = "urn:xserver:routing"
	nsExceptions = "urn:xserver:exceptions"
	nsPrimitives = "urn:xserver:primitives"
	nsService    = "urn:xserver:service"

	nsSchema   = "http://www.w3.org/2001/XMLSchema"
	nsInstance = "http://www.w3.org/2001/XMLSchema-instance"
	nsEnvelope = "http://schemas.xmlsoap.org/soap/envelope/"
)

// prefixes are those that this package writes; all are declared in the envelope element.
var prefixes = map[string]string{
	nsCommon: "c", nsRouting: "r", nsExceptions: "e", nsPrimitives: "p", nsService: "s",
	nsSchema: "xsd", nsInstance: "xsi", nsEnvelope: "soapenv",
}

// name is an expanded name.
type name struct{ space, local string }

// prefixed returns the name as this package writes it.
func (n name) prefixed() string { return prefixes[n.space] + ":" + n.local }

// typ is a type of the schema: simple, an array, or a complex type.
type typ struct {
	name     name
	goType   reflect.Type // the struct of a complex type, the slice of an array
	simple   *simple      // of a simple type
	item     *typ         // of an array
	label    string       // T in ArrayOf<T>, also the name in errors
	base     *typ         // the type that it extends
	abstract bool
	message  bool // the content of a global element, without a name

	// Members of the base come first.
	attributes, elements []*member

	// For a type that others extend: the interface that all of them implement.
	held reflect.Type
}

// member is an attribute or an element of a complex type.
type member struct {
	name               name   // attributes are in no namespace
	tag                string // of an element: the name as this package writes it
	typ                *typ
	index              []int // of the struct field
	required, nillable bool
	owner              *typ // the type that declares it
}

// extends reports whether t is other or extends it.
func (t *typ) extends(other *typ) bool {
	for ; t != nil; t = t.base {
		if t == other {
			return true
		}
	}
	return false
}

// memberType returns the Go type of the items of an array of t.
func (t *typ) memberType() reflect.Type {
	if t.held != nil {
		return t.held
	}
	return t.goType
}

// declaration is an entry of the list of types.
type declaration struct {
	zero     any
	held     reflect.Type // the interface of this type and of all that extend it
	name     string       // if it is not the name of the Go type
	abstract bool
}

// The complex types. A type follows the one that it extends.
var (
	commonTypes = []declaration{
		{zero: geometryBase{}, name: "EncodedGeometryBase", abstract: true, held: reflect.TypeFor[EncodedGeometryBase]()},
		{zero: Encodings{}, name: "EncodedGeometry", abstract: true, held: reflect.TypeFor[EncodedGeometry]()},
		{zero: Point{}},
		{zero: LineString{}},
		{zero: LinearRing{}},
		{zero: Polygon{}},
		{zero: MultiPoint{}},
		{zero: MultiLineString{}},
		{zero: MultiPolygon{}},
		{zero: GeometryCollection{}},
		{zero: BoundingBox{}},
		{zero: KML{}},
		{zero: PlainGeometryBase{}, held: reflect.TypeFor[PlainGeometry]()},
		{zero: PlainPoint{}},
		{zero: PlainLineString{}},
		{zero: PlainLinearRing{}},
		{zero: PlainPolygon{}},
		{zero: PlainMultiPoint{}},
		{zero: PlainMultiLineString{}},
		{zero: PlainMultiPolygon{}},
		{zero: PlainGeometryCollection{}},
		{zero: progressBase{}, name: "JobProgress", abstract: true, held: reflect.TypeFor[JobProgress]()},
		{zero: BulkProgress{}},
		{zero: DistanceMatrixProgress{}},
		{zero: PlanProgress{}},
		{zero: DistanceMatrixCalculationProgress{}},
		{zero: ImprovementProgress{}},
		{zero: KeyFigures{}},
		{zero: OptimizationProgress{}},
		{zero: Job{}},
		{zero: WatchOptions{}},
	}
	serviceTypes = []declaration{
		{zero: CallerContext{}},
		{zero: CallerContextProperty{}},
	}
	routingTypes = []declaration{
		{zero: RequestOptions{}},
		{zero: ConvertedGeometries{}},
		{zero: ConversionFailure{}},
	}
	exceptionTypes = []declaration{
		{zero: BaseException{}, held: reflect.TypeFor[Exception]()},
		{zero: SystemException{}, held: reflect.TypeFor[Exception]()},
		{zero: BusinessException{}, held: reflect.TypeFor[Exception]()},
		{zero: DatabaseException{}, held: reflect.TypeFor[Exception]()},
		{zero: ConstraintViolationException{}},
		{zero: TableNotFoundException{}},
		{zero: UnexpectedException{}},
		{zero: OptimisticRollbackException{}},
		{zero: RemoteAccessException{}},
		{zero: CreateException{}, held: reflect.TypeFor[Exception]()},
		{zero: DuplicateKeyException{}},
		{zero: RemoveException{}},
		{zero: FinderException{}, held: reflect.TypeFor[Exception]()},
		{zero: ObjectNotFoundException{}},
		{zero: IllegalParameterException{}, held: reflect.TypeFor[Exception]()},
		{zero: ParameterNotSetException{}},
		{zero: XServiceException{}},
		{zero: StackElement{}},
	}
	messageTypes = []Message{
		&ConvertGeometry{}, &ConvertGeometryResponse{},
		&StartConvertGeometries{}, &StartConvertGeometriesResponse{},
		&FetchConvertGeometries{}, &FetchConvertGeometriesResponse{},
		&WatchJob{}, &WatchJobResponse{},
		&StopJob{}, &StopJobResponse{},
		&DeleteJob{}, &DeleteJobResponse{},
	}
)

// schema contains all types and global elements.
type schema struct {
	types    []*typ // in the order of the documents
	byName   map[name]*typ
	byGo     map[reflect.Type]*typ
	messages map[name]*typ // by the name of the element
}

// model is built from the Go types. Building it panics on an invalid tag.
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
		s.addMessage(reflect.TypeOf(m).Elem())
	}
	return s
}

// add adds a type and its two arrays.
func (s *schema) add(t *typ) {
	s.types = append(s.types, t)
	s.byName[t.name] = t
	s.byGo[t.goType] = t
	for range 2 {
		array := &typ{name: name{t.name.space, "ArrayOf" + t.label}, item: t}
		if array.name.space == nsSchema {
			array.name.space = nsPrimitives
		}
		array.label, array.goType = array.name.local, reflect.SliceOf(t.memberType())
		s.types = append(s.types, array)
		s.byName[array.name] = array
		t = array
	}
}

func (s *schema) declare(space string, list []declaration) {
	for _, d := range list {
		t := &typ{goType: reflect.TypeOf(d.zero), abstract: d.abstract, held: d.held}
		if d.name == "" {
			d.name = t.goType.Name()
		}
		t.name, t.label = name{space, d.name}, d.name
		s.add(t)
		if t.held != nil && s.byGo[t.held] == nil {
			s.byGo[t.held] = t
		}
	}
}

func (s *schema) addMessage(goType reflect.Type) {
	local := []rune(goType.Name())
	local[0] = unicode.ToLower(local[0])
	t := &typ{name: name{nsRouting, string(local)}, label: string(local), goType: goType, message: true}
	s.describe(t)
	s.messages[t.name] = t
	s.byGo[goType] = t
}

// describe finds base and members of a complex type, which extends the type that it embeds.
func (s *schema) describe(t *typ) {
	for i := range t.goType.NumField() {
		field := t.goType.Field(i)
		tag, tagged := field.Tag.Lookup("xsd")
		switch {
		case tagged:
			s.addMember(t, field, tag)
		case field.Anonymous && t.message: // marks a request or response
		case field.Anonymous:
			s.extend(t, field)
		default:
			panic(fmt.Sprintf("xroute: %s.%s has no xsd tag", t.name.local, field.Name))
		}
	}
}

func (s *schema) extend(t *typ, field reflect.StructField) {
	t.base = s.byGo[field.Type]
	if t.base == nil {
		panic(fmt.Sprintf("xroute: %s extends %s, which is not declared", t.name.local, field.Type))
	}
	inherit := func(members []*member) (own []*member) {
		for _, m := range members {
			copied := *m
			copied.index = append([]int{field.Index[0]}, m.index...)
			own = append(own, &copied)
		}
		return own
	}
	t.attributes, t.elements = inherit(t.base.attributes), inherit(t.base.elements)
}

// addMember reads a tag: name[,required][,nillable], @name for an attribute.
func (s *schema) addMember(t *typ, field reflect.StructField, tag string) {
	parts := strings.Split(tag, ",")
	m := &member{typ: s.typeOf(field.Type), index: field.Index, owner: t}
	for _, part := range parts[1:] {
		m.required = m.required || part == "required"
		m.nillable = m.nillable || part == "nillable"
	}
	local, isAttribute := strings.CutPrefix(parts[0], "@")
	if isAttribute {
		m.name = name{"", local}
		t.attributes = append(t.attributes, m)
		return
	}
	m.name = name{t.name.space, local}
	m.tag = m.name.prefixed()
	t.elements = append(t.elements, m)
}

// typeOf returns the type of a field.
func (s *schema) typeOf(goType reflect.Type) *typ {
	if t := s.byGo[goType]; t != nil {
		return t
	}
	switch goType.Kind() {
	case reflect.Pointer:
		return s.typeOf(goType.Elem())
	case reflect.Slice:
		item := s.typeOf(goType.Elem())
		space := item.name.space
		if space == nsSchema {
			space = nsPrimitives
		}
		return s.byName[name{space, "ArrayOf" + item.label}]
	default:
		panic(fmt.Sprintf("xroute: %s is not declared", goType))
	}
}

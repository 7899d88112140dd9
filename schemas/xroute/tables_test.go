package xroute

import (
	"encoding/xml"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The tables of the specification, 2.5 and 7.3, a line for each type:
//
//	name [!] [< base]: attributes | elements
//
// ! is abstract. A member is name=type; + marks a required one, ~ a nillable one.
const tables = `
CallerContext: log1=string log2=string log3=string | wrappedProperties=ArrayOfCallerContextProperty+~
CallerContextProperty: key=string value=string |
RequestOptions: coordFormat=CoordFormat+ profile=string profileXMLSnippet=string srId=string | wrappedResponseGeometry=ArrayOfGeometryEncoding+~
WatchOptions: maximumPollingPeriod=int progressUpdatePeriod=int |

BoundingBox: | leftTop=Point~ rightBottom=Point~
EncodedGeometryBase !: |
EncodedGeometry ! < EncodedGeometryBase: wkb=base64Binary wkt=string | kml=KML
Point < EncodedGeometry: | point=PlainPoint
LineString < EncodedGeometry: | lineString=PlainLineString
LinearRing < EncodedGeometry: | linearRing=PlainLinearRing
Polygon < EncodedGeometry: | polygon=PlainPolygon
MultiPoint < EncodedGeometry: | multiPoint=PlainMultiPoint
MultiLineString < EncodedGeometry: | multiLineString=PlainMultiLineString
MultiPolygon < EncodedGeometry: | multiPolygon=PlainMultiPolygon
GeometryCollection < EncodedGeometry: | geometryCollection=PlainGeometryCollection
PlainGeometryBase: |
PlainPoint < PlainGeometryBase: x=double+ y=double+ z=double |
PlainLineString < PlainGeometryBase: | wrappedPoints=ArrayOfPlainPoint+
PlainLinearRing < PlainGeometryBase: | wrappedPoints=ArrayOfPlainPoint+
PlainPolygon < PlainGeometryBase: | wrappedLinearRings=ArrayOfPlainLinearRing+
PlainMultiPoint < PlainGeometryBase: | wrappedPoints=ArrayOfPlainPoint+
PlainMultiLineString < PlainGeometryBase: | wrappedLineStrings=ArrayOfPlainLineString+
PlainMultiPolygon < PlainGeometryBase: | wrappedPolygons=ArrayOfPlainPolygon+
PlainGeometryCollection < PlainGeometryBase: | wrappedGeometries=ArrayOfPlainGeometryBase+
KML: kml=string | wrappedPlacemarks=ArrayOfString

Job: elapsedTime=int+ id=string status=JobStatus+ | progress=JobProgress
JobProgress !: |
BulkProgress < JobProgress: failed=int+ remaining=int+ successful=int+ |
DistanceMatrixProgress < JobProgress: currentRowIndex=int+ lastRowIndex=int+ |
PlanProgress < JobProgress: action=string | distanceMatrixCalculationProgress=DistanceMatrixCalculationProgress improvementProgress=ImprovementProgress
DistanceMatrixCalculationProgress: currentDimaIndex=int+ dimaId=int+ lastDimaIndex=int+ | currentDistanceMatrixProgress=DistanceMatrixProgress
ImprovementProgress: availableMachineTime=int+ iterationIndex=int+ numberOfImprovements=int+ usedMachineTime=int+ | bestPlan=KeyFigures currentPlan=KeyFigures initialPlan=KeyFigures
KeyFigures: costOfObjectiveFunction=int+ numberOfInfeasibleOrders=int+ numberOfScheduledOrders=int+ numberOfScheduledVehicles=int+ numberOfUnscheduledOrders=int+ totalChainCost=int+ totalChainPeriod=int+ totalTourCost=int+ totalTourCount=int+ totalTourDistance=int+ totalTourDrivingPeriod=int+ totalTourPeriod=int+ totalTourWaitingPeriod=int+ |
OptimizationProgress: currentLoopIndex=int+ lastLoopIndex=int+ progress=int+ |

BaseException: transactionId=string | stackElement=StackElement~
SystemException < BaseException: |
BusinessException < BaseException: |
DatabaseException < SystemException: |
ConstraintViolationException < DatabaseException: |
TableNotFoundException < DatabaseException: |
UnexpectedException < SystemException: |
OptimisticRollbackException < SystemException: |
RemoteAccessException < SystemException: |
CreateException < SystemException: |
DuplicateKeyException < CreateException: |
RemoveException < SystemException: |
FinderException < SystemException: |
ObjectNotFoundException < FinderException: |
IllegalParameterException < BusinessException: |
ParameterNotSetException < IllegalParameterException: |
XServiceException < BusinessException: |
StackElement: className=string errorKey=string message=string | cause=StackElement~ wrappedContext=ArrayOfString+~
`

const enumerationTable = `
GeometryEncoding: PLAIN WKB WKT KML
CoordFormat: OG_GEODECIMAL VENDOR_MERCATOR VENDOR_GEOMINSEC VENDOR_GEODECIMAL VENDOR_CONFORM VENDOR_SUPERCONFORM VENDOR_SMARTUNITS OG_SRID
ErrorCode: REQUEST_INVALID_WKT REQUEST_INVALID_WKB REQUEST_INVALID_KML KML_PLACEMARK_NOT_FOUND CONVERT_GEOMETRY_OBJECT CONVERT_COORDINATE_FORMAT GEOMETRY_ENCODING
JobStatus: QUEUING RUNNING STOPPING SUCCEEDED FAILED DELETED UNKNOWN
`

// The item of an ArrayOf<T> of a primitive type, and its type.
const primitiveTable = "Calendar=dateTime String=string byte=base64Binary short=short int=int long=long float=float double=double boolean=boolean"

// XML Schema, as far as the documents use it.
type (
	xsdDocument struct {
		Target       string    `xml:"targetNamespace,attr"`
		Elements     string    `xml:"elementFormDefault,attr"`
		Attributes   string    `xml:"attributeFormDefault,attr"`
		SimpleTypes  []xsdType `xml:"simpleType"`
		ComplexTypes []xsdType `xml:"complexType"`
		Globals      []xsdItem `xml:"element"`
	}
	xsdType struct {
		Name     string `xml:"name,attr"`
		Abstract bool   `xml:"abstract,attr"`
		xsdContent
		Extension struct {
			Base string `xml:"base,attr"`
			xsdContent
		} `xml:"complexContent>extension"`
		Values []struct {
			Value string `xml:"value,attr"`
		} `xml:"restriction>enumeration"`
	}
	xsdContent struct {
		Elements   []xsdItem `xml:"sequence>element"`
		Attributes []xsdItem `xml:"attribute"`
	}
	xsdItem struct {
		Name     string `xml:"name,attr"`
		Type     string `xml:"type,attr"`
		Use      string `xml:"use,attr"`
		Min      string `xml:"minOccurs,attr"`
		Max      string `xml:"maxOccurs,attr"`
		Nillable bool   `xml:"nillable,attr"`
	}
)

// TestTables compares the documents with the specification, type by type.
func TestTables(t *testing.T) {
	types, enumerations, arrays, globals := readDocuments(t)
	f := func(want map[string]string, got map[string]string) {
		t.Helper()
		for name, line := range want {
			require.Equal(t, line, got[name], name)
			delete(got, name)
		}
	}
	described := linesOf(tables)
	listed := linesOf(enumerationTable)
	f(described, types)
	f(listed, enumerations)
	require.Empty(t, enumerations, "not in the specification")
	require.ElementsMatch(t, []string{"ConvertedGeometries", "ConversionFailure"}, keys(types), "what the operations need beside the specification")

	wantArrays := map[string]string{}
	addArrays := func(item, itemType string) {
		wantArrays["ArrayOf"+item] = item + "=" + itemType
		wantArrays["ArrayOfArrayOf"+item] = "ArrayOf" + item + "=ArrayOf" + item
	}
	for _, name := range slices.Concat(keys(described), keys(listed), keys(types)) {
		addArrays(name, name)
	}
	for _, pair := range strings.Fields(primitiveTable) {
		item, itemType, _ := strings.Cut(pair, "=")
		addArrays(item, itemType)
	}
	f(wantArrays, arrays)
	require.Empty(t, arrays, "an array of nothing")

	for name := range described {
		if strings.HasSuffix(name, "Exception") {
			require.Contains(t, globals, name+"="+name)
		}
	}
}

func linesOf(table string) map[string]string {
	found := map[string]string{}
	for line := range strings.Lines(table) {
		if line = strings.TrimSpace(line); line != "" {
			head, _, _ := strings.Cut(line, ":")
			name, _, _ := strings.Cut(head, " ")
			found[name] = line
		}
	}
	return found
}

func keys(m map[string]string) []string {
	var found []string
	for key := range m {
		found = append(found, key)
	}
	return found
}

// readDocuments gives every type of the documents as a line of the tables,
// apart from arrays, which are their item.
func readDocuments(t *testing.T) (types, enumerations, arrays map[string]string, globals []string) {
	t.Helper()
	types, enumerations, arrays = map[string]string{}, map[string]string{}, map[string]string{}
	put := func(into map[string]string, name, line string) {
		require.NotContains(t, into, name, "stands twice")
		into[name] = strings.TrimSpace(line)
	}
	for _, file := range SchemaNames() {
		text, _ := Schema(file, "")
		var doc xsdDocument
		require.NoError(t, xml.Unmarshal(text, &doc))
		require.Equal(t, []string{"qualified", "unqualified"}, []string{doc.Elements, doc.Attributes})
		require.True(t, strings.HasPrefix(doc.Target, "urn:xserver:"))
		for _, s := range doc.SimpleTypes {
			line := s.Name + ":"
			for _, v := range s.Values {
				line += " " + v.Value
			}
			put(enumerations, s.Name, line)
		}
		for _, c := range doc.ComplexTypes {
			if strings.HasPrefix(c.Name, "ArrayOf") {
				require.Len(t, c.Elements, 1, c.Name)
				require.Equal(t, []string{"0", "unbounded"}, []string{c.Elements[0].Min, c.Elements[0].Max})
				put(arrays, c.Name, c.Elements[0].Name+"="+local(c.Elements[0].Type))
				continue
			}
			put(types, c.Name, lineOf(c))
		}
		for _, g := range doc.Globals {
			globals = append(globals, g.Name+"="+local(g.Type))
		}
	}
	return types, enumerations, arrays, globals
}

func lineOf(c xsdType) string {
	line := c.Name
	if c.Abstract {
		line += " !"
	}
	content := c.xsdContent
	if c.Extension.Base != "" {
		line += " < " + local(c.Extension.Base)
		content = c.Extension.xsdContent
	}
	line += ":"
	for _, a := range content.Attributes {
		line += " " + a.Name + "=" + local(a.Type) + when(a.Use == "required", "+")
	}
	line += " |"
	for _, e := range content.Elements {
		line += " " + e.Name + "=" + local(e.Type) + when(e.Min != "0", "+") + when(e.Nillable, "~")
	}
	return line
}

func local(qname string) string { return qname[strings.IndexByte(qname, ':')+1:] }

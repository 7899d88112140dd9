package openapi_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"trafficd/schemas/xroute"
)

const routingPath = "/xroute/ws/XRoute"

// TestRoutingExample checks that the envelope in the example is valid.
func TestRoutingExample(t *testing.T) {
	example := at(t, document(t), "paths", routingPath, "post", "requestBody", "content", "text/xml", "examples", "convertGeometry", "value").(string)
	request, err := xroute.ReadRequest(strings.NewReader(example), xroute.DefaultLimits())
	require.NoError(t, err)
	require.IsType(t, &xroute.ConvertGeometry{}, request)
	require.NotNil(t, request.(*xroute.ConvertGeometry).Geometry.Encoded().WKT)
}

// TestRoutingNamesMatchPackage compares the names of operations, schemas and error codes with
// package xroute.
func TestRoutingNamesMatchPackage(t *testing.T) {
	doc := document(t)
	var names []string
	for _, name := range at(t, doc, "paths", "/xroute/ws/{schema}", "get").(object)["parameters"].([]any)[0].(object)["schema"].(object)["enum"].([]any) {
		names = append(names, name.(string))
	}
	require.Equal(t, xroute.SchemaNames(), names)

	post := at(t, doc, "paths", routingPath, "post", "description").(string)
	wsdl := string(xroute.WSDL("http://h"))
	for _, operation := range xroute.Operations() {
		require.Contains(t, post, "| "+operation+" |")
		require.Equal(t, 2, strings.Count(wsdl, `<wsdl:operation name="`+operation+`">`), "in the port type and in the binding")
	}

	faults := at(t, doc, "paths", routingPath, "post", "responses", "500", "description").(string)
	for _, code := range []xroute.ErrorCode{
		xroute.CodeInvalidWKT, xroute.CodeInvalidWKB, xroute.CodeInvalidKML, xroute.CodePlacemarkNotFound,
		xroute.CodeGeometryObject, xroute.CodeCoordinateFormat, xroute.CodeGeometryEncoding,
	} {
		require.Contains(t, faults, string(code))
	}
	for _, exception := range []string{"XServiceException", "ParameterNotSetException", "IllegalParameterException", "UnexpectedException"} {
		require.Contains(t, faults, "| "+exception+" |")
		require.Contains(t, wsdl, `<wsdl:message name="`+exception+`">`)
	}
}

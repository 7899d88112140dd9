package openapi_test

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"trafficd/schemas/openlr"
	trafficdv1 "trafficd/schemas/proto/trafficd/v1"
)

const forecastPath = "/mlf/v1/forecast/realtime"

// forecastMessages returns the descriptors of all messages of the layer.
func forecastMessages() protoreflect.MessageDescriptors {
	return trafficdv1.File_trafficd_v1_forecast_proto.Messages()
}

// TestForecastMessages checks the names, types and numbers of the fields against contract 5.3.
func TestForecastMessages(t *testing.T) {
	messages := forecastMessages()
	f := func(message string, fields ...string) {
		t.Helper()
		descriptor := messages.ByName(protoreflect.Name(message))
		require.NotNil(t, descriptor, message)
		require.Equal(t, len(fields), descriptor.Fields().Len(), message)
		for i, want := range fields {
			field := descriptor.Fields().ByNumber(protoreflect.FieldNumber(i + 1))
			require.NotNil(t, field, "%s: no field number %d", message, i+1)
			got := string(field.Name()) + " " + field.Cardinality().String() + " " + kind(field)
			require.Equal(t, want, got, message)
			require.Equal(t, mayBeAbsent(field) || field.Name() == "speed_valid", field.HasPresence(), "%s.%s", message, field.Name())
		}
	}
	f("StreetForecastResponse", "streetForecast repeated StreetForecast")
	f("StreetForecast",
		"street optional int32", "fromnode optional int32", "openLRcode optional string",
		"forecast repeated ForecastPeriod", "length optional double", "free_flow_speed optional double")
	f("ForecastPeriod",
		"start optional string", "end optional string", "flow_valid optional bool", "speed_valid optional bool",
		"speed optional double", "flow optional double", "timezone optional string",
		"speed_low optional double", "speed_high optional double", "basis optional string", "closed optional bool")
	require.Equal(t, 3, messages.Len())
}

// mayBeAbsent reports whether a field is one of the optional members of contract 5.3. speed_valid
// has explicit presence because absent means true; the layer always sets it.
func mayBeAbsent(field protoreflect.FieldDescriptor) bool {
	return field.HasPresence() && field.Name() != "speed_valid"
}

func kind(field protoreflect.FieldDescriptor) string {
	if message := field.Message(); message != nil {
		return string(message.Name())
	}
	return field.Kind().String()
}

// TestForecastSchemasMatchMessages checks that each JSON schema has the fields of its protobuf
// message, all of them but the optional members required, with types that can hold their values.
func TestForecastSchemasMatchMessages(t *testing.T) {
	types := map[string][2]any{ // protobuf type → type and format of the schema
		"int32": {"integer", "int32"}, "string": {"string", nil}, "bool": {"boolean", nil}, "double": {"number", "double"},
	}
	doc, messages := document(t), forecastMessages()
	for i := range messages.Len() {
		name := string(messages.Get(i).Name())
		schema := at(t, doc, "components", "schemas", name).(object)
		properties := schema["properties"].(object)
		fields := messages.Get(i).Fields()
		require.Len(t, properties, fields.Len(), name)
		for j := range fields.Len() {
			field := fields.Get(j)
			member := string(field.Name())
			require.Equal(t, !mayBeAbsent(field), slices.Contains(schema["required"].([]any), any(member)), "%s.%s", name, member)
			property, ok := properties[member].(object)
			require.True(t, ok, "%s has no %s", name, member)
			if field.IsList() {
				require.Equal(t, "array", property["type"], member)
				require.Equal(t, "#/components/schemas/"+kind(field), reference(property["items"]), member)
				continue
			}
			want := types[kind(field)]
			require.Equal(t, want[0], property["type"], member)
			if property["format"] != "date-time" { // the format date-time applies to a string
				require.Equal(t, want[1], property["format"], member)
			}
		}
	}
}

// TestForecastResponse checks that the operation names the message, and that its JSON example
// equals the output of protojson.
func TestForecastResponse(t *testing.T) {
	content := at(t, document(t), "paths", forecastPath, "get", "responses", "200", "content").(object)
	message := string((&trafficdv1.StreetForecastResponse{}).ProtoReflect().Descriptor().FullName())
	protobuf := at(t, content, "application/x-protobuf", "schema", "description")
	require.Contains(t, protobuf, message)
	schema := content["application/json"].(object)["schema"]
	require.Equal(t, "#/components/schemas/StreetForecastResponse", reference(schema))

	example, err := json.Marshal(at(t, content, "application/json", "examples", "oneStreet", "value"))
	require.NoError(t, err)
	var layer trafficdv1.StreetForecastResponse
	require.NoError(t, protojson.Unmarshal(example, &layer))
	form := protojson.MarshalOptions{UseProtoNames: true, EmitUnpopulated: true}
	again, err := form.Marshal(&layer)
	require.NoError(t, err)
	require.JSONEq(t, string(example), string(again))

	binary, err := proto.Marshal(&layer)
	require.NoError(t, err)
	var same trafficdv1.StreetForecastResponse
	require.NoError(t, proto.Unmarshal(binary, &same))
	require.True(t, proto.Equal(&layer, &same))
	require.NotEmpty(t, layer.GetStreetForecast())
	for _, street := range layer.GetStreetForecast() {
		_, err := openlr.Decode(street.GetOpenLRcode())
		require.NoError(t, err)
	}
}

// TestForecastHeaders checks that the operation has the headers of contract 6.2 and 6.3 for
// forecasts, and the statuses of contract 2.
func TestForecastHeaders(t *testing.T) {
	doc := document(t)
	has := map[string]bool{"Authorization": true, "Accept": true} // OpenAPI describes these without a parameter
	for _, p := range at(t, doc, "paths", forecastPath, "get", "parameters").([]any) {
		parameter := at(t, doc, path(reference(p))...).(object)
		has[parameter["name"].(string)] = parameter["in"] == "header"
	}
	for _, header := range forecastHeaders(t, "6.2") {
		require.True(t, has[header], "no parameter for the header %s", header)
	}
	f := func(status string, without ...string) {
		t.Helper()
		headers := at(t, doc, "paths", forecastPath, "get", "responses", status, "headers").(object)
		for _, header := range forecastHeaders(t, "6.3") {
			absent := strings.Contains(strings.Join(without, " "), header)
			require.Equal(t, !absent, headers[header] != nil, "header %s of status %s", header, status)
		}
	}
	const bodyHeaders, rangeHeaders = "Content-Encoding", "Accept-Ranges Content-Range"
	f("200", "Content-Range")
	f("206", bodyHeaders, "Forecast-Content", "Preference-Applied")
	f("304", bodyHeaders, rangeHeaders, "Forecast-Content")
	f("412", bodyHeaders, rangeHeaders, "Forecast-Content")
	f("416", bodyHeaders, "Forecast-Content", "Preference-Applied")
	forbidden := at(t, doc, "components", "responses", "Forbidden", "description").(string)
	require.Contains(t, forbidden, "no forecasts are configured")
	operation := at(t, doc, "paths", forecastPath, "get", "description").(string)
	require.NotContains(t, operation, "503 if there is no feed")
}

// forecastHeaders returns the headers in a section of the contract that forecasts have.
func forecastHeaders(t *testing.T, section string) (names []string) {
	text, err := os.ReadFile("../contract/contract.md")
	require.NoError(t, err)
	_, table, found := strings.Cut(string(text), "\n### "+section+" ")
	require.True(t, found, section)
	table, _, _ = strings.Cut(table, "\n##")
	for _, row := range regexp.MustCompile(`(?m)^\| ([A-Z][\w, -]+) \|[^|]*forecasts[^|]*\|`).FindAllStringSubmatch(table, -1) {
		names = append(names, strings.Split(row[1], ", ")...)
	}
	require.Greater(t, len(names), 5)
	return names
}

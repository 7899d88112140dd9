package openapi_test

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"trafficd/schemas/contract"
	"trafficd/schemas/openapi"
)

type object = map[string]any

func document(t *testing.T) object {
	t.Helper()
	var doc object
	require.NoError(t, yaml.Unmarshal(openapi.Document, &doc))
	return doc
}

// at returns the node at the given path and resolves references on the way.
func at(t *testing.T, doc object, names ...string) any {
	t.Helper()
	var node any = doc
	for _, name := range names {
		o, ok := node.(object)
		require.True(t, ok, "the parent of %q in %q is not an object", name, names)
		node, ok = o[name]
		require.True(t, ok, "no %q in %q", name, names)
		if ref := reference(node); ref != "" {
			node = at(t, doc, path(ref)...)
		}
	}
	return node
}

func reference(node any) string {
	o, _ := node.(object)
	ref, _ := o["$ref"].(string)
	return ref
}

func path(ref string) []string { return strings.Split(strings.TrimPrefix(ref, "#/"), "/") }

// each calls f for every object of the document.
func each(node any, f func(object)) {
	switch n := node.(type) {
	case object:
		f(n)
		for _, child := range n {
			each(child, f)
		}
	case []any:
		for _, child := range n {
			each(child, f)
		}
	}
}

// TestReferences checks that all references resolve, and that all components are used.
func TestReferences(t *testing.T) {
	doc := document(t)
	used := make(map[string]bool)
	each(doc, func(o object) {
		if ref := reference(o); ref != "" {
			require.True(t, strings.HasPrefix(ref, "#/components/"), ref)
			at(t, doc, path(ref)...)
			used[ref] = true
		}
	})
	for kind, components := range at(t, doc, "components").(object) {
		for name := range components.(object) {
			ref := "#/components/" + kind + "/" + name
			require.True(t, used[ref] || kind == "securitySchemes", "%s is not used", ref)
		}
	}
	for _, requirement := range at(t, doc, "security").([]any) {
		for name := range requirement.(object) {
			at(t, doc, "components", "securitySchemes", name)
		}
	}
}

func enum(t *testing.T, schema string) []string {
	t.Helper()
	var names []string
	for _, name := range at(t, document(t), "components", "schemas", schema, "enum").([]any) {
		names = append(names, name.(string))
	}
	return names
}

func TestMembersMatchContract(t *testing.T) {
	var want []string
	for field := contract.FieldItem + 1; field < contract.FieldCount; field++ {
		want = append(want, field.String())
	}
	members := at(t, document(t), "components", "schemas", "Measurement", "properties").(object)
	require.ElementsMatch(t, want, slices.Collect(maps.Keys(members)))
}

// TestEveryCodeHasExamples checks that the examples of all responses agree with the table in the
// description of ErrorCode.
func TestEveryCodeHasExamples(t *testing.T) {
	doc := document(t)
	shown := make(map[string]map[string]bool) // code → statuses
	for status := range at(t, doc, "paths", ingestPath, "post", "responses").(object) {
		if status == "200" || status == "207" {
			continue
		}
		response := []string{"paths", ingestPath, "post", "responses", status}
		at(t, doc, append(response, "headers", "Trace-Id")...)
		for _, example := range at(t, doc, append(response, "content", "application/json", "examples")...).(object) {
			code := at(t, example.(object), "value", "errorCode").(string)
			if shown[code] == nil {
				shown[code] = make(map[string]bool)
			}
			shown[code][status] = true
		}
	}
	text := at(t, doc, "components", "schemas", "ErrorCode", "description").(string)
	for _, code := range enum(t, "ErrorCode") {
		row := regexp.MustCompile(fmt.Sprintf(`(?m)^\| %s \| ([0-9, ]+) \|`, code)).FindStringSubmatch(text)
		require.NotNil(t, row, "%s has no row in the table", code)
		require.ElementsMatch(t, strings.Split(row[1], ", "), slices.Collect(maps.Keys(shown[code])), code)
	}
	require.Len(t, shown, len(enum(t, "ErrorCode")))
	table := at(t, doc, "components", "schemas", "ItemErrorCode", "description").(string)
	for _, code := range enum(t, "ItemErrorCode") {
		require.Contains(t, table, "| "+code+" |")
	}
}

const ingestPath = "/dataprovider/ingestion/v1/detectors/data/ingest"

// TestResponseHeaders checks that the headers required by contract 1.1 and 1.3 are documented.
func TestResponseHeaders(t *testing.T) {
	doc := document(t)
	f := func(status string, headers ...string) {
		t.Helper()
		for _, header := range headers {
			at(t, doc, "paths", ingestPath, "post", "responses", status, "headers", header)
		}
	}
	f("207", "Batch-Id", "Idempotent-Replay", "Duplicate-Items", "Content-Encoding", "Vary", "Trace-Id")
	f("401", "WWW-Authenticate")
	f("405", "Allow")
	f("409", "Retry-After")
	f("415", "Accept-Encoding")
	f("429", "Retry-After")
	f("503", "Retry-After")
}

// TestRoutingHeaders checks the headers of contract 3.1, and that the paths of the schemas have a
// 404.
func TestRoutingHeaders(t *testing.T) {
	doc := document(t)
	schemes := at(t, doc, "paths", routingPath, "post", "responses", "401", "headers", "WWW-Authenticate", "schema", "items", "enum")
	require.Equal(t, []any{"apiKey", `Basic realm="trafficd"`}, schemes)
	at(t, doc, "paths", "/xroute/ws/{schema}", "get", "responses", "404", "content", "application/json")
}

// TestTimestampPattern checks the pattern against the formats of contract 1.2, rule 9.
func TestTimestampPattern(t *testing.T) {
	pattern := regexp.MustCompile(at(t, document(t), "components", "schemas", "Timestamp", "pattern").(string))
	f := func(text string, want bool) {
		t.Helper()
		require.Equal(t, want, pattern.MatchString(text), text)
	}
	f("2026-01-31T12:00:00Z", true)
	f("2026-01-31t12:00z", true)
	f("2026-01-31T12:00:00,123456789-00:00", true)
	f("2026-01-31T12:00:00.5+00", true)
	f("2026-01-31T12:00:00", false)
	f("2026-01-31 12:00:00Z", false)
	f("2026-01-31T12:00:00.1234567890Z", false)
	f("2026-01-31T12:00.5Z", false)
	f("2026-01-31T12:00:00+01:00", false)
	f("20260131T120000Z", false)
}

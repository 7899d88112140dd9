package xroute

import (
	"bytes"
	"embed"
	"path"
	"slices"
)

//go:embed xsd/XRoute.wsdl xsd/*.xsd
var documents embed.FS

const (
	wsdlName = "XRoute.wsdl"
	// Placeholders in the documents.
	addressPlaceholder = "http://localhost:8080/xroute/ws/XRoute"
	locationAttribute  = `schemaLocation="`
)

// WSDL returns the description of the service at an address. location is the prefix of the schemas'
// file names: empty if they are in the same directory, otherwise for example address + "?xsd=".
func WSDL(address, location string) []byte {
	text := document(wsdlName, location)
	return bytes.ReplaceAll(text, []byte(addressPlaceholder), appendText(nil, address))
}

// Schema returns the schema with the given file name, and false if there is none. location is the
// prefix of file names, as for WSDL.
func Schema(file, location string) ([]byte, bool) {
	if !slices.Contains(SchemaNames(), file) {
		return nil, false
	}
	return document(file, location), true
}

// WithPrefix returns a copy of a schema in which prefix replaces the prefix VENDOR of format names.
func WithPrefix(schema []byte, prefix string) []byte {
	return bytes.ReplaceAll(schema, []byte(`value="VENDOR_`), []byte(`value="`+prefix+"_"))
}

// schemas lists the schemas in xsd/, one for each namespace.
var schemas = []struct{ name, space string }{
	{"common.xsd", nsCommon},
	{"exceptions.xsd", nsExceptions},
	{"primitives.xsd", nsPrimitives},
	{"routing.xsd", nsRouting},
	{"service.xsd", nsService},
}

// SchemaNames returns the names of the schemas, one for each namespace.
func SchemaNames() (names []string) {
	for _, s := range schemas {
		names = append(names, s.name)
	}
	return names
}

// document returns a file in xsd/ with location before the file names of schemas.
func document(file, location string) []byte {
	text, err := documents.ReadFile(path.Join("xsd", file))
	if err != nil {
		panic(err)
	}
	return bytes.ReplaceAll(text, []byte(locationAttribute), appendText([]byte(locationAttribute), location))
}

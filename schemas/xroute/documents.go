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
	// What the documents hold in place of what a request fills in.
	addressHere = "http://localhost:8080/xroute/ws/XRoute"
	locationTag = `schemaLocation="`
)

// WSDL gives the description of the service at an address. Before the names of
// the schemas it puts where they are to be had: nothing if they stand beside
// the WSDL, or something like address + "?xsd=".
func WSDL(address, schemas string) []byte {
	text := document(wsdlName, schemas)
	return bytes.ReplaceAll(text, []byte(addressHere), appendText(nil, address))
}

// Schema gives a schema by its name; false if there is none. What it does with
// schemas is what WSDL does.
func Schema(file, schemas string) ([]byte, bool) {
	if !slices.Contains(SchemaNames(), file) {
		return nil, false
	}
	return document(file, schemas), true
}

// SchemaNames lists the schemas: one for each namespace.
func SchemaNames() []string {
	var names []string
	for _, file := range documentList() {
		names = append(names, file.name)
	}
	return names
}

// A documentFile is a schema in xsd/.
type documentFile struct{ name, space string }

func documentList() []documentFile {
	return []documentFile{
		{"common.xsd", nsCommon},
		{"exceptions.xsd", nsExceptions},
		{"primitives.xsd", nsPrimitives},
		{"routing.xsd", nsRouting},
		{"service.xsd", nsService},
	}
}

// document reads one of the embedded files, which are there.
func document(file, schemas string) []byte {
	text, err := documents.ReadFile(path.Join("xsd", file))
	if err != nil {
		panic(err)
	}
	return bytes.ReplaceAll(text, []byte(locationTag), appendText([]byte(locationTag), schemas))
}

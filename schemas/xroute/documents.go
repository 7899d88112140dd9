package xroute

import (
	"bytes"
	"embed"
	"path"
)

//go:embed xsd/XRoute.wsdl xsd/*.xsd
var documents embed.FS

const (
	wsdlName           = "XRoute.wsdl"
	addressPlaceholder = "http://localhost:8080/xroute/ws/XRoute" // in XRoute.wsdl
)

// WSDL returns the description of the service at address. It imports the schemas by file name.
func WSDL(address string) []byte {
	return bytes.ReplaceAll(document(wsdlName), []byte(addressPlaceholder), appendText(nil, address))
}

// Schema returns a file in SchemaNames, with VENDOR in the names of formats replaced by prefix.
func Schema(file, prefix string) []byte {
	return bytes.ReplaceAll(document(file), []byte(`value="VENDOR_`), []byte(`value="`+prefix+"_"))
}

var schemas = []struct{ name, space string }{
	{"common.xsd", nsCommon},
	{"exceptions.xsd", nsExceptions},
	{"primitives.xsd", nsPrimitives},
	{"routing.xsd", nsRouting},
	{"service.xsd", nsService},
}

// SchemaNames returns the file names of the schemas, one for each namespace.
func SchemaNames() (names []string) {
	for _, s := range schemas {
		names = append(names, s.name)
	}
	return names
}

func document(file string) []byte {
	text, err := documents.ReadFile(path.Join("xsd", file))
	if err != nil {
		panic(err)
	}
	return text
}

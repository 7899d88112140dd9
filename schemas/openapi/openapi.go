// Package openapi holds the OpenAPI descriptions of the HTTP interfaces.
package openapi

import _ "embed"

// Document is openapi.yaml, OpenAPI 3.1. It must not be written to.
//
//go:embed openapi.yaml
var Document []byte

// Operators is operators.yaml, which describes the operators' listener. It must not be written to.
//
//go:embed operators.yaml
var Operators []byte

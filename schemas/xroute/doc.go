// Package xroute contains the Go types, XML schemas, WSDL and SOAP 1.1 envelopes of the routing web
// service XRouteWSService (contract 3 and 5.4).
//
// Everything else is derived from the Go types. Struct tags define the XML of each field
// (model.go). Reading (decode.go) and writing (encode.go) use that model, and the documents in xsd/
// are generated from it:
//
//	go test ./schemas/xroute -run TestDocuments -update
//
// The same test fails if the documents and the types differ. Another test compares the model with
// the tables of contract 5.4.
//
// XML names are those in the contract; Go names omit the prefix "wrapped" of arrays. ArrayOf<T> is
// []T. A type that others extend is an interface implemented by pointers: EncodedGeometry,
// PlainGeometry, JobProgress, Exception. An optional member is a pointer or a slice, which is nil
// if the member is absent or has xsi:nil. A nil member that is required and nillable is written
// with xsi:nil.
//
// FromPlain and ToPlain convert between plain elements and the geometries of package geo
// (plain.go). KindOf, PlainOf and NewElement handle the elements around these (geometry.go).
//
// Readers accept what toolkits send: any prefixes, the elements of a type in any order, unknown
// elements and attributes, comments and CDATA, UTF-8 and UTF-16. They reject content whose omission
// would change the meaning of a request: array items with a wrong name, and optional members in
// a wrong namespace. They also reject what SOAP forbids: processing instructions, document types,
// and therefore all entities except the five that XML predefines. Limits bounds the cost of
// reading.
package xroute

//go:generate go test . -run TestDocuments -update

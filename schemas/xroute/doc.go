// Package xroute describes the routing web service XRouteWSService: its Go
// types, the XSD and WSDL documents, and the SOAP 1.1 envelopes around them.
//
// The Go types are the one source. Struct tags say how a field stands in XML
// (model.go); reading (decode.go) and writing (encode.go) go by that model, and
// the documents in xsd/ are written from it:
//
//	go test ./schemas/xroute -run TestDocuments -update
//
// The same test fails when documents and types differ. That the model is what
// the specification says (2.5 and 7.3) is checked against a copy of its tables.
//
// Names on the wire are those of the specification; Go names leave out the
// prefix "wrapped" of arrays. ArrayOf<T> is []T. A type that others extend is
// an interface, held by pointers: EncodedGeometry, PlainGeometry, JobProgress,
// Exception. An optional member is a pointer or a slice, nil when it is absent;
// a required, nillable one is written as xsi:nil when it is nil.
//
// FromPlain and ToPlain lead from plain elements to geometries as package geo has
// them, and back (plain.go); KindOf, PlainOf and NewElement from their elements (element.go).
//
// Reading takes what toolkits send: any prefixes, elements of a type in any
// order, unknown elements and attributes, comments and CDATA, UTF-8 and UTF-16.
// Not taken for unknown, but refused, are items of another name in an array, and
// members in another namespace.
// It refuses what no SOAP message holds: document types and, with them, all
// entities but the five of XML, and processing instructions. Everything is
// bounded by Limits.
package xroute

//go:generate go test . -run TestDocuments -update

package contract

import "math/bits"

// Code is the outcome of a request or of one item. Its name is the same in responses, metric labels
// and logs.
type Code uint8

// The codes of whole requests come first, then the codes of items. InvalidType, MissingField and
// DuplicateField are used for both.
const (
	OK Code = iota
	NotFound
	MethodNotAllowed
	Unauthenticated
	Forbidden
	RateLimited
	ServiceUnavailable
	UnsupportedContentType
	GzipRequired
	BodyTooLarge
	InvalidParameter
	IdempotencyKeyInUse
	IdempotencyKeyReused
	RequestTimeout
	InvalidGzip
	InvalidJSON
	TooManyItems
	InternalError

	BatchLimitExceeded
	InvalidType
	DuplicateField
	ReservedField
	MissingField
	UnknownDetector
	UnknownMeasureType
	InvalidTimestamp
	InvalidInterval
	TimestampInFuture
	InvalidValue
	InvalidQuality

	// CodeCount is the number of codes.
	CodeCount
	// UnknownCode is a code that a newer version has stored. Only replays after a downgrade have it.
	UnknownCode = CodeCount
)

// codes is the table of all codes (contract 1.1, 1.2 and 6.1).
var codes = [UnknownCode + 1]struct {
	name    string // errorCode in responses
	status  int    // HTTP status of a whole request; 0 if the code is only for items
	meaning string // of a whole request, for the documents
	stored  byte   // see Stored; codes of items only
	item    string // template of AppendItemDescription for a rejected item; empty if the code is only for whole requests
}{
	OK: {name: "OK", status: 207},
	NotFound: {
		name: "NOT_FOUND", status: 404,
		meaning: "no such path",
	},
	MethodNotAllowed: {
		name: "METHOD_NOT_ALLOWED", status: 405,
		meaning: "the path does not accept the method",
	},
	Unauthenticated: {
		name: "GENERAL_UNAUTHENTICATED", status: 401,
		meaning: "the API key or client certificate is missing or unknown",
	},
	Forbidden: {
		name: "GENERAL_FORBIDDEN", status: 403,
		meaning: "the key lacks the right, its product instance has no registry feed, or no forecasts are configured",
	},
	RateLimited: {
		name: "RATE_LIMITED", status: 429,
		meaning: "a rate limit of the key is exceeded",
	},
	ServiceUnavailable: {
		name: "GENERAL_SERVICE_UNAVAILABLE", status: 503,
		meaning: "the daemon cannot accept the request now",
	},
	UnsupportedContentType: {
		name: "UNSUPPORTED_CONTENT_TYPE", status: 415,
		meaning: "the Content-Type, or for SOAP the Content-Encoding, is not supported",
	},
	GzipRequired: {
		name: "GZIP_REQUIRED", status: 415,
		meaning: "the body is not compressed with gzip",
	},
	BodyTooLarge: {
		name: "BODY_TOO_LARGE", status: 413,
		meaning: "the body exceeds a limit, compressed or decompressed",
	},
	InvalidParameter: {
		name: "INVALID_PARAMETER", status: 400,
		meaning: "a header, a query parameter or the HTTP message is malformed; 431 if the header is too large, 505 for another version of HTTP",
	},
	IdempotencyKeyInUse: {
		name: "IDEMPOTENCY_KEY_IN_USE", status: 409,
		meaning: "a request with the same Idempotency-Key is in progress",
	},
	IdempotencyKeyReused: {
		name: "IDEMPOTENCY_KEY_REUSED", status: 422,
		meaning: "the Idempotency-Key was used with a different body",
	},
	RequestTimeout: {
		name: "REQUEST_TIMEOUT", status: 408,
		meaning: "the header or the body arrives too slowly",
	},
	InvalidGzip: {
		name: "INVALID_GZIP", status: 400,
		meaning: "the gzip stream is truncated or corrupt, or followed by other bytes; the connection is closed, " +
			"because the cause may be a wrong Content-Length",
	},
	InvalidJSON: {
		name: "INVALID_JSON", status: 400,
		meaning: "the decompressed body is not strict JSON (RFC 8259) in UTF-8",
	},
	TooManyItems: {
		name: "TOO_MANY_ITEMS", status: 413,
		meaning: "the batch exceeds the hard limit of items",
	},
	InternalError: {
		name: "GENERAL_INTERNAL_ERROR", status: 500,
		meaning: "internal error; quote the trace ID",
	},

	BatchLimitExceeded: {
		name: "BATCH_LIMIT_EXCEEDED", stored: 18, item: "exceeds the batch limit and was not examined; send it in another batch",
	},
	InvalidType: {
		name: "INVALID_TYPE", status: 400,
		meaning: "the root is not an object, or measurements is not an array", stored: 19, item: "must be {kind}{seen}",
	},
	DuplicateField: {
		name: "DUPLICATE_FIELD", status: 400,
		meaning: "measurements occurs twice", stored: 20, item: "is a duplicate member",
	},
	ReservedField: {name: "RESERVED_FIELD", stored: 21, item: "is reserved; it must be null or absent{seen}"},
	MissingField: {
		name: "MISSING_FIELD", status: 400,
		meaning: "measurements is missing or null", stored: 22, item: "is missing or null{alike}",
	},
	UnknownDetector:    {name: "UNKNOWN_DETECTOR", stored: 23, item: "{input} does not exist in product instance {instance}{hint}"},
	UnknownMeasureType: {name: "UNKNOWN_MEASURE_TYPE", stored: 24, item: "{input} is not an allowed measure type; {types}"},
	InvalidTimestamp: {name: "INVALID_TIMESTAMP", stored: 25, item: "{input} is not an ISO 8601 date-time in UTC, with Z at its end, " +
		"from 1970 to 2261, such as 2026-01-31T12:00:00Z"},
	InvalidInterval: {name: "INVALID_INTERVAL", stored: 26, item: "is before timestampFrom{plain}"},
	TimestampInFuture: {
		name: "TIMESTAMP_IN_FUTURE", stored: 27, item: "{value}is more than {tolerance} after the daemon's time, which the header Date shows",
	},
	InvalidValue:   {name: "INVALID_VALUE", stored: 28, item: "{value}is not a finite number{more}"},
	InvalidQuality: {name: "INVALID_QUALITY", stored: 29, item: "{value}is not a finite number{more}"},

	UnknownCode: {name: "UNKNOWN", item: "was rejected for a reason that this version of the daemon does not know"},
}

// Rule is a rule for items (contract 1.2).
type Rule struct {
	Text      string // what must hold
	Code      Code   // of an item that violates the rule
	Parameter string // of its rejection
}

// Rules are the rules in the order in which they are checked; their numbers begin with 1. The
// tables in contract.md and openapi.yaml are generated from them and from the codes.
var Rules = []Rule{
	{
		"the index is below the batch limit, `pipeline.decode.batch_limit` (14,000); an item beyond it is counted but not validated",
		BatchLimitExceeded, "measurements[i]",
	},
	{"the item is an object", InvalidType, "measurements[i]"},
	{"no member of a measurement occurs twice", DuplicateField, `measurements[i].\<name\>`},
	{"linkId is absent or null", ReservedField, "measurements[i].linkId"},
	{
		"detectorCode, measureTypeCode, timestampFrom, timestampTo, value, in this order: present and not null",
		MissingField, `measurements[i].\<name\>`,
	},
	{
		"the same members in the same order, then quality (which may be null): the JSON type is the specified one",
		InvalidType, `measurements[i].\<name\>`,
	},
	{
		"detectorCode is in the registry of the product instance; a code of more than 256 bytes is always unknown",
		UnknownDetector, "measurements[i].detectorCode",
	},
	{
		"measureTypeCode has 1 to 64 characters of `A-Za-z0-9_.-`; if `pipeline.validate.measure_types` has entries, one of them is the code, " +
			"or a beginning of it followed by `*`, such as `speed*`",
		UnknownMeasureType, "measurements[i].measureTypeCode",
	},
	{
		"timestampFrom, then timestampTo: a valid timestamp, ISO 8601 in UTC", InvalidTimestamp,
		"measurements[i].timestampFrom, measurements[i].timestampTo",
	},
	{"timestampTo is not before timestampFrom", InvalidInterval, "measurements[i].timestampTo"},
	{
		"timestampTo is not later than now plus `pipeline.validate.future_tolerance` (1 hour)", TimestampInFuture,
		"measurements[i].timestampTo",
	},
	{"value is a finite float64 within the range of its measure type (default: no range)", InvalidValue, "measurements[i].value"},
	{
		"quality, if present, is a finite float64 from `pipeline.validate.quality_min` to `quality_max` (default: no range)",
		InvalidQuality, "measurements[i].quality",
	},
}

// Meaning returns what the code says of a whole request, or "".
func (c Code) Meaning() string { return codes[c].meaning }

// String returns the errorCode that responses contain.
func (c Code) String() string { return codes[min(c, UnknownCode)].name }

// Stored returns the number that stands for a code of an item in stored responses. It never
// changes, whatever the order of the codes, and is not reused. A new code gets the next number.
func (c Code) Stored() byte { return codes[c].stored }

// CodeOf returns the code of an item that has the stored number, or UnknownCode.
func CodeOf(stored byte) Code { return codeOf[stored] }

var codeOf = func() (all [256]Code) {
	for i := range all {
		all[i] = UnknownCode
	}
	for c := range CodeCount {
		if c.OfItems() {
			all[c.Stored()] = c
		}
	}
	return all
}()

// Status returns the HTTP status of a request with this code, or 0 if the code is only for items.
func (c Code) Status() int {
	if c < CodeCount {
		return codes[c].status
	}
	return 0
}

// OfItems reports whether an item can be rejected with this code.
func (c Code) OfItems() bool { return c < CodeCount && codes[c].item != "" }

// Field identifies a member of a measurement (contract 5.1). Contract 1.2 examines the members in
// the order of these values.
type Field uint8

// The members of a measurement. FieldItem is the item as a whole.
const (
	FieldItem Field = iota
	FieldDetectorCode
	FieldMeasureTypeCode
	FieldTimestampFrom
	FieldTimestampTo
	FieldValue
	FieldQuality
	FieldLinkID

	FieldCount
)

var fields = [FieldCount]struct {
	name, kind string
	stored     byte // see Stored
}{
	FieldItem:            {"", "an object", 0},
	FieldDetectorCode:    {"detectorCode", "a string", 1},
	FieldMeasureTypeCode: {"measureTypeCode", "a string", 2},
	FieldTimestampFrom:   {"timestampFrom", "a string", 3},
	FieldTimestampTo:     {"timestampTo", "a string", 4},
	FieldValue:           {"value", "a number", 5},
	FieldQuality:         {"quality", "a number or null", 6},
	FieldLinkID:          {"linkId", "null", 7},
}

// String returns the member's name in JSON, which is empty for FieldItem.
func (f Field) String() string {
	if f < FieldCount {
		return fields[f].name
	}
	return ""
}

// Stored returns the number that stands for the field in stored responses; see Code.Stored.
func (f Field) Stored() byte { return fields[f].stored }

// FieldOf returns the field that has the stored number. A field that a newer version has stored is
// FieldItem.
func FieldOf(stored byte) Field { return fieldOf[stored] }

var fieldOf = func() (all [256]Field) {
	for f := range FieldCount {
		all[f.Stored()] = f
	}
	return all
}()

// FieldSet is a set of fields, one bit each.
type FieldSet uint16

// Bit returns the set that contains only f.
func (f Field) Bit() FieldSet { return 1 << f }

// First returns the field of the set that the rules examine first. The set must not be empty.
func (s FieldSet) First() Field { return Field(bits.TrailingZeros16(uint16(s))) }

// Has reports whether f is in the set.
func (s FieldSet) Has(f Field) bool { return s&f.Bit() != 0 }

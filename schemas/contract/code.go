package contract

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
	name   string // errorCode in responses
	status int    // HTTP status of a whole request; 0 if the code is only for items
	stored byte   // see Stored; codes of items only
	item   string // template of AppendItemDescription for a rejected item; empty if the code is only for whole requests
}{
	OK:                     {name: "OK", status: 207},
	NotFound:               {name: "NOT_FOUND", status: 404},
	MethodNotAllowed:       {name: "METHOD_NOT_ALLOWED", status: 405},
	Unauthenticated:        {name: "GENERAL_UNAUTHENTICATED", status: 401},
	Forbidden:              {name: "GENERAL_FORBIDDEN", status: 403},
	RateLimited:            {name: "RATE_LIMITED", status: 429},
	ServiceUnavailable:     {name: "GENERAL_SERVICE_UNAVAILABLE", status: 503},
	UnsupportedContentType: {name: "UNSUPPORTED_CONTENT_TYPE", status: 415},
	GzipRequired:           {name: "GZIP_REQUIRED", status: 415},
	BodyTooLarge:           {name: "BODY_TOO_LARGE", status: 413},
	InvalidParameter:       {name: "INVALID_PARAMETER", status: 400},
	IdempotencyKeyInUse:    {name: "IDEMPOTENCY_KEY_IN_USE", status: 409},
	IdempotencyKeyReused:   {name: "IDEMPOTENCY_KEY_REUSED", status: 422},
	RequestTimeout:         {name: "REQUEST_TIMEOUT", status: 408},
	InvalidGzip:            {name: "INVALID_GZIP", status: 400},
	InvalidJSON:            {name: "INVALID_JSON", status: 400},
	TooManyItems:           {name: "TOO_MANY_ITEMS", status: 413},
	InternalError:          {name: "GENERAL_INTERNAL_ERROR", status: 500},

	BatchLimitExceeded: {
		name: "BATCH_LIMIT_EXCEEDED", stored: 18, item: "exceeds the batch limit and was not examined; send it in another batch",
	},
	InvalidType:        {name: "INVALID_TYPE", status: 400, stored: 19, item: "must be {kind}"},
	DuplicateField:     {name: "DUPLICATE_FIELD", status: 400, stored: 20, item: "is a duplicate member"},
	ReservedField:      {name: "RESERVED_FIELD", stored: 21, item: "is reserved; it must be null or absent"},
	MissingField:       {name: "MISSING_FIELD", status: 400, stored: 22, item: "is missing or null"},
	UnknownDetector:    {name: "UNKNOWN_DETECTOR", stored: 23, item: "{input} does not exist in product instance {instance}"},
	UnknownMeasureType: {name: "UNKNOWN_MEASURE_TYPE", stored: 24, item: "{input} is not an allowed measure type; {types}"},
	InvalidTimestamp: {name: "INVALID_TIMESTAMP", stored: 25, item: "{input} is not an ISO 8601 date-time in UTC, with Z at its end, " +
		"from 1970 to 2261, such as 2026-01-31T12:00:00Z"},
	InvalidInterval: {name: "INVALID_INTERVAL", stored: 26, item: "is before timestampFrom"},
	TimestampInFuture: {
		name: "TIMESTAMP_IN_FUTURE", stored: 27, item: "is more than {tolerance} after the daemon's time, which the header Date shows",
	},
	InvalidValue:   {name: "INVALID_VALUE", stored: 28, item: "is not a finite number{range}"},
	InvalidQuality: {name: "INVALID_QUALITY", stored: 29, item: "is not a finite number{range}"},

	UnknownCode: {name: "UNKNOWN", item: "was rejected for a reason that this version of the daemon does not know"},
}

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

// Has reports whether f is in the set.
func (s FieldSet) Has(f Field) bool { return s&f.Bit() != 0 }

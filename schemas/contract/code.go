package contract

// Code is the one word for an outcome: the answer, the metric label and the
// log all say the same (contract 1, contract 1.1, 1.2).
type Code uint8

// Codes of whole requests, then those of single items. INVALID_TYPE,
// MISSING_FIELD and DUPLICATE_FIELD are used for both.
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

	// CodeCount is the number of codes: an array indexed by Code has this size.
	CodeCount
)

var codeNames = [CodeCount]string{
	OK:                     "OK",
	NotFound:               "NOT_FOUND",
	MethodNotAllowed:       "METHOD_NOT_ALLOWED",
	Unauthenticated:        "GENERAL_UNAUTHENTICATED",
	Forbidden:              "GENERAL_FORBIDDEN",
	RateLimited:            "RATE_LIMITED",
	ServiceUnavailable:     "GENERAL_SERVICE_UNAVAILABLE",
	UnsupportedContentType: "UNSUPPORTED_CONTENT_TYPE",
	GzipRequired:           "GZIP_REQUIRED",
	BodyTooLarge:           "BODY_TOO_LARGE",
	InvalidParameter:       "INVALID_PARAMETER",
	IdempotencyKeyInUse:    "IDEMPOTENCY_KEY_IN_USE",
	IdempotencyKeyReused:   "IDEMPOTENCY_KEY_REUSED",
	RequestTimeout:         "REQUEST_TIMEOUT",
	InvalidGzip:            "INVALID_GZIP",
	InvalidJSON:            "INVALID_JSON",
	TooManyItems:           "TOO_MANY_ITEMS",
	InternalError:          "GENERAL_INTERNAL_ERROR",
	BatchLimitExceeded:     "BATCH_LIMIT_EXCEEDED",
	InvalidType:            "INVALID_TYPE",
	DuplicateField:         "DUPLICATE_FIELD",
	ReservedField:          "RESERVED_FIELD",
	MissingField:           "MISSING_FIELD",
	UnknownDetector:        "UNKNOWN_DETECTOR",
	UnknownMeasureType:     "UNKNOWN_MEASURE_TYPE",
	InvalidTimestamp:       "INVALID_TIMESTAMP",
	InvalidInterval:        "INVALID_INTERVAL",
	TimestampInFuture:      "TIMESTAMP_IN_FUTURE",
	InvalidValue:           "INVALID_VALUE",
	InvalidQuality:         "INVALID_QUALITY",
}

// String gives the errorCode as it stands in answers.
func (c Code) String() string {
	if c < CodeCount {
		return codeNames[c]
	}
	return "UNKNOWN"
}

// Field names a member of a measurement (contract 5.1), in the
// order in which contract 1.2 examines them.
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

var fieldNames = [FieldCount]string{
	FieldItem:            "",
	FieldDetectorCode:    "detectorCode",
	FieldMeasureTypeCode: "measureTypeCode",
	FieldTimestampFrom:   "timestampFrom",
	FieldTimestampTo:     "timestampTo",
	FieldValue:           "value",
	FieldQuality:         "quality",
	FieldLinkID:          "linkId",
}

// String gives the member's name in JSON; it is empty for the item itself.
func (f Field) String() string {
	if f < FieldCount {
		return fieldNames[f]
	}
	return ""
}

// FieldSet is a set of fields, one bit each.
type FieldSet uint16

// Bit gives the set that holds only f.
func (f Field) Bit() FieldSet { return 1 << f }

// Has tells whether f is in the set.
func (s FieldSet) Has(f Field) bool { return s&f.Bit() != 0 }

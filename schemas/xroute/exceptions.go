package xroute

// ErrorCode is the errorKey of an XServiceException.
type ErrorCode string

// The error codes.
const (
	CodeInvalidWKT        ErrorCode = "REQUEST_INVALID_WKT"
	CodeInvalidWKB        ErrorCode = "REQUEST_INVALID_WKB"
	CodeInvalidKML        ErrorCode = "REQUEST_INVALID_KML"
	CodePlacemarkNotFound ErrorCode = "KML_PLACEMARK_NOT_FOUND"
	CodeGeometryObject    ErrorCode = "CONVERT_GEOMETRY_OBJECT"
	CodeCoordinateFormat  ErrorCode = "CONVERT_COORDINATE_FORMAT"
	CodeGeometryEncoding  ErrorCode = "GEOMETRY_ENCODING"
)

// Exception is a pointer to BaseException or to any type that extends it.
type Exception interface {
	// Base returns the members that every exception has. The caller may change them.
	Base() *BaseException
}

// BaseException is the root of the exceptions.
type BaseException struct {
	StackElement  *StackElement `xsd:"stackElement,nillable"`
	TransactionID *string       `xsd:"@transactionId"`
}

// Base implements Exception.
func (e *BaseException) Base() *BaseException { return e }

// StackElement is an error and its causes.
type StackElement struct {
	Cause     *StackElement `xsd:"cause,nillable"`
	Context   []string      `xsd:"wrappedContext,required,nillable"`
	ClassName *string       `xsd:"@className"`
	ErrorKey  *string       `xsd:"@errorKey"`
	Message   *string       `xsd:"@message"`
}

//nolint:revive // contract 5.4 describes these types; each type embeds the one that it extends
type (
	SystemException              struct{ BaseException }     // a failure of the service
	DatabaseException            struct{ SystemException }   // a database failure
	ConstraintViolationException struct{ DatabaseException } // a row that a database rejects
	TableNotFoundException       struct{ DatabaseException } // a missing table
	UnexpectedException          struct{ SystemException }   // an internal error
	OptimisticRollbackException  struct{ SystemException }   // a change that conflicts with another one
	RemoteAccessException        struct{ SystemException }   // another service cannot be reached
	CreateException              struct{ SystemException }   // an object that cannot be created
	DuplicateKeyException        struct{ CreateException }   // an object that exists already
	RemoveException              struct{ SystemException }   // an object that cannot be removed
	FinderException              struct{ SystemException }   // a search that failed
	ObjectNotFoundException      struct{ FinderException }   // a search without a result

	BusinessException         struct{ BaseException }             // an error of the caller
	IllegalParameterException struct{ BusinessException }         // a value out of range
	ParameterNotSetException  struct{ IllegalParameterException } // a missing required value
	XServiceException         struct{ BusinessException }         // an error with an ErrorCode
)

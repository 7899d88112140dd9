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
	// Base returns the members that every exception has, to read and to set.
	Base() *BaseException
}

// BaseException is the root of the exceptions.
type BaseException struct {
	StackElement  *StackElement `xsd:"stackElement,nillable"`
	TransactionID *string       `xsd:"@transactionId"`
}

// Base returns e.
func (e *BaseException) Base() *BaseException { return e }

// StackElement is an error and its causes.
type StackElement struct {
	Cause     *StackElement `xsd:"cause,nillable"`
	Context   []string      `xsd:"wrappedContext,required,nillable"`
	ClassName *string       `xsd:"@className"`
	ErrorKey  *string       `xsd:"@errorKey"`
	Message   *string       `xsd:"@message"`
}

// Each exception embeds the one that it extends.
type (
	// SystemException is a failure of the service.
	SystemException struct{ BaseException }
	// DatabaseException is a failure of a database.
	DatabaseException struct{ SystemException }
	// ConstraintViolationException is a row that a database rejects.
	ConstraintViolationException struct{ DatabaseException }
	// TableNotFoundException is a missing table.
	TableNotFoundException struct{ DatabaseException }
	// UnexpectedException is an internal error.
	UnexpectedException struct{ SystemException }
	// OptimisticRollbackException is a change that conflicts with another one.
	OptimisticRollbackException struct{ SystemException }
	// RemoteAccessException is a failure to reach another service.
	RemoteAccessException struct{ SystemException }
	// CreateException is an object that cannot be created.
	CreateException struct{ SystemException }
	// DuplicateKeyException is an object that exists already.
	DuplicateKeyException struct{ CreateException }
	// RemoveException is an object that cannot be removed.
	RemoveException struct{ SystemException }
	// FinderException is a failure of a search.
	FinderException struct{ SystemException }
	// ObjectNotFoundException is a search without a result.
	ObjectNotFoundException struct{ FinderException }

	// BusinessException is an error of the caller.
	BusinessException struct{ BaseException }
	// IllegalParameterException is a value out of range.
	IllegalParameterException struct{ BusinessException }
	// ParameterNotSetException is a missing required value.
	ParameterNotSetException struct{ IllegalParameterException }
	// XServiceException is an error with an ErrorCode.
	XServiceException struct{ BusinessException }
)

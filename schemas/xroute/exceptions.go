package xroute

// ErrorCode is the name of what went wrong in an XServiceException, carried by
// StackElement.ErrorKey.
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
	// Base gives the members that every exception has, to read and to set.
	Base() *BaseException
}

// BaseException is the root of the exceptions.
type BaseException struct {
	StackElement  *StackElement `xsd:"stackElement,nillable"`
	TransactionID *string       `xsd:"@transactionId"`
}

// Base gives the exception itself.
func (e *BaseException) Base() *BaseException { return e }

// StackElement is what went wrong, and what brought it about.
type StackElement struct {
	Cause     *StackElement `xsd:"cause,nillable"`
	Context   []string      `xsd:"wrappedContext,required,nillable"`
	ClassName *string       `xsd:"@className"`
	ErrorKey  *string       `xsd:"@errorKey"`
	Message   *string       `xsd:"@message"`
}

// Each of the exceptions embeds the one that it extends (specification, 7.3).
type (
	// SystemException is trouble of the service.
	SystemException struct{ BaseException }
	// DatabaseException is trouble with a database.
	DatabaseException struct{ SystemException }
	// ConstraintViolationException is a row that a database refuses.
	ConstraintViolationException struct{ DatabaseException }
	// TableNotFoundException is a table that a database lacks.
	TableNotFoundException struct{ DatabaseException }
	// UnexpectedException is an error of the service itself.
	UnexpectedException struct{ SystemException }
	// OptimisticRollbackException is a change that came too late.
	OptimisticRollbackException struct{ SystemException }
	// RemoteAccessException is trouble on the way to another service.
	RemoteAccessException struct{ SystemException }
	// CreateException is an object that cannot be made.
	CreateException struct{ SystemException }
	// DuplicateKeyException is an object that exists already.
	DuplicateKeyException struct{ CreateException }
	// RemoveException is an object that cannot be removed.
	RemoveException struct{ SystemException }
	// FinderException is trouble with a search.
	FinderException struct{ SystemException }
	// ObjectNotFoundException is a search without a result.
	ObjectNotFoundException struct{ FinderException }

	// BusinessException is trouble with what the caller asks for.
	BusinessException struct{ BaseException }
	// IllegalParameterException is a value that is out of range.
	IllegalParameterException struct{ BusinessException }
	// ParameterNotSetException is a required value that is not there.
	ParameterNotSetException struct{ IllegalParameterException }
	// XServiceException is one of the ErrorCodes.
	XServiceException struct{ BusinessException }
)

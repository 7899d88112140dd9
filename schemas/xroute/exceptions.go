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

// The exceptions; each embeds the one that it extends.
type (
	SystemException              struct{ BaseException }
	BusinessException            struct{ BaseException }
	DatabaseException            struct{ SystemException }
	ConstraintViolationException struct{ DatabaseException }
	TableNotFoundException       struct{ DatabaseException }
	UnexpectedException          struct{ SystemException }
	OptimisticRollbackException  struct{ SystemException }
	RemoteAccessException        struct{ SystemException }
	CreateException              struct{ SystemException }
	DuplicateKeyException        struct{ CreateException }
	RemoveException              struct{ SystemException }
	FinderException              struct{ SystemException }
	ObjectNotFoundException      struct{ FinderException }
	IllegalParameterException    struct{ BusinessException }
	ParameterNotSetException     struct{ IllegalParameterException }
	XServiceException            struct{ BusinessException }
)

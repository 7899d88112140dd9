package routing

import (
	"errors"
	"reflect"
	"strconv"

	"trafficd/schemas/geo"
	"trafficd/schemas/xroute"
)

// class is an exception type of this service and its fault code (contract 3.3).
type class struct {
	name string
	code xroute.FaultCode
	make func() xroute.Exception // nil if the fault has no exception
}

var (
	xService   = newClass(&xroute.XServiceException{}, xroute.FaultClient)
	illegal    = newClass(&xroute.IllegalParameterException{}, xroute.FaultClient)
	notSet     = newClass(&xroute.ParameterNotSetException{}, xroute.FaultClient)
	business   = newClass(&xroute.BusinessException{}, xroute.FaultClient)
	unforeseen = newClass(&xroute.UnexpectedException{}, xroute.FaultServer)

	// These SOAP faults have no exception, because they do not concern the body.
	version        = &class{name: "VersionMismatch", code: xroute.FaultVersionMismatch}
	mustUnderstand = &class{name: "MustUnderstand", code: xroute.FaultMustUnderstand}
)

func newClass(x xroute.Exception, code xroute.FaultCode) *class {
	t := reflect.TypeOf(x).Elem()
	return &class{t.Name(), code, func() xroute.Exception { return reflect.New(t).Interface().(xroute.Exception) }}
}

// failure is an error that is sent to the client as a fault.
type failure struct {
	class   *class
	key     xroute.ErrorCode // set only if class is xService
	message string
	context []string // path of the invalid part of the request, outermost first
	cause   error    // may be nil
}

func (f *failure) Error() string {
	if f.cause == nil {
		return f.message
	}
	return f.message + ": " + f.cause.Error()
}

func (f *failure) Unwrap() error { return f.cause }

func (f *failure) inContext(context string) *failure {
	g := *f
	g.context = append([]string{context}, f.context...)
	return &g
}

func serviceFailure(key xroute.ErrorCode, message string, cause error) *failure {
	return &failure{class: xService, key: key, message: message, cause: cause}
}

// outcome returns the name that metrics and logs use for the failure.
func (f *failure) outcome() string {
	if f.key != "" {
		return string(f.key)
	}
	return f.class.name
}

// fault returns the fault for the failure. Formats in its texts have the prefix.
func (f *failure) fault(trace, prefix string) *xroute.Fault {
	fault := &xroute.Fault{Code: f.class.code, Text: geo.WithPrefix(f.Error(), prefix)}
	if f.class.make != nil {
		fault.Exception = f.exception(trace, prefix)
	}
	return fault
}

func (f *failure) exception(trace, prefix string) xroute.Exception {
	x := f.class.make()
	text := geo.WithPrefix(f.message, prefix)
	top := &xroute.StackElement{ClassName: &f.class.name, Message: &text, Context: append([]string{}, f.context...)}
	next := &top.Cause
	for i, err := 0, f.cause; err != nil && i < maxCauses; i, err = i+1, errors.Unwrap(err) {
		message := geo.WithPrefix(err.Error(), prefix)
		*next = &xroute.StackElement{Message: &message, Context: []string{}}
		next = &(*next).Cause
	}
	if f.key != "" {
		key := string(f.key)
		top.ErrorKey = &key
	}
	*x.Base() = xroute.BaseException{StackElement: top, TransactionID: &trace}
	return x
}

// maxCauses is the maximum number of causes in a fault. Most have two or three.
const maxCauses = 8

// errUnexpected is sent instead of an error whose details are only in the log.
var errUnexpected = errors.New("internal error; quote the transactionId")

// failureOf returns the failure to send for an error. If known is false, the failure omits
// the details of err, which the caller must log.
func failureOf(err error) (f *failure, known bool) {
	var invalid *xroute.Error // an invalid envelope
	switch {
	case errors.As(err, &f):
		return f, true
	case !errors.As(err, &invalid):
		return &failure{class: unforeseen, message: errUnexpected.Error()}, errors.Is(err, errUnexpected)
	}
	f = &failure{class: illegal, message: invalid.Error()}
	if invalid.Path != "" {
		f.context = []string{invalid.Path}
	}
	switch invalid.Kind {
	case xroute.KindVersion:
		f.class = version
	case xroute.KindMustUnderstand:
		f.class = mustUnderstand
	case xroute.KindMissing:
		f.class = notSet
	case xroute.KindValue:
		if f.key = keyOfType[invalid.Type]; f.key != "" {
			f.class = xService
		}
	}
	return f, true
}

// keyOfType maps the types of invalid values to error codes. Only WKB has the type byte, which
// is base64.
var keyOfType = map[string]xroute.ErrorCode{
	"GeometryEncoding": xroute.CodeGeometryEncoding,
	"CoordFormat":      xroute.CodeCoordinateFormat,
	"byte":             xroute.CodeInvalidWKB,
}

// inputFailure returns the failure for an encoding of a geometry that cannot be read. syntax is the
// code for errors that have no code of their own.
func inputFailure(err error, syntax xroute.ErrorCode, message string) *failure {
	switch {
	case errors.Is(err, geo.ErrTooLarge):
		return &failure{class: illegal, message: message, cause: err}
	case errors.Is(err, geo.ErrNoPlacemark):
		return serviceFailure(xroute.CodePlacemarkNotFound, message, err)
	case errors.Is(err, geo.ErrKind):
		return serviceFailure(xroute.CodeGeometryObject, message, err)
	case errors.Is(err, geo.ErrNotFinite):
		return serviceFailure(xroute.CodeCoordinateFormat, message, err)
	}
	return serviceFailure(syntax, message, err)
}

func place(list string, i int) string { return list + "[" + strconv.Itoa(i) + "]" }

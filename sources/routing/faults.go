package routing

import (
	"errors"
	"strconv"

	"trafficd/schemas/geo"
	"trafficd/schemas/xroute"
)

// class is an exception that this service raises (contract 3.3).
type class struct {
	name string
	code xroute.FaultCode
	make func() xroute.Exception
}

var (
	xService   = &class{"XServiceException", xroute.FaultClient, func() xroute.Exception { return new(xroute.XServiceException) }}
	illegal    = &class{"IllegalParameterException", xroute.FaultClient, func() xroute.Exception { return new(xroute.IllegalParameterException) }}
	notSet     = &class{"ParameterNotSetException", xroute.FaultClient, func() xroute.Exception { return new(xroute.ParameterNotSetException) }}
	unforeseen = &class{"UnexpectedException", xroute.FaultServer, func() xroute.Exception { return new(xroute.UnexpectedException) }}

	// Two of SOAP's own, which no exception goes with: they are not about the body.
	version        = &class{name: "VersionMismatch", code: xroute.FaultVersionMismatch}
	mustUnderstand = &class{name: "MustUnderstand", code: xroute.FaultMustUnderstand}
)

// failure is an error as a client is told it.
type failure struct {
	class   *class
	key     xroute.ErrorCode // with xService only
	message string
	context []string // where: a path, a place in a job
	cause   error    // may be nil
}

func (f *failure) Error() string {
	if f.cause == nil {
		return f.message
	}
	return f.message + ": " + f.cause.Error()
}

func (f *failure) Unwrap() error { return f.cause }

// in gives the same failure with another line of context.
func (f *failure) in(context string) *failure {
	g := *f
	g.context = append([]string{context}, f.context...)
	return &g
}

func serviceFailure(key xroute.ErrorCode, message string, cause error) *failure {
	return &failure{class: xService, key: key, message: message, cause: cause}
}

// outcome is the one word for how a request ended: in metrics and logs.
func (f *failure) outcome() string {
	if f.key != "" {
		return string(f.key)
	}
	return f.class.name
}

// fault is the failure as an answer.
func (f *failure) fault(trace string) *xroute.Fault {
	fault := &xroute.Fault{Code: f.class.code, Text: f.Error()}
	if f.class.make != nil {
		fault.Exception = f.exception(trace)
	}
	return fault
}

func (f *failure) exception(trace string) xroute.Exception {
	x := f.class.make()
	top := element(f.class.name, f.message)
	top.Context = append(top.Context, f.context...)
	top.Cause = chain(f.cause)
	if f.key != "" {
		key := string(f.key)
		top.ErrorKey = &key
	}
	*x.Base() = xroute.BaseException{StackElement: top, TransactionID: &trace}
	return x
}

// maxCauses bounds the chain of an answer; ours are two or three long.
const maxCauses = 8

// chain tells the causes one by one, from the nearest to the first.
func chain(err error) *xroute.StackElement {
	var first *xroute.StackElement
	next := &first
	for range maxCauses {
		if err == nil {
			break
		}
		*next = element("", err.Error())
		next = &(*next).Cause
		err = errors.Unwrap(err)
	}
	return first
}

func element(className, message string) *xroute.StackElement {
	e := &xroute.StackElement{Message: &message, Context: []string{}}
	if className != "" {
		e.ClassName = &className
	}
	return e
}

// errUnexpected stands for what only the log tells.
var errUnexpected = errors.New("something went wrong on our side")

// failureOf gives any error as a failure; false for one that only the log tells.
func failureOf(err error) (*failure, bool) {
	var f *failure
	var unreadable *xroute.Error
	switch {
	case errors.As(err, &f):
		return f, true
	case errors.As(err, &unreadable):
		return unreadableFailure(unreadable), true
	}
	return &failure{class: unforeseen, message: errUnexpected.Error() + ": when asking for help, give the transactionId"}, errors.Is(err, errUnexpected)
}

// unreadableFailure sorts what is wrong with an envelope. What stands behind some
// of its members has an error code of its own.
func unreadableFailure(err *xroute.Error) *failure {
	f := &failure{class: illegal, message: err.Error()}
	if err.Path != "" {
		f.context = []string{err.Path}
	}
	switch err.Kind {
	case xroute.KindVersion:
		f.class = version
	case xroute.KindMustUnderstand:
		f.class = mustUnderstand
	case xroute.KindMissing:
		f.class = notSet
	case xroute.KindValue:
		f.key = keyOfType[err.Type]
		if f.key != "" {
			f.class = xService
		}
	}
	return f
}

// keyOfType has the error codes for values of these types. byte is base64, and the only
// member of that type is a WKB.
var keyOfType = map[string]xroute.ErrorCode{
	"GeometryEncoding": xroute.CodeGeometryEncoding,
	"CoordFormat":      xroute.CodeCoordinateFormat,
	"byte":             xroute.CodeInvalidWKB,
}

// inputFailure sorts why an encoding of a geometry could not be read.
func inputFailure(err error, syntax xroute.ErrorCode, message string) *failure {
	switch {
	case errors.Is(err, geo.ErrTooLarge):
		return &failure{class: illegal, message: message, cause: err}
	case errors.Is(err, geo.ErrNoPlacemark):
		return serviceFailure(xroute.CodePlacemarkNotFound, message, err)
	case errors.Is(err, geo.ErrKind):
		return serviceFailure(xroute.CodeGeometryObject, message, err)
	}
	return serviceFailure(syntax, message, err)
}

// place names an item of a list.
func place(list string, i int) string { return list + "[" + strconv.Itoa(i) + "]" }

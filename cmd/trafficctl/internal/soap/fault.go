package soap

import (
	"errors"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"trafficd/cmd/trafficctl/internal/client"
	"trafficd/schemas/xroute"
)

// Fault is a SOAP fault of the service.
type Fault xroute.Fault

// Error returns the exception's key, causes and location, and what to do.
func (f *Fault) Error() string {
	if f.Exception == nil {
		return f.Text
	}
	text := describe(f.Exception, places(f.Exception))
	if id := f.Exception.Base().TransactionID; id != nil {
		text += " (trace " + *id + ")"
	}
	return text
}

// Reason describes why a job could not convert a geometry, without its index in the request: the
// caller knows that.
func Reason(x xroute.Exception) string {
	return describe(x, slices.DeleteFunc(places(x), func(where string) bool { return strings.HasPrefix(where, "geometries[") }))
}

func places(x xroute.Exception) []string {
	if top := x.Base().StackElement; top != nil {
		return slices.Clone(top.Context)
	}
	return nil
}

func describe(x xroute.Exception, where []string) string {
	name := reflect.TypeOf(x).Elem().Name()
	text := "no reason given"
	if top := x.Base().StackElement; top != nil {
		name = first(top.ErrorKey, name)
		text = reasons(top)
	}
	text = name + ": " + text
	if len(where) > 0 {
		text += " (at " + strings.Join(where, ", ") + ")"
	}
	if do := advice[name]; do != "" {
		text += "; " + do
	}
	return text
}

// reasons joins the messages of the stack, each the cause of the one before.
func reasons(e *xroute.StackElement) string {
	var texts []string
	for ; e != nil; e = e.Cause {
		text := strings.TrimSuffix(first(e.Message, ""), ".")
		if text != "" && (len(texts) == 0 || !strings.Contains(texts[len(texts)-1], text)) {
			texts = append(texts, text)
		}
	}
	return strings.Join(texts, ": ")
}

func first(text *string, otherwise string) string {
	if text != nil && *text != "" {
		return *text
	}
	return otherwise
}

// advice says what to do about the errors of contract 3.
var advice = map[string]string{
	string(xroute.CodeInvalidWKT):        "check that it is WKT",
	string(xroute.CodeInvalidWKB):        "check that it is WKB",
	string(xroute.CodeInvalidKML):        "check that it is KML",
	string(xroute.CodePlacemarkNotFound): "put the geometry into a Placemark",
	string(xroute.CodeCoordinateFormat):  "check --format-from and --format-to of trafficctl geometry",
	"UnexpectedException":                "try again; if it recurs, report the trace id",
}

// tooLarge reports whether the service may accept half of the request.
func tooLarge(err error) bool {
	var f *Fault
	if errors.As(err, &f) {
		_, illegal := f.Exception.(*xroute.IllegalParameterException)
		return illegal
	}
	var e *client.Error
	return errors.As(err, &e) && e.Status == http.StatusRequestEntityTooLarge
}

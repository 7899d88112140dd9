package soap

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"trafficd/schemas/xroute"
)

// Fault is a fault of the service, put into words.
type Fault xroute.Fault

// Error says which exception with which key, where, why, and what to do.
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

// Reason puts the exception of a geometry that a job could not convert into
// words. Its place in the request, which its context begins with, is told by
// who has made the request.
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
	text := "no reason is given"
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

// reasons joins the messages of the stack: each is the cause of the one before it.
func reasons(e *xroute.StackElement) string {
	var said []string
	for ; e != nil; e = e.Cause {
		text := strings.TrimSuffix(first(e.Message, ""), ".")
		if text != "" && (len(said) == 0 || !strings.Contains(said[len(said)-1], text)) {
			said = append(said, text)
		}
	}
	return strings.Join(said, ": ")
}

func first(text *string, otherwise string) string {
	if text != nil && *text != "" {
		return *text
	}
	return otherwise
}

// advice is what to do about the errors of contract 3.
var advice = map[string]string{
	string(xroute.CodeInvalidWKT):        "is it WKT?",
	string(xroute.CodeInvalidWKB):        "is it WKB?",
	string(xroute.CodeInvalidKML):        "is it KML?",
	string(xroute.CodePlacemarkNotFound): "put the geometry into a Placemark",
	string(xroute.CodeCoordinateFormat):  "are the coordinate formats the right ones, which trafficctl geometry takes from --format-from and --format-to?",
	"UnexpectedException":                "try again; if it stays, tell the operators the trace",
}

// refusal is an answer that is no envelope. The daemon's own are JSON
// (contract 1.1).
type apiErr struct {
	Description, ErrorCode, TraceID string

	status     int
	retryAfter string
}

func refusalOf(resp *http.Response) *apiErr {
	r := &apiErr{status: resp.StatusCode, retryAfter: resp.Header.Get("Retry-After")}
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10)) // what could be read will do
	if json.Unmarshal(text, r) != nil || r.Description == "" {
		r.Description = "no envelope; is --url the base URL of a trafficd?"
	}
	return r
}

// Error says what the daemon said, and what to do.
func (r *apiErr) Error() string {
	text := strings.TrimSpace(fmt.Sprintf("the daemon answers %d %s", r.status, r.ErrorCode)) + ": " + strings.TrimSuffix(r.Description, ".")
	if r.retryAfter != "" {
		text += "; try again after " + r.retryAfter + " s"
	}
	if do := hints[r.status]; do != "" {
		text += "; " + do
	}
	if r.TraceID != "" {
		text += " (trace " + r.TraceID + ")"
	}
	return text
}

// tooLarge tells whether the service takes no such request: it may take half of
// it.
func tooLarge(err error) bool {
	var f *Fault
	if errors.As(err, &f) {
		_, illegal := f.Exception.(*xroute.IllegalParameterException)
		return illegal
	}
	var r *apiErr
	return errors.As(err, &r) && r.status == http.StatusRequestEntityTooLarge
}

// hints is what to do about a refusal.
var hints = map[int]string{
	http.StatusUnauthorized:          "check the key (--key, --key-file, TRAFFICD_KEY) and that the daemon's keys file has its digest (trafficctl key new)",
	http.StatusForbidden:             "the key needs the right `routing` in the daemon's keys file",
	http.StatusNotFound:              "check --url: it is the base URL, with its path prefix if the daemon has one",
	http.StatusRequestEntityTooLarge: "the daemon's setting routing.max_body_bytes allows more",
}

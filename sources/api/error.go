package api

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/valyala/fasthttp"

	"trafficd/schemas/contract"
)

// answers gives each outcome its HTTP status, and a header that goes with it
// (contract 1.1). A code that stands for single items only has no status.
var answers = [contract.CodeCount]struct {
	status        int
	header, value string
}{
	contract.NotFound:               {status: 404},
	contract.MethodNotAllowed:       {status: 405}, // Allow is the route's
	contract.Unauthenticated:        {status: 401}, // WWW-Authenticate is the route's
	contract.Forbidden:              {status: 403},
	contract.RateLimited:            {status: 429},
	contract.ServiceUnavailable:     {status: 503},
	contract.UnsupportedContentType: {status: 415},
	contract.GzipRequired:           {415, "Accept-Encoding", "gzip"},
	contract.BodyTooLarge:           {status: 413},
	contract.InvalidParameter:       {status: 400},
	contract.IdempotencyKeyInUse:    {status: 409},
	contract.IdempotencyKeyReused:   {status: 422},
	contract.RequestTimeout:         {status: 408},
	contract.InvalidGzip:            {status: 400},
	contract.InvalidJSON:            {status: 400},
	contract.TooManyItems:           {status: 413},
	contract.InternalError:          {status: 500},
	contract.InvalidType:            {status: 400},
	contract.MissingField:           {status: 400},
	contract.DuplicateField:         {status: 400},
}

// errorBody is the body of every error (contract 1.1).
type errorBody struct {
	Description string  `json:"description"`
	ErrorCode   string  `json:"errorCode"`
	TraceID     string  `json:"traceId"`
	Causes      []cause `json:"causes"` // never null
}

type cause struct {
	Description string `json:"description"`
	ErrorCode   string `json:"errorCode"`
	Parameter   string `json:"parameter"`
}

// writeRefusal makes r the whole answer. Its body is valid JSON whatever bytes
// the description repeats.
func writeRefusal(resp *fasthttp.Response, r *contract.APIError, trace string) {
	answer := answers[r.Code]
	if answer.status == 0 {
		answer.status = fasthttp.StatusInternalServerError
	}
	resp.Reset()
	resp.SetStatusCode(answer.status)
	resp.Header.SetContentType("application/json")
	resp.Header.Set(traceHeader, trace)
	if answer.header != "" {
		resp.Header.Set(answer.header, answer.value)
	}
	if r.RetryAfter > 0 {
		resp.Header.Set(fasthttp.HeaderRetryAfter, retryAfter(r.RetryAfter))
	}
	writeErrorBody(resp, r, trace)
}

func writeErrorBody(resp *fasthttp.Response, r *contract.APIError, trace string) {
	body := errorBody{Description: r.Description, ErrorCode: r.Code.String(), TraceID: trace, Causes: []cause{}}
	if r.Parameter != "" {
		body.Causes = append(body.Causes, cause{r.Description, body.ErrorCode, r.Parameter})
	}
	e := json.NewEncoder(resp.BodyWriter())
	e.SetEscapeHTML(false)
	_ = e.Encode(body) // strings into memory: it cannot fail
}

// retryAfter rounds up to whole seconds: whoever comes at the named time is not
// sent away again.
func retryAfter(d time.Duration) string {
	return strconv.FormatInt(int64((d+time.Second-1)/time.Second), 10)
}

// echo gives a piece of input for a description: at most contract.EchoLimit bytes,
// cut between characters.
func echo(b []byte) string {
	if len(b) > contract.EchoLimit {
		n := contract.EchoLimit
		for n > contract.EchoLimit-utf8.UTFMax && !utf8.RuneStart(b[n]) {
			n--
		}
		b = b[:n]
	}
	return strings.ToValidUTF8(string(b), "�")
}

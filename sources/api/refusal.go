package api

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/valyala/fasthttp"

	"trafficd/pipeline/batch"
)

// answers gives each outcome its HTTP status, and a header that goes with it
// (decisions.md 1.1). A code that stands for single items only has no status.
var answers = [batch.CodeCount]struct {
	status        int
	header, value string
}{
	batch.NotFound:               {status: 404},
	batch.MethodNotAllowed:       {status: 405}, // Allow is the route's
	batch.Unauthenticated:        {status: 401}, // WWW-Authenticate is the route's
	batch.Forbidden:              {status: 403},
	batch.RateLimited:            {status: 429},
	batch.ServiceUnavailable:     {status: 503},
	batch.UnsupportedContentType: {status: 415},
	batch.GzipRequired:           {415, "Accept-Encoding", "gzip"},
	batch.BodyTooLarge:           {status: 413},
	batch.InvalidParameter:       {status: 400},
	batch.IdempotencyKeyInUse:    {status: 409},
	batch.IdempotencyKeyReused:   {status: 422},
	batch.RequestTimeout:         {status: 408},
	batch.InvalidGzip:            {status: 400},
	batch.InvalidJSON:            {status: 400},
	batch.TooManyItems:           {status: 413},
	batch.InternalError:          {status: 500},
	batch.InvalidType:            {status: 400},
	batch.MissingField:           {status: 400},
	batch.DuplicateField:         {status: 400},
}

// errorBody is the body of every error (decisions.md 1.1).
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
func writeRefusal(resp *fasthttp.Response, r *batch.Refusal, trace string) {
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

func writeErrorBody(resp *fasthttp.Response, r *batch.Refusal, trace string) {
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

// echo gives a piece of input for a description: at most batch.EchoLimit bytes,
// cut between characters.
func echo(b []byte) string {
	if len(b) > batch.EchoLimit {
		n := batch.EchoLimit
		for n > batch.EchoLimit-utf8.UTFMax && !utf8.RuneStart(b[n]) {
			n--
		}
		b = b[:n]
	}
	return strings.ToValidUTF8(string(b), "�")
}

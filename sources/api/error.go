package api

import (
	"encoding/json"
	"strconv"
	"time"

	"github.com/valyala/fasthttp"

	"trafficd/schemas/contract"
)

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

// writeError makes r the whole answer. Its body is valid JSON whatever bytes the description repeats.
func writeError(resp *fasthttp.Response, r *contract.APIError, trace string) {
	status := r.Code.Status()
	if status == 0 {
		status = fasthttp.StatusInternalServerError
	}
	resp.Reset()
	resp.SetStatusCode(status)
	resp.Header.SetContentType("application/json")
	resp.Header.Set(traceHeader, trace)
	if r.Code == contract.GzipRequired {
		resp.Header.Set(fasthttp.HeaderAcceptEncoding, "gzip")
	}
	if r.RetryAfter > 0 {
		resp.Header.Set(fasthttp.HeaderRetryAfter, retryAfter(r.RetryAfter))
	}
	body := errorBody{Description: r.Description, ErrorCode: r.Code.String(), TraceID: trace, Causes: []cause{}}
	if r.Parameter != "" {
		body.Causes = append(body.Causes, cause{r.Description, body.ErrorCode, r.Parameter})
	}
	e := json.NewEncoder(resp.BodyWriter())
	e.SetEscapeHTML(false)
	_ = e.Encode(body) // strings into memory: it cannot fail
}

// retryAfter rounds up to whole seconds, so that a client that waits for as long is not too early.
func retryAfter(d time.Duration) string {
	return strconv.FormatInt(int64((d+time.Second-1)/time.Second), 10)
}

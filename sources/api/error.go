package api

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/valyala/fasthttp"
	"go.opentelemetry.io/otel/propagation"
	oteltrace "go.opentelemetry.io/otel/trace"

	"trafficd/schemas/contract"
)

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

// writeError replaces the response with r.
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
		seconds := retryAfter(r.RetryAfter)
		if r.Code != contract.RateLimited { // the limit of one key, which needs exactly this time
			seconds += rand.N(seconds + 1)
		}
		resp.Header.Set(fasthttp.HeaderRetryAfter, strconv.FormatInt(seconds, 10))
	}
	body := errorBody{Description: r.Description, ErrorCode: r.Code.String(), TraceID: trace, Causes: []cause{}}
	if r.Parameter != "" {
		body.Causes = append(body.Causes, cause{r.Description, body.ErrorCode, r.Parameter})
	}
	e := json.NewEncoder(resp.BodyWriter())
	e.SetEscapeHTML(false)
	_ = e.Encode(body) // cannot fail: it writes strings to memory
}

// retryAfter returns d in seconds, rounded up so that a client does not retry too early. Clients
// that are rejected together get up to twice as much, at random, so that they do not return
// together.
func retryAfter(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }

const traceHeader = "Trace-Id"

var traceHeaderName = []byte(traceHeader)

// trace is a trace ID in hexadecimal. It is an array to avoid an allocation.
type trace [32]byte

func (t *trace) String() string { return string(t[:]) }

// traceID returns the trace ID of a traceparent header, so that clients find their own traces in
// the log. Without a valid header it returns a new ID.
func traceID(traceparent []byte) (text trace) {
	id := oteltrace.SpanContextFromContext(parentOf(traceparent)).TraceID()
	if !id.IsValid() {
		binary.NativeEndian.PutUint64(id[:8], rand.Uint64())
		binary.NativeEndian.PutUint64(id[8:], rand.Uint64())
	}
	hex.Encode(text[:], id[:])
	return text
}

// parentOf returns a context with the client's span if traceparent (W3C) is valid, or an empty one.
func parentOf(traceparent []byte) context.Context {
	if len(traceparent) == 0 {
		return context.Background()
	}
	return propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{"traceparent": string(traceparent)})
}

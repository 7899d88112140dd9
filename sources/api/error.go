package api

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/valyala/fasthttp"

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

const traceHeader = "Trace-Id"

var traceHeaderName = []byte(traceHeader)

// trace is a trace id, in 32 lower-case hexadecimal digits. It is not a string, because that would be
// allocated.
type trace [32]byte

func (t *trace) String() string { return string(t[:]) }

// traceID returns the trace id of a W3C traceparent header (version-traceid-parentid-flags), so that a
// client finds its own trace in the log; without a valid header it returns a new id.
func traceID(parent []byte) trace {
	if !validParent(parent) {
		return newTrace()
	}
	return trace(parent[3:35])
}

func validParent(parent []byte) bool {
	const size = 55
	if len(parent) < size || parent[2] != '-' || parent[35] != '-' || parent[52] != '-' {
		return false
	}
	version, id, span, flags := parent[:2], parent[3:35], parent[36:52], parent[53:size]
	more := len(parent) > size && (string(version) == "00" || parent[size] != '-') // later versions may have more parts
	return !more && isHex(version) && string(version) != "ff" && isHex(flags) && validTrace(id) && validTrace(span)
}

func newTrace() (text trace) {
	var id [16]byte
	for i := 0; i < len(id); i += 8 {
		for j, r := 0, rand.Uint64(); j < 8; j, r = j+1, r>>8 {
			id[i+j] = byte(r)
		}
	}
	hex.Encode(text[:], id[:])
	return text
}

func validTrace(id []byte) bool {
	return isHex(id) && len(bytes.Trim(id, "0")) > 0
}

func isHex(text []byte) bool {
	for _, c := range text {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

package api

import (
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

// linkDocs adds a link to the documentation to the response to a request that is wrong.
func (s *Server) linkDocs(resp *fasthttp.Response) {
	if status := resp.StatusCode(); status >= 400 && status < 500 {
		resp.Header.Set(fasthttp.HeaderLink, "<"+s.cfg.BasePath+contract.DocsPath+`>; rel="service-doc"`) // RFC 8631
	}
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

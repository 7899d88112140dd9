package api

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/valyala/fasthttp"
)

const anyOrigin = "*"

// origins holds the origins of web pages whose scripts may read responses (CORS,
// fetch.spec.whatwg.org).
type origins map[string]bool

// checkOrigin returns an error unless text is * or an origin as browsers write it.
func checkOrigin(text string) error {
	u, err := url.Parse(text)
	if text != anyOrigin &&
		(err != nil || u.Host == "" || strings.Contains(u.Host, anyOrigin) || text != strings.ToLower(u.Scheme+"://"+u.Host)) {
		return fmt.Errorf(`cors_origins has %q: an origin is * or like https://map.example.org, in lower case and without a path`, text)
	}
	return nil
}

// names returns * if all origins are allowed, the request's origin if it is allowed, or else nil.
func (o origins) names(h *fasthttp.RequestHeader) []byte {
	origin := h.Peek(fasthttp.HeaderOrigin)
	switch {
	case o[anyOrigin]:
		return []byte(anyOrigin) // even without Origin, because a cache may reuse the response for a web page
	case o[string(origin)]:
		return origin
	}
	return nil
}

// preflight reports whether a request is a CORS preflight from an allowed origin. Such a request
// never has a key.
func (o origins) preflight(h *fasthttp.RequestHeader) bool {
	return h.IsOptions() && len(h.Peek(fasthttp.HeaderOrigin)) > 0 && len(h.Peek(fasthttp.HeaderAccessControlRequestMethod)) > 0 &&
		o.names(h) != nil
}

// mark adds the headers that allow web pages to read the response.
func (o origins) mark(ctx *fasthttp.RequestCtx) {
	if !o[anyOrigin] {
		// All responses get Vary: Origin, because a cache may reuse them for other pages. The cache
		// of nginx 1.22 reads only one Vary line.
		vary := fasthttp.HeaderOrigin
		if has := ctx.Response.Header.Peek(fasthttp.HeaderVary); len(has) > 0 {
			vary = string(has) + ", " + vary
		}
		ctx.Response.Header.Set(fasthttp.HeaderVary, vary)
	}
	if origin := o.names(&ctx.Request.Header); origin != nil {
		ctx.Response.Header.SetBytesV(fasthttp.HeaderAccessControlAllowOrigin, origin)
		ctx.Response.Header.Set(fasthttp.HeaderAccessControlExposeHeaders, exposed)
	}
}

// permit responds to a preflight with the methods and headers that the route accepts.
func (x *exchange) permit(ctx *fasthttp.RequestCtx) {
	h := &ctx.Response.Header
	ctx.SetStatusCode(fasthttp.StatusNoContent)
	h.SetCanonical(traceHeaderName, x.trace[:])
	h.Set(fasthttp.HeaderAccessControlAllowMethods, x.route.allow)
	h.Set(fasthttp.HeaderAccessControlAllowHeaders, sendable)
	h.Set(fasthttp.HeaderAccessControlMaxAge, "7200") // seconds; Chromium's limit
}

// The headers that a page may read, and those that it may send after a preflight.
const (
	exposed = "Accept-Ranges, Batch-Id, Content-Encoding, Content-Range, Duplicate-Items, ETag, Forecast-Age, Forecast-Content, " +
		"Forecast-Covered-Until, Forecast-Version, Idempotent-Replay, Preference-Applied, Registry-Version, Retry-After, Trace-Id"
	sendable = "Authorization, Content-Encoding, Content-Type, Idempotency-Key, If-Match, If-Modified-Since, If-None-Match, " +
		"If-Range, If-Unmodified-Since, Prefer, Range, SOAPAction, Traceparent"
)

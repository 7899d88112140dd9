package api

import (
	"bytes"
	"fmt"
	"net/url"
	"strings"

	"github.com/valyala/fasthttp"
)

// anyOrigin in the settings means all.
const anyOrigin = "*"

// origins are those of web pages whose scripts may call the interface (CORS, fetch.spec.whatwg.org):
// browsers hide an answer from pages of other origins. This neither hides anything from other clients
// nor replaces a key.
type origins map[string]bool

func newOrigins(list []string) origins {
	set := origins{}
	for _, o := range list {
		set[o] = true
	}
	return set
}

// checkOrigin returns an error unless text is * or an origin as browsers write it.
func checkOrigin(text string) error {
	u, err := url.Parse(text)
	if text != anyOrigin && (err != nil || u.Host == "" || strings.Contains(u.Host, anyOrigin) || text != strings.ToLower(u.Scheme+"://"+u.Host)) {
		return fmt.Errorf(`cors_origins has %q: an origin is * or like https://map.example.org, in lower case and without a path`, text)
	}
	return nil
}

// names returns the origin that the answer to a request must name, nil for none.
func (o origins) names(h *fasthttp.RequestHeader) []byte {
	if len(o) == 0 {
		return nil
	}
	origin := h.PeekBytes(headerOrigin)
	switch {
	case len(origin) == 0:
		return nil
	case o[anyOrigin]:
		return everyOrigin
	case o[string(origin)]:
		return origin
	}
	return nil
}

// preflight reports whether a browser asks if a page may send another request. Such a request never
// has a key.
func (o origins) preflight(h *fasthttp.RequestHeader) bool {
	return h.IsOptions() && len(h.PeekBytes(headerRequestMethod)) > 0 && o.names(h) != nil
}

// mark allows the page to read the answer.
func (o origins) mark(ctx *fasthttp.RequestCtx) {
	if len(o) == 0 {
		return
	}
	if !o[anyOrigin] {
		// Of all answers, because a cache may keep one for the next page; in one line, because nginx 1.22
		// as a cache sees one Vary line only.
		var line [128]byte
		vary := line[:0]
		if has := ctx.Response.Header.PeekBytes(headerVary); len(has) > 0 {
			vary = append(append(vary, has...), ", "...)
		}
		ctx.Response.Header.SetCanonical(headerVary, append(vary, headerOrigin...))
	}
	if origin := o.names(&ctx.Request.Header); origin != nil {
		ctx.Response.Header.SetCanonical(headerAllowOrigin, origin)
		ctx.Response.Header.SetCanonical(headerExposeHeaders, exposed)
	}
}

// permit answers a preflight: the page may send what the route takes.
func (x *exchange) permit(ctx *fasthttp.RequestCtx) {
	h := &ctx.Response.Header
	ctx.SetStatusCode(fasthttp.StatusNoContent)
	h.SetCanonical(traceHeaderName, x.trace[:])
	h.Set(fasthttp.HeaderAccessControlAllowMethods, x.route.allow)
	h.Set(fasthttp.HeaderAccessControlAllowHeaders, sendable)
	h.Set(fasthttp.HeaderAccessControlMaxAge, "7200") // seconds; Chromium's limit
}

var (
	headerOrigin        = []byte(fasthttp.HeaderOrigin)
	headerVary          = []byte(fasthttp.HeaderVary)
	headerRequestMethod = []byte(fasthttp.HeaderAccessControlRequestMethod)
	headerAllowOrigin   = []byte(fasthttp.HeaderAccessControlAllowOrigin)
	headerExposeHeaders = []byte(fasthttp.HeaderAccessControlExposeHeaders)

	everyOrigin = []byte(anyOrigin)
	exposed     = bytes.Join([][]byte{
		[]byte(fasthttp.HeaderAcceptRanges), []byte(fasthttp.HeaderContentEncoding), []byte(fasthttp.HeaderContentRange),
		[]byte(fasthttp.HeaderETag), []byte("Forecast-Age"), []byte("Forecast-Content"), []byte("Forecast-Covered-Until"),
		[]byte("Forecast-Version"), []byte("Preference-Applied"), []byte(fasthttp.HeaderRetryAfter), []byte(traceHeader),
	}, []byte(", "))
)

// sendable are the headers of the interface that a page may send after a preflight only.
var sendable = strings.Join([]string{
	fasthttp.HeaderAuthorization, fasthttp.HeaderContentEncoding, fasthttp.HeaderContentType, "Idempotency-Key",
	fasthttp.HeaderIfMatch, fasthttp.HeaderIfModifiedSince, fasthttp.HeaderIfNoneMatch, fasthttp.HeaderIfRange, fasthttp.HeaderIfUnmodifiedSince,
	"Prefer", fasthttp.HeaderRange, "SOAPAction", "Traceparent",
}, ", ")

package layers

import (
	"bytes"
	"strconv"
	"time"

	"github.com/valyala/fasthttp"

	"trafficd/schemas/contract"
)

// Path is the layer's path below the base path (contract 2).
const Path = "/mlf/v1/forecast/realtime"

// Methods are the methods that Handle serves.
var Methods = []string{"GET", "HEAD"}

// retryAfter is the Retry-After of a 503: a feed takes seconds to deliver the first forecasts.
const retryAfter = 10 * time.Second

var (
	noLayer    = contract.Unavailable("no forecasts yet: try again later", retryAfter)
	staleLayer = contract.Unavailable("the forecasts are out of date: try again later", retryAfter)
	badHorizon = &contract.APIError{Code: contract.InvalidParameter, Description: "horizon must be one of the configured minutes, such as 30; omit it for the whole layer", Parameter: "horizon"}
)

// Admit reserves nothing: responses are prebuilt.
func (l *Layer) Admit(*contract.Client, *fasthttp.RequestHeader) (release func(), apiErr *contract.APIError) {
	return nil, nil
}

// Handle serves GET and HEAD from the finished bytes. It copies no body, and allocates only for
// errors.
func (l *Layer) Handle(c *contract.Client, ctx *fasthttp.RequestCtx) (items int, err error) {
	now := time.Now()
	d, apiErr := l.find(c, ctx, now)
	if apiErr != nil {
		return 0, apiErr
	}
	l.setHeaders(&ctx.Response.Header, d, now)
	answers[send(ctx, d)][d.encoding].Inc()
	return 0, nil
}

// representation is a document in the negotiated format and encoding.
type representation struct {
	*document
	until    []byte // the snapshot's
	format   format
	encoding encoding
	asked    asked
}

// find returns the document that the request asks for.
func (l *Layer) find(c *contract.Client, ctx *fasthttp.RequestCtx, now time.Time) (representation, *contract.APIError) {
	scope, ok := l.scope(ctx)
	if !ok {
		return representation{}, badHorizon
	}
	current := l.current.Load()
	if current == nil {
		return representation{}, noLayer
	}
	if l.cfg.Stale == staleRefuse && l.stale(current, now) {
		return representation{}, staleLayer
	}
	zone := current.zones[c.Zone.String()]
	if zone == nil { // Prepare was not called before the key was activated
		return representation{}, noLayer
	}
	w := representation{asked: askedBy(&ctx.Request.Header), format: protobuf, encoding: identity}
	if w.asked.format {
		w.format = chooseFormat(&ctx.Request.Header)
	}
	if w.asked.encoding {
		w.encoding = chooseEncoding(&ctx.Request.Header)
	}
	w.document, w.until = zone[scope][w.format], current.until
	return w, nil
}

// scope returns the scope that the query asks for. The query is parsed only if the request target has
// one.
func (l *Layer) scope(ctx *fasthttp.RequestCtx) (scope int, ok bool) {
	if bytes.IndexByte(ctx.RequestURI(), '?') < 0 {
		return 0, true
	}
	found := false
	for name, value := range ctx.QueryArgs().All() {
		if string(name) != "horizon" {
			continue
		}
		if found {
			return 0, false // ambiguous
		}
		if scope, found = l.scopes[string(value)]; !found {
			return 0, false
		}
	}
	return scope, true
}

// setHeaders sets the headers that 304 and 412 have too.
func (l *Layer) setHeaders(h *fasthttp.ResponseHeader, d representation, now time.Time) {
	h.SetCanonical(headerETag, d.bodies[d.encoding].etag)
	h.SetCanonical(headerLastModified, d.lastModified)
	h.SetCanonical(headerCacheControl, private)
	h.SetCanonical(headerVary, vary)
	if d.until != nil {
		h.SetCanonical(headerCoveredUntil, d.until)
	}
	var digits [20]byte
	h.SetCanonical(headerForecastAge, strconv.AppendInt(digits[:0], int64(l.age(now)/time.Second), 10))
}

var (
	headerETag          = []byte(fasthttp.HeaderETag)
	headerLastModified  = []byte(fasthttp.HeaderLastModified)
	headerCacheControl  = []byte(fasthttp.HeaderCacheControl)
	headerVary          = []byte(fasthttp.HeaderVary)
	headerForecastAge   = []byte("Forecast-Age")
	headerCoveredUntil  = []byte("Forecast-Covered-Until")
	headerAcceptRanges  = []byte(fasthttp.HeaderAcceptRanges)
	headerContentRange  = []byte(fasthttp.HeaderContentRange)
	headerContentCoding = []byte(fasthttp.HeaderContentEncoding)

	private   = []byte("private, no-cache") // without no-cache, browsers reuse old layers by heuristic freshness
	vary      = []byte("Authorization, Accept, Accept-Encoding")
	byteUnits = []byte("bytes")
)

// send evaluates the request's conditions and its range, and sets the body.
func send(ctx *fasthttp.RequestCtx, d representation) outcome {
	req, h, b := &ctx.Request.Header, &ctx.Response.Header, &d.bodies[d.encoding]
	switch { // in the order of RFC 9110, 13.2.2
	case !d.asked.condition:
	case preconditionFailed(req, b.etag, d.modified):
		ctx.SetStatusCode(fasthttp.StatusPreconditionFailed)
		return conditionFailed
	case unmodified(req, b.etag, d.modified):
		ctx.SetStatusCode(fasthttp.StatusNotModified)
		return notModified
	}
	h.SetContentTypeBytes(mediaTypes[d.format])
	if b.size == 0 {
		h.SetContentLength(0) // fasthttp omits it in the response to HEAD
	}
	if d.encoding != identity {
		h.SetCanonical(headerContentCoding, encodingNames[d.encoding])
		b.send(&ctx.Response, 0, b.size)
		return sentWhole
	}
	h.SetCanonical(headerAcceptRanges, byteUnits)
	r := wholeBody
	if d.asked.part {
		r = rangeOf(req, b.etag, b.size)
	}
	switch {
	case r.whole:
		b.send(&ctx.Response, 0, b.size)
		return sentWhole
	case r.unsatisfiable:
		ctx.SetStatusCode(fasthttp.StatusRequestedRangeNotSatisfiable)
	default:
		ctx.SetStatusCode(fasthttp.StatusPartialContent)
		b.send(&ctx.Response, r.from, r.to)
	}
	var text [80]byte
	h.SetCanonical(headerContentRange, r.appendContentRange(text[:0], b.size))
	if r.unsatisfiable {
		return badRange
	}
	return sentRange
}

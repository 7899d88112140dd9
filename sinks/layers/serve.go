package layers

import (
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
)

// Admit reserves nothing: responses are prebuilt.
func (l *Layer) Admit(*contract.Client, *fasthttp.RequestHeader) (release func(), apiErr *contract.APIError) {
	return nil, nil
}

// Handle serves GET and HEAD from the finished bytes. It copies no body, and allocates only for
// errors and for parts of the layer.
func (l *Layer) Handle(c *contract.Client, ctx *fasthttp.RequestCtx) (items int, err error) {
	q, apiErr := l.parse(ctx)
	if apiErr != nil {
		return 0, apiErr
	}
	now := time.Now()
	a, apiErr := l.find(c, &ctx.Request.Header, &q, now)
	if apiErr == nil && a.asked.prefer && a.current(&q) {
		a = answer{} // a request that waits must not keep an old layer in memory
		l.wait(c, ctx, &q)
		now = time.Now()
		a, apiErr = l.find(c, &ctx.Request.Header, &q, now)
	}
	if apiErr != nil {
		return 0, apiErr
	}
	a.choose(l, &q, now)
	l.setHeaders(&ctx.Response.Header, &a, now)
	answers[a.send(ctx)][a.encoding].Inc()
	return 0, nil
}

// answer is a document or a part of it in the negotiated format and encoding.
type answer struct {
	*document
	snapshot *snapshot
	format   format
	encoding encoding
	asked    asked
	part     bool
	pieces   []*piece // of the part
	etag     []byte
	content  []byte // what the answer to since has; nil without since
}

// find returns the document that the request asks for.
func (l *Layer) find(c *contract.Client, h *fasthttp.RequestHeader, q *query, now time.Time) (a answer, apiErr *contract.APIError) {
	a.snapshot = l.current.Load()
	if a.snapshot == nil {
		return a, noLayer
	}
	if l.cfg.Stale == staleRefuse && l.stale(a.snapshot, now) {
		return a, staleLayer
	}
	documents := a.snapshot.zones[c.Zone.String()]
	if documents == nil { // Prepare was not called before the key was activated
		return a, noLayer
	}
	a.document, a.asked = documents[q.scope], askedBy(h)
	a.zone.demand(a.scope.whole).any.note(now)
	if !a.built {
		a.snapshot = l.complete(a.zone.name, q.scope, now)
		if documents = a.snapshot.zones[a.zone.name]; documents == nil { // the last key of the time zone was withdrawn
			return a, noLayer
		}
		a.document = documents[q.scope]
	}
	if a.asked.format {
		a.format = chooseFormat(h)
	}
	if a.asked.encoding {
		a.encoding = chooseEncoding(h)
	}
	return a, nil
}

// body returns the answer's body.
func (a *answer) body() *body {
	if a.part {
		return join(a.pieces, a.format, a.encoding)
	}
	return a.document.body(a.format, a.encoding)
}

// setHeaders sets the headers that 304 and 412 have too.
func (l *Layer) setHeaders(h *fasthttp.ResponseHeader, a *answer, now time.Time) {
	h.SetCanonical(headerETag, a.etag)
	h.SetCanonical(headerLastModified, a.lastModified)
	h.SetCanonical(headerCacheControl, private)
	h.SetCanonical(headerVary, vary)
	h.SetCanonical(headerVersion, a.version)
	if a.content != nil {
		h.SetCanonical(headerContent, a.content)
	}
	if a.snapshot.until != nil {
		h.SetCanonical(headerCoveredUntil, a.snapshot.until)
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
	headerVersion       = []byte("Forecast-Version")
	headerContent       = []byte("Forecast-Content")
	headerCoveredUntil  = []byte("Forecast-Covered-Until")
	headerAcceptRanges  = []byte(fasthttp.HeaderAcceptRanges)
	headerContentRange  = []byte(fasthttp.HeaderContentRange)
	headerContentCoding = []byte(fasthttp.HeaderContentEncoding)

	private   = []byte("private, no-cache") // without no-cache, browsers reuse old layers by heuristic freshness
	vary      = []byte("Authorization, Accept, Accept-Encoding")
	byteUnits = []byte("bytes")
)

// send evaluates the request's conditions and its range, and sets the body.
func (a *answer) send(ctx *fasthttp.RequestCtx) outcome {
	req, h := &ctx.Request.Header, &ctx.Response.Header
	switch { // in the order of RFC 9110, 13.2.2
	case !a.asked.condition:
	case preconditionFailed(req, a.etag, a.modified):
		ctx.SetStatusCode(fasthttp.StatusPreconditionFailed)
		return conditionFailed
	case unmodified(req, a.etag, a.modified):
		ctx.SetStatusCode(fasthttp.StatusNotModified)
		return notModified
	}
	b := a.body()
	h.SetContentTypeBytes(mediaTypes[a.format])
	if b.size == 0 {
		h.SetContentLength(0) // fasthttp omits it in the response to HEAD
	}
	if a.encoding != identity {
		h.SetCanonical(headerContentCoding, encodingNames[a.encoding])
	}
	if a.encoding != identity || a.content != nil { // the ETag of answers to since does not identify their bytes
		b.send(&ctx.Response, 0, b.size)
		return sentWhole
	}
	h.SetCanonical(headerAcceptRanges, byteUnits)
	r := wholeBody
	if a.asked.part {
		r = rangeOf(req, a.etag, b.size)
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

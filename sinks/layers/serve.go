package layers

import (
	"bytes"
	"strconv"
	"time"

	"github.com/valyala/fasthttp"

	"trafficd/schemas/contract"
)

// Path is where the layer stands below the base path (contract 2).
const Path = "/mlf/v1/forecast/realtime"

// Methods are those that Serve answers.
var Methods = []string{"GET", "HEAD"}

// retryAfter is for a client that came before the first forecasts: feeds take
// seconds, not minutes.
const retryAfter = 10 * time.Second

var (
	noLayer    = contract.Unavailable("there is no forecast yet: try again in a moment", retryAfter)
	staleLayer = contract.Unavailable("the forecasts are too old to be served: try again in a moment", retryAfter)
	badHorizon = &contract.APIError{Code: contract.InvalidParameter, Description: "horizon has to be one of the minutes that are offered, such as 30; without it the whole layer is given", Parameter: "horizon"}
)

// Admit reserves nothing: an answer is at hand, whatever the daemon is doing.
func (l *Layer) Admit(*contract.Client, *fasthttp.RequestHeader) (release func(), apiErr *contract.APIError) {
	return nil, nil
}

// Handle answers GET and HEAD from the finished bytes. It copies no body and allocates
// nothing where it does not refuse.
func (l *Layer) Handle(c *contract.Client, ctx *fasthttp.RequestCtx) (items int, err error) {
	now := time.Now()
	d, apiErr := l.find(c, ctx, now)
	if apiErr != nil {
		return 0, apiErr
	}
	l.describe(&ctx.Response.Header, d, now)
	answers[send(ctx, d)][d.encoding].Inc()
	return 0, nil
}

// wanted is a document, in the form that was asked for.
type wanted struct {
	*document
	format   format
	encoding encoding
	asked    asked
}

// find gives the document that the request asks for.
func (l *Layer) find(c *contract.Client, ctx *fasthttp.RequestCtx, now time.Time) (wanted, *contract.APIError) {
	scope, ok := l.scope(ctx)
	if !ok {
		return wanted{}, badHorizon
	}
	current := l.current.Load()
	if current == nil {
		return wanted{}, noLayer
	}
	if l.cfg.Stale == staleRefuse && l.age(now) > l.cfg.StaleAfter {
		return wanted{}, staleLayer
	}
	zone := current.zones[c.Zone.String()]
	if zone == nil { // cannot be where Prepare was called before the key came into use
		return wanted{}, noLayer
	}
	w := wanted{asked: askedBy(&ctx.Request.Header), format: protobuf, encoding: identity}
	if w.asked.format {
		w.format = chooseFormat(&ctx.Request.Header)
	}
	if w.asked.encoding {
		w.encoding = chooseEncoding(&ctx.Request.Header)
	}
	w.document = zone[scope][w.format]
	return w, nil
}

// scope gives the scope that the query asks for, and whether there is such a one. The
// target is parsed only where it has a query.
func (l *Layer) scope(ctx *fasthttp.RequestCtx) (scope int, ok bool) {
	if bytes.IndexByte(ctx.RequestURI(), '?') < 0 || !ctx.QueryArgs().Has("horizon") {
		return 0, true
	}
	scope, ok = l.scopes[string(ctx.QueryArgs().Peek("horizon"))]
	return scope, ok
}

// describe sets the headers that a 304 and a 412 carry too.
func (l *Layer) describe(h *fasthttp.ResponseHeader, d wanted, now time.Time) {
	h.SetCanonical(headerETag, d.bodies[d.encoding].etag)
	h.SetCanonical(headerLastModified, d.lastModified)
	h.SetCanonical(headerCacheControl, private)
	h.SetCanonical(headerVary, vary)
	var digits [20]byte
	h.SetCanonical(headerForecastAge, strconv.AppendInt(digits[:0], int64(l.age(now)/time.Second), 10))
}

var (
	headerETag          = []byte(fasthttp.HeaderETag)
	headerLastModified  = []byte(fasthttp.HeaderLastModified)
	headerCacheControl  = []byte(fasthttp.HeaderCacheControl)
	headerVary          = []byte(fasthttp.HeaderVary)
	headerForecastAge   = []byte("Forecast-Age")
	headerAcceptRanges  = []byte(fasthttp.HeaderAcceptRanges)
	headerContentRange  = []byte(fasthttp.HeaderContentRange)
	headerContentCoding = []byte(fasthttp.HeaderContentEncoding)

	private   = []byte("private")
	vary      = []byte("Authorization, Accept, Accept-Encoding")
	byteUnits = []byte("bytes")
)

// send writes what the request's conditions and its range leave.
func send(ctx *fasthttp.RequestCtx, d wanted) outcome {
	req, h, b := &ctx.Request.Header, &ctx.Response.Header, &d.bodies[d.encoding]
	switch { // in the order of RFC 9110, 13.2.2
	case !d.asked.condition:
	case replaced(req, b.etag, d.modified):
		ctx.SetStatusCode(fasthttp.StatusPreconditionFailed)
		return conditionFailed
	case unchanged(req, b.etag, d.modified):
		ctx.SetStatusCode(fasthttp.StatusNotModified)
		return notModified
	}
	h.SetContentTypeBytes(mediaTypes[d.format])
	if d.encoding != identity {
		h.SetCanonical(headerContentCoding, encodingNames[d.encoding])
		b.send(&ctx.Response, 0, b.size)
		return sentWhole
	}
	h.SetCanonical(headerAcceptRanges, byteUnits)
	r := whole
	if d.asked.part {
		r = rangeOf(req, b.etag, b.size)
	}
	switch {
	case r.none:
		b.send(&ctx.Response, 0, b.size)
		return sentWhole
	case r.beyond:
		ctx.SetStatusCode(fasthttp.StatusRequestedRangeNotSatisfiable)
	default:
		ctx.SetStatusCode(fasthttp.StatusPartialContent)
		b.send(&ctx.Response, r.from, r.to)
	}
	var text [80]byte
	h.SetCanonical(headerContentRange, r.append(text[:0], b.size))
	if r.beyond {
		return badRange
	}
	return sentRange
}

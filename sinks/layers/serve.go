package layers

import (
	"strconv"
	"time"

	"github.com/valyala/fasthttp"

	"trafficd/pipeline/lib/negotiate"
	"trafficd/schemas/contract"
)

// Path is the layer's path below the base path (contract 2).
const Path = contract.ForecastPath

// Methods are the HTTP methods that Handle serves.
var Methods = []string{"GET", "HEAD"}

// A feed takes seconds to deliver the first forecasts.
var (
	noLayer    = contract.Unavailable("no forecasts yet: try again later", 10*time.Second)
	staleLayer = contract.Unavailable("the forecasts are out of date: try again later", 10*time.Second)
)

// Admit admits every request, because responses are prebuilt.
func (l *Layer) Admit(*contract.Client, *fasthttp.RequestHeader) *contract.APIError { return nil }

// Handle serves GET and HEAD with prebuilt bodies. It does not copy them, and allocates only for
// errors and for parts of the layer, which clients make in turn. items is always 0.
func (l *Layer) Handle(c *contract.Client, ctx *fasthttp.RequestCtx) (items int, err error) {
	q, apiErr := l.parse(ctx)
	if apiErr != nil {
		return 0, apiErr
	}
	if q.follows || q.within != "" { // the response is made for the request, at least in part
		l.wait(c, ctx, &q)
		l.turns.Take(c.Owner) // its queue is never full, because connections are limited
		defer l.turns.Release(c.Owner)
		if apiErr = l.made.CheckCharged(c.Owner); apiErr != nil {
			return 0, apiErr
		}
	}
	now := time.Now()
	r, apiErr := l.find(c, &ctx.Request.Header, &q, now)
	if apiErr != nil {
		return 0, apiErr
	}
	r.choose(&q, now)
	r.setHeaders(&ctx.Response.Header, now)
	if apiErr = r.send(ctx); apiErr != nil {
		return 0, apiErr
	}
	responses[ctx.Response.StatusCode()][r.encoding].Inc()
	return 0, nil
}

// response is a document or a part of it in the negotiated format and encoding.
type response struct {
	*document
	layer    *Layer
	client   string // the owner of the request's key
	snapshot *snapshot
	format   format
	encoding encoding
	part     bool     // the body consists of pieces instead of the whole document
	pieces   []*piece // if part is true
	etag     []byte
	content  []byte // value of Forecast-Content; nil without since
}

// find returns the requested document in the format and encoding to send.
func (l *Layer) find(c *contract.Client, h *fasthttp.RequestHeader, q *query, now time.Time) (r response, apiErr *contract.APIError) {
	r.layer, r.client, r.snapshot = l, c.Owner, l.current.Load()
	zone := c.Zone.String()
	if r.document = r.snapshot.document(zone, q.view); r.document == nil { // no layer, or Prepare was not called in time
		return r, noLayer
	}
	if l.cfg.Stale == staleRefuse && l.staleReasons(r.snapshot, now) != nil {
		return r, staleLayer
	}
	r.format, r.encoding = chooseFormat(h), chooseEncoding(h)
	return r, nil
}

// setHeaders sets the headers that all responses have, including 304 and 412.
func (r *response) setHeaders(h *fasthttp.ResponseHeader, now time.Time) {
	h.SetCanonical(headerETag, r.etag)
	if now.Sub(r.modified) >= time.Second { // RFC 9110, 8.8.2.1: not later than Date, which is up to a second old
		h.SetCanonical(headerLastModified, r.lastModified)
	}
	h.SetCanonical(headerCacheControl, private)
	h.SetCanonical(headerVary, vary)
	h.SetCanonical(headerVersion, r.etags[protobuf][identity])
	if r.snapshot.until != nil {
		h.SetCanonical(headerCoveredUntil, r.snapshot.until)
	}
	var digits [20]byte
	h.SetCanonical(headerForecastAge, strconv.AppendInt(digits[:0], int64(r.layer.age(now)/time.Second), 10))
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

	private                      = []byte("private, no-cache") // without no-cache, browsers reuse old layers by heuristic freshness
	vary                         = []byte("Authorization, Accept, Accept-Encoding")
	byteUnits                    = []byte("bytes")
	contentChanges, contentWhole = []byte("changes"), []byte("whole")
)

// send evaluates the request's conditions and its range, and sets the body. It returns the error of
// setBody.
func (r *response) send(ctx *fasthttp.RequestCtx) *contract.APIError {
	req, h := &ctx.Request.Header, &ctx.Response.Header
	switch { // in the order of RFC 9110, 13.2.2
	case negotiate.PreconditionFailed(req, r.etag, r.modified):
		ctx.SetStatusCode(fasthttp.StatusPreconditionFailed)
		return nil
	case negotiate.Unmodified(req, r.etag, r.modified):
		ctx.SetStatusCode(fasthttp.StatusNotModified)
		return nil
	}
	if r.content != nil { // not in a 304, because the client's stored response may be of the other kind
		h.SetCanonical(headerContent, r.content)
	}
	var b *body
	if r.part {
		b = join(r.pieces, r.format, r.encoding)
	} else {
		b = r.body(r.format, r.encoding)
	}
	h.SetContentTypeBytes(mediaTypes[r.format])
	if b.size == 0 {
		h.SetContentLength(0) // fasthttp omits it in the response to HEAD
	}
	if r.encoding != identity {
		h.SetCanonical(headerContentCoding, encodingNames[r.encoding])
	}
	if r.encoding != identity || r.content != nil { // the ETag of a response to since does not identify its bytes
		return r.setBody(ctx, b, 0, b.size)
	}
	h.SetCanonical(headerAcceptRanges, byteUnits)
	part := negotiate.RangeOf(req, r.etag, b.size)
	if part.Whole {
		return r.setBody(ctx, b, 0, b.size)
	}
	var text [80]byte
	h.SetCanonical(headerContentRange, part.AppendContentRange(text[:0], b.size))
	if part.Unsatisfiable {
		ctx.SetStatusCode(fasthttp.StatusRequestedRangeNotSatisfiable)
		return nil
	}
	ctx.SetStatusCode(fasthttp.StatusPartialContent)
	return r.setBody(ctx, b, part.From, part.To)
}

// chooseFormat evaluates Accept. It returns JSON if the client prefers it to protobuf, and protobuf
// in all other cases, even if neither is acceptable: a 406 would not help any client.
func chooseFormat(h *fasthttp.RequestHeader) format {
	lines := h.PeekAll(fasthttp.HeaderAccept)
	if negotiate.ApplicationQuality(lines, mediaTypes[jsonText]) > max(negotiate.ApplicationQuality(lines, mediaTypes[protobuf]), 0) {
		return jsonText
	}
	return protobuf
}

// chooseEncoding evaluates Accept-Encoding. At equal quality it prefers gzip to identity. It
// returns identity if nothing is acceptable.
func chooseEncoding(h *fasthttp.RequestHeader) encoding {
	lines := h.PeekAll(fasthttp.HeaderAcceptEncoding)
	if q := negotiate.CodingQuality(lines, encodingNames[gzipped]); q > 0 && q >= negotiate.QualityOf(lines, encodingNames[identity]) {
		return gzipped
	}
	return identity
}

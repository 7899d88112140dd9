package api

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/valyala/fasthttp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	oteltrace "go.opentelemetry.io/otel/trace"

	"trafficd/pipeline/batch"
	"trafficd/schemas/contract"
	"trafficd/sources/internal/span"
)

func (s *Server) handle(ctx *fasthttp.RequestCtx) {
	c := ctx.Conn().(*conn)
	x := s.exchangeOf(ctx)
	if x == nil {
		x = s.begin(&ctx.Request.Header, ctx.Time())
	}
	s.identify(x, c, &ctx.Request.Header)
	var err error
	switch apiErr := c.owner.present(c, x); {
	case apiErr != nil: // also if the connection was evicted: the request must have no effect
		err, x.close = apiErr, true
	case x.apiErr != nil:
		err = x.apiErr
	case x.preflight:
		x.permit(ctx)
	default:
		err = s.serve(x, ctx)
	}
	code := s.respond(x, ctx, err)
	if len(s.origins) > 0 {
		s.origins.mark(ctx)
	}
	// If a gzip stream is invalid, the cause may be a wrong Content-Length: what follows the body may
	// be the rest of it.
	unread := code == contract.InvalidGzip || ctx.Response.ConnectionClose() || x.unread(ctx)
	if unread {
		c.unread.Store(true)
	}
	if unread || x.close || s.draining.Load() {
		ctx.SetConnectionClose()
	}
	took := s.account(x, ctx, code)
	c.beginResponse(x.start.Add(took))
	x.free()
}

// serve calls the endpoint. It returns a 500 if the endpoint panics.
func (s *Server) serve(x *exchange, ctx *fasthttp.RequestCtx) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = s.panicked(p, x.trace.String())
		}
	}()
	ctx.Response.Header.SetCanonical(traceHeaderName, x.trace[:])
	if x.span != nil {
		span.Attach(ctx, x.span)
	}
	items, err := x.route.Endpoint.Handle(x.client(), ctx)
	if x.key != nil {
		x.key.items.charge(items)
	}
	return err
}

func (s *Server) panicked(p any, trace string) *contract.APIError {
	panics.Inc()
	s.log.Error().Str("trace_id", trace).Str("panic", fmt.Sprint(p)).Str("stack", string(debug.Stack())).
		Msg("a request panicked: responded with 500")
	return internalError(trace)
}

func internalError(trace string) *contract.APIError {
	return contract.NewError(contract.InternalError, "internal error; quote the trace ID "+trace)
}

// respond writes the error response for err and returns its code. It returns OK for nil, because
// the endpoint has written the response, and for batch.ErrNoResponse, which gets no response.
func (s *Server) respond(x *exchange, ctx *fasthttp.RequestCtx, err error) contract.Code {
	if err == nil {
		return contract.OK
	}
	var apiErr *contract.APIError
	switch {
	case errors.Is(err, batch.ErrNoResponse):
		// fasthttp writes buffered responses to earlier requests before it closes a hijacked
		// connection.
		x.silent = true
		ctx.Response.Reset()
		ctx.HijackSetNoResponse(true)
		ctx.Hijack(func(net.Conn) {})
		return contract.OK
	case !errors.As(err, &apiErr):
		s.log.Error().Err(err).Stringer("trace_id", &x.trace).Msg("cannot handle a request")
		apiErr = internalError(x.trace.String())
	}
	writeError(&ctx.Response, apiErr, x.trace.String())
	s.linkDocs(&ctx.Response)
	if apiErr == errVersion {
		ctx.SetStatusCode(fasthttp.StatusHTTPVersionNotSupported)
	}
	switch apiErr.Code {
	case contract.Unauthenticated:
		for _, challenge := range x.route.challenges {
			ctx.Response.Header.Add(fasthttp.HeaderWWWAuthenticate, challenge)
		}
	case contract.MethodNotAllowed:
		ctx.Response.Header.Set(fasthttp.HeaderAllow, x.route.allow)
	}
	return apiErr.Code
}

// unread reports whether part of the body may be unread, so that no further request can be read
// from the connection.
func (x *exchange) unread(ctx *fasthttp.RequestCtx) bool {
	body := ctx.RequestBodyStream()
	switch {
	case x.apiErr != nil || x.skip:
		return x.body
	case !x.body || body == nil:
		return false
	}
	// A stream that was read to its end returns io.EOF without accessing the connection. The
	// deadline keeps other streams from waiting for data.
	_ = ctx.Conn().SetReadDeadline(time.Unix(1, 0))
	n, err := body.Read(x.probe[:])
	return n > 0 || err != io.EOF
}

// account counts a request, logs it at level debug and returns how long it took. It does not
// log queries, or methods and paths that no route accepts, because they may contain the key.
func (s *Server) account(x *exchange, ctx *fasthttp.RequestCtx, code contract.Code) (took time.Duration) {
	m := noRoute
	if x.route != nil {
		m = x.route.metrics
	}
	if x.silent {
		noResponse.Inc()
	} else {
		m.count(code)
	}
	took = time.Since(x.start)
	m.seconds.Observe(took.Seconds())
	if x.span != nil {
		x.endSpan(ctx, code)
	}
	e := s.log.Debug()
	if !e.Enabled() {
		return took
	}
	if client := x.client(); client != nil {
		e = e.Str("client", client.Name)
	}
	if x.route != nil && (x.preflight || x.route.accepts(ctx.Method())) {
		e = e.Bytes("method", ctx.Method()).Bytes("path", pathOf(ctx.RequestURI()))
	}
	e.Stringer("trace_id", &x.trace).Str("remote", ctx.RemoteAddr().String()).
		Int("status", ctx.Response.StatusCode()).Stringer("code", code).Bool("responded", !x.silent).
		Dur("took", took).Msg("request")
	return took
}

// endSpan ends the span of a request. The span does not contain unknown paths and methods,
// because clients can send arbitrary ones.
func (x *exchange) endSpan(ctx *fasthttp.RequestCtx, code contract.Code) {
	defer x.span.End()
	if !x.span.IsRecording() {
		return
	}
	if x.route != nil && (x.preflight || x.route.accepts(ctx.Method())) {
		method := string(ctx.Method())
		x.span.SetName(method + " " + x.route.path)
		x.span.SetAttributes(attribute.String("http.request.method", method), attribute.String("http.route", x.route.path))
	}
	if client := x.client(); client != nil {
		x.span.SetAttributes(attribute.String("trafficd.client", client.Name))
	}
	if x.silent {
		x.span.SetStatus(codes.Error, "closed without a response")
		return
	}
	if code != contract.OK {
		x.span.SetAttributes(attribute.String("error.type", code.String()))
	}
	status := ctx.Response.StatusCode()
	x.span.SetAttributes(attribute.Int("http.response.status_code", status))
	if status >= fasthttp.StatusInternalServerError {
		x.span.SetStatus(codes.Error, "")
	}
}

// expect is called before a request gets its 100 Continue. It renews the write deadline, which the
// previous response may have used up.
func (s *Server) expect(ctx *fasthttp.RequestCtx) int {
	c := ctx.Conn().(*conn)
	c.beginResponse(time.Now())
	c.expecting = s.pending.remove(&ctx.Request.Header)
	if s.identify(c.expecting, c, &ctx.Request.Header); c.expecting.apiErr != nil {
		s.handle(ctx)
		return ctx.Response.StatusCode()
	}
	_ = c.owner.present(c, c.expecting) // handle reports the error
	return fasthttp.StatusContinue
}

// malformed responds to input that is not a complete request header, and to requests whose body
// does not begin in time.
func (s *Server) malformed(ctx *fasthttp.RequestCtx, err error) {
	x := s.exchangeOf(ctx)
	if x == nil {
		r := readHeaders(&ctx.Request.Header)
		x = newExchange(&r, time.Now())
	}
	c := ctx.Conn().(*conn)
	c.beginResponse(time.Now())
	c.unread.Store(true)

	// The text of err is not used, because it repeats the client's data.
	apiErr, status := contract.NewError(contract.InvalidParameter, "malformed HTTP/1.1 request"), 0
	var noTLS tls.RecordHeaderError
	var slow net.Error
	if refused, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		s.refused(c, refused)
	}
	switch {
	case errors.As(err, &noTLS) && noTLS.Conn != nil: // nil if the handshake has begun, so the client uses TLS
		c.Conn = c.raw
		apiErr.Description = "this port expects TLS: use https:// instead of http://"
	case strings.Contains(err.Error(), `unsupported http version "HTTP/`), // there is no sentinel
		c.http2 && strings.Contains(err.Error(), `invalid request uri "*"`):
		apiErr, status = errVersion, fasthttp.StatusHTTPVersionNotSupported
	case errors.As(err, new(*fasthttp.ErrSmallBuffer)):
		apiErr.Description = fmt.Sprintf("the header of the request is larger than %d bytes", s.cfg.MaxHeaderBytes)
		status = fasthttp.StatusRequestHeaderFieldsTooLarge
	case errors.As(err, &slow) && slow.Timeout():
		apiErr = contract.NewError(contract.RequestTimeout,
			fmt.Sprintf("the header, or the first byte of the body, did not arrive within %v, or less while most connections are in use",
				s.cfg.HeaderTimeout))
	case errors.Is(err, io.ErrUnexpectedEOF):
		apiErr.Description = "unexpected end of the request"
	}
	writeError(&ctx.Response, apiErr, x.trace.String())
	s.linkDocs(&ctx.Response)
	if status != 0 {
		ctx.SetStatusCode(status)
	}
	s.account(x, ctx, apiErr.Code)
	x.free()
}

// exchange is the state of a request between its header and its response.
type exchange struct {
	start     time.Time
	trace     trace
	span      oteltrace.Span // nil: no tracing
	route     *route         // nil: no such path
	key       *key           // nil: none was presented, or it is unknown, or none is needed
	apiErr    *contract.APIError
	anonymous bool    // the request has no key: the certificate of its connection may stand for one
	body      bool    // the request has a body, even if its length was set to 0 because of skip
	skip      bool    // the response does not depend on the body, which is not read
	silent    bool    // no response is sent
	close     bool    // close the connection after the response
	preflight bool    // a CORS preflight
	probe     [1]byte // read by unread
}

var exchanges = sync.Pool{New: func() any { return new(exchange) }}

func newExchange(r *requestHeaders, now time.Time) *exchange {
	x := exchanges.Get().(*exchange)
	x.start, x.trace = now, traceID(r.traceparent)
	return x
}

func (x *exchange) free() {
	*x = exchange{}
	exchanges.Put(x)
}

func (x *exchange) client() *contract.Client {
	if x.key == nil {
		return nil
	}
	return x.key.client
}

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

func (s *Server) exchangeOf(ctx *fasthttp.RequestCtx) *exchange {
	c := ctx.Conn().(*conn)
	if x := c.expecting; x != nil {
		c.expecting = nil
		return x
	}
	return s.pending.remove(&ctx.Request.Header)
}

// pending holds the exchanges of requests with a body between fasthttp's HeaderReceived and its
// handler, by the address of their header, the only argument of HeaderReceived. fasthttp
// calls Handler or ErrorHandler, which take the exchange, unless a read returns net.ErrClosed,
// which conn.Read therefore replaces. After ExpectHandler it may call neither, so the exchange
// moves to its conn.
type pending struct {
	mu   sync.Mutex
	open map[*fasthttp.RequestHeader]*exchange
}

func (p *pending) put(h *fasthttp.RequestHeader, x *exchange) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open[h] = x
}

func (p *pending) remove(h *fasthttp.RequestHeader) *exchange {
	p.mu.Lock()
	defer p.mu.Unlock()
	x := p.open[h]
	delete(p.open, h)
	return x
}

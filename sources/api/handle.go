package api

import (
	"errors"
	"fmt"
	"io"
	"net"
	"runtime/debug"
	"time"

	"github.com/valyala/fasthttp"

	"trafficd/pipeline/batch"
	"trafficd/schemas/contract"
)

// handle answers a request, and counts it.
func (s *Server) handle(ctx *fasthttp.RequestCtx) {
	x := s.take(ctx)
	if x == nil {
		x = s.judge(&ctx.Request.Header, ctx.Time())
	}
	err := error(x.apiErr)
	switch {
	case x.preflight:
		x.permit(ctx)
		err = nil
	case x.apiErr == nil:
		err = s.serve(x, ctx)
	}
	code := s.answer(x, ctx, err)
	s.origins.mark(ctx)
	if x.mustClose(ctx) {
		ctx.Conn().(*conn).unread.Store(true)
		ctx.SetConnectionClose()
	}
	if x.close || s.draining.Load() {
		ctx.SetConnectionClose()
	}
	took := s.account(x, ctx, code)
	c := ctx.Conn().(*conn)
	_ = c.SetWriteDeadline(x.start.Add(took + s.cfg.WriteTimeout))
	c.joined.want(ctx)
	x.free()
}

// serve asks the endpoint. A panic there costs one request only.
func (s *Server) serve(x *exchange, ctx *fasthttp.RequestCtx) (err error) {
	defer x.end()
	defer func() {
		if p := recover(); p != nil {
			err = s.panicked(p, x.trace.String())
		}
	}()
	ctx.Response.Header.SetCanonical(traceHeaderName, x.trace[:])
	items, err := x.route.Endpoint.Handle(x.client(), ctx)
	if x.key != nil {
		x.key.items.charge(items)
	}
	return err
}

func (s *Server) panicked(p any, trace string) *contract.APIError {
	panics.Inc()
	s.log.Error().Str("trace_id", trace).Str("panic", fmt.Sprint(p)).Str("stack", string(debug.Stack())).Msg("a request panicked: it was answered 500, the service goes on")
	return internalError(trace)
}

func internalError(trace string) *contract.APIError {
	return contract.NewError(contract.InternalError, "something went wrong on our side; when asking for help, give the trace id "+trace)
}

// answer writes what an error says; nil means that the endpoint has answered.
func (s *Server) answer(x *exchange, ctx *fasthttp.RequestCtx, err error) contract.Code {
	if err == nil {
		return contract.OK
	}
	var apiErr *contract.APIError
	switch {
	case errors.Is(err, batch.ErrNoAnswer):
		x.silent = true
		hangUp(ctx)
		return contract.OK
	case !errors.As(err, &apiErr):
		s.log.Error().Err(err).Stringer("trace_id", &x.trace).Msg("cannot serve a request")
		apiErr = internalError(x.trace.String())
	}
	writeRefusal(&ctx.Response, apiErr, x.trace.String())
	switch apiErr.Code {
	case contract.Unauthenticated:
		ctx.Response.Header.Set(fasthttp.HeaderWWWAuthenticate, x.route.challenge)
	case contract.MethodNotAllowed:
		ctx.Response.Header.Set(fasthttp.HeaderAllow, x.route.allow)
	}
	return apiErr.Code
}

// hangUp closes the connection without an answer, after those to earlier requests
// that may still be buffered.
func hangUp(ctx *fasthttp.RequestCtx) {
	ctx.Response.Reset()
	ctx.HijackSetNoResponse(true)
	ctx.Hijack(func(net.Conn) {}) // fasthttp closes it afterwards
}

// mustClose tells whether bytes of the request's body may be left: then what
// comes next on the connection is no request.
func (x *exchange) mustClose(ctx *fasthttp.RequestCtx) bool {
	body := ctx.RequestBodyStream()
	switch {
	case x.apiErr != nil:
		return x.body
	case !x.body || body == nil:
		return false
	}
	// A stream that was read to its end says so without touching the connection.
	// For the others the deadline keeps us from waiting.
	_ = ctx.Conn().SetReadDeadline(time.Unix(1, 0))
	n, err := body.Read(x.probe[:])
	return n > 0 || err != io.EOF
}

// account counts a request and, for whoever looks for something, logs it. The
// query is left out: it may hold the key.
func (s *Server) account(x *exchange, ctx *fasthttp.RequestCtx, code contract.Code) (took time.Duration) {
	m := x.metrics()
	if x.silent {
		unansweredRequests.Inc()
	} else {
		m.count(code)
	}
	took = time.Since(x.start)
	m.seconds.Update(took.Seconds())
	e := s.log.Debug()
	if !e.Enabled() {
		return took
	}
	if client := x.client(); client != nil {
		e = e.Str("client", client.Name)
	}
	e.Stringer("trace_id", &x.trace).Str("remote", ctx.RemoteAddr().String()).
		Str("method", contract.Echo(ctx.Method())).Str("path", contract.Echo(pathOf(ctx.RequestURI()))).
		Int("status", ctx.Response.StatusCode()).Stringer("code", code).Bool("answered", !x.silent).
		Dur("took", took).Msg("request")
	return took
}

// expect is called for a request that is about to get its 100 Continue. On a kept connection
// the write deadline of the answer before may have passed.
func (s *Server) expect(ctx *fasthttp.RequestCtx) int {
	_ = ctx.Conn().SetWriteDeadline(time.Now().Add(s.cfg.WriteTimeout))
	ctx.Conn().(*conn).expecting = s.pending.take(&ctx.Request.Header)
	return fasthttp.StatusContinue
}

// malformed answers what never became a request, or whose body did not begin.
func (s *Server) malformed(ctx *fasthttp.RequestCtx, err error) {
	x := s.take(ctx)
	if x == nil {
		said := saidIn(&ctx.Request.Header)
		x = newExchange(&said, time.Now())
	}
	_ = ctx.Conn().SetWriteDeadline(time.Now().Add(s.cfg.WriteTimeout))
	ctx.Conn().(*conn).unread.Store(true)
	apiErr, status := malformation(err, s.cfg)
	writeRefusal(&ctx.Response, apiErr, x.trace.String())
	if status != 0 {
		ctx.SetStatusCode(status)
	}
	s.account(x, ctx, apiErr.Code)
	x.abandon()
}

// malformation gives the refusal for fasthttp's error, and the status where the code's
// own does not fit. The error's text repeats the client's bytes: it is not used.
func malformation(err error, cfg Config) (*contract.APIError, int) {
	var small *fasthttp.ErrSmallBuffer
	var slow net.Error
	switch {
	case errors.As(err, &small):
		return contract.NewError(contract.InvalidParameter, fmt.Sprintf("the request's header is larger than %d bytes", cfg.MaxHeaderBytes)), fasthttp.StatusRequestHeaderFieldsTooLarge
	case errors.As(err, &slow) && slow.Timeout():
		return contract.NewError(contract.RequestTimeout, fmt.Sprintf("the header, or the body's first byte, did not come within %v", cfg.HeaderTimeout)), 0
	case errors.Is(err, io.ErrUnexpectedEOF):
		return contract.NewError(contract.InvalidParameter, "the request ends before it is complete"), 0
	}
	return contract.NewError(contract.InvalidParameter, "this is no well-formed HTTP/1.1 request"), 0
}

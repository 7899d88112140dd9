package api

import (
	"sync"
	"time"

	"github.com/valyala/fasthttp"

	"trafficd/schemas/contract"
)

// exchange is the state of a request between its header and its answer.
type exchange struct {
	start     time.Time
	trace     trace
	route     *route // nil: none was found
	key       *key   // nil: none was presented or needed, or an unknown one
	apiErr    *contract.APIError
	body      bool // the request has a body, though fasthttp sees none if apiErr is set
	silent    bool // there is no answer
	close     bool // the client wants the connection to end with the answer
	preflight bool // a CORS preflight
	release   func()
	probe     [1]byte
}

var exchanges = sync.Pool{New: func() any { return new(exchange) }}

func newExchange(r *requestHeaders, now time.Time) *exchange {
	x := exchanges.Get().(*exchange)
	x.start, x.trace = now, traceID(r.traceparent)
	return x
}

// end releases what Admit reserved. It may be called again.
func (x *exchange) end() {
	if release := x.release; release != nil {
		x.release = nil
		release()
	}
}

func (x *exchange) free() {
	x.end()
	*x = exchange{}
	exchanges.Put(x)
}

func (x *exchange) metrics() *routeMetrics {
	if x.route == nil {
		return noRoute
	}
	return x.route.metrics
}

// client returns the key's client, nil without a key.
func (x *exchange) client() *contract.Client {
	if x.key == nil {
		return nil
	}
	return x.key.client
}

// take returns the exchange that was begun for ctx, nil if there is none.
func (s *Server) take(ctx *fasthttp.RequestCtx) *exchange {
	c := ctx.Conn().(*conn)
	if x := c.expecting; x != nil {
		c.expecting = nil
		return x
	}
	return s.pending.take(&ctx.Request.Header)
}

// pending holds the exchanges of requests with a body between fasthttp's HeaderReceived and its
// handler, by the address of their header. There is no better place: HeaderReceived gets the header
// only, which has no user values and leads neither to the RequestCtx nor to the connection, and the
// hooks that get the RequestCtx are called after the body's first byte (Handler, ErrorHandler) or
// only for Expect: 100-continue (ExpectHandler). fasthttp always calls Handler or ErrorHandler, which
// take the exchange; after ExpectHandler it may call neither, so the exchange moves to its conn.
type pending struct {
	mu   sync.Mutex
	open map[*fasthttp.RequestHeader]*exchange
}

func (p *pending) put(h *fasthttp.RequestHeader, x *exchange) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open[h] = x
}

// take returns the exchange of a header and forgets it; nil if there is none.
func (p *pending) take(h *fasthttp.RequestHeader) *exchange {
	p.mu.Lock()
	defer p.mu.Unlock()
	x := p.open[h]
	delete(p.open, h)
	return x
}

package api

import (
	"sync"
	"time"

	"github.com/valyala/fasthttp"

	"trafficd/schemas/contract"
)

// exchange is what is known of a request between its header and its answer.
type exchange struct {
	start     time.Time
	trace     trace
	route     *route // nil: none was found
	key       *key   // nil: none was presented or needed, or an unknown one
	apiErr    *contract.APIError
	body      bool // there is a body, and fasthttp was told of none if refusal is set
	silent    bool // there is no answer
	close     bool // the client wants the connection to end with the answer
	preflight bool // a browser asks whether a page may send another request
	release   func()
	probe     [1]byte
}

var exchanges = sync.Pool{New: func() any { return new(exchange) }}

func newExchange(said *said, now time.Time) *exchange {
	x := exchanges.Get().(*exchange)
	x.start, x.trace = now, traceID(said.traceparent)
	return x
}

// end gives back what Before reserved. It may be called again.
func (x *exchange) end() {
	if release := x.release; release != nil {
		x.release = nil
		release()
	}
}

// abandon is the end of a request whose client went away before it was served.
func (x *exchange) abandon() {
	x.end()
	x.free()
}

func (x *exchange) free() {
	*x = exchange{}
	exchanges.Put(x)
}

func (x *exchange) metrics() *routeMetrics {
	if x.route == nil {
		return noRoute
	}
	return x.route.metrics
}

// take gives the exchange that was begun for ctx, nil if there is none.
func (s *Server) take(ctx *fasthttp.RequestCtx) *exchange {
	c := ctx.Conn().(*conn)
	if x := c.expecting; x != nil {
		c.expecting = nil
		return x
	}
	return s.pending.take(&ctx.Request.Header)
}

// client is the key's client, nil where there is none.
func (x *exchange) client() *contract.Client {
	if x.key == nil {
		return nil
	}
	return x.key.client
}

// pending holds the exchanges of requests with a body, whose header is complete and whose
// handler was not called yet. Each gets out by the handler, or by the handler of errors; before a
// 100 Continue, after which fasthttp may call neither, it moves to its conn.
type pending struct {
	mu   sync.Mutex
	open map[*fasthttp.RequestHeader]*exchange
}

func (p *pending) put(h *fasthttp.RequestHeader, x *exchange) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open[h] = x
}

// take gives the exchange of a header and forgets it; nil if there is none.
func (p *pending) take(h *fasthttp.RequestHeader) *exchange {
	p.mu.Lock()
	defer p.mu.Unlock()
	x := p.open[h]
	delete(p.open, h)
	return x
}

package api

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"time"

	"github.com/valyala/fasthttp"

	"trafficd/schemas/contract"
)

// headerReceived does all that comes before the body (contract 1.1), and leaves the
// result for handle. Where there is no body, handle may as well do it itself.
func (s *Server) headerReceived(h *fasthttp.RequestHeader) fasthttp.RequestConfig {
	if announcesBody(h) || len(h.PeekCanonical(headerExpect)) > 0 {
		x := s.judge(h, time.Now())
		continues(h, x)
		if x.apiErr != nil {
			x.end()
			h.SetContentLength(0) // nothing of the body is awaited
		}
		s.pending.put(h, x)
	}
	// One byte of a body with a Content-Length is read before the handler runs: with
	// the default it would be 8 KiB, and the slow client's deadlines would be wrong.
	return fasthttp.RequestConfig{MaxRequestBodySize: 1}
}

func announcesBody(h *fasthttp.RequestHeader) bool {
	return h.ContentLength() > 0 || h.ContentLength() == -1 // -1: chunked
}

// judge begins the exchange of a request whose header is complete.
func (s *Server) judge(h *fasthttp.RequestHeader, now time.Time) *exchange {
	said := saidIn(h)
	x := newExchange(&said, now)
	x.body, x.close = announcesBody(h), said.close
	x.apiErr = s.check(x, h, &said)
	return x
}

// check is the order of the table in contract 1.1.
func (s *Server) check(x *exchange, h *fasthttp.RequestHeader, said *said) (apiErr *contract.APIError) {
	defer func() {
		if p := recover(); p != nil {
			apiErr = s.panicked(p, x.trace.String())
		}
	}()
	if r := framing(h); r != nil {
		x.body = true // wherever it may end
		return r
	}
	if x.route = s.routes.find(h.RequestURI()); x.route == nil {
		return contract.NewError(contract.NotFound, fmt.Sprintf("there is nothing at %q", contract.Echo(pathOf(h.RequestURI()))))
	}
	if x.preflight = s.origins.preflight(h); x.preflight {
		return nil
	}
	if !x.route.takes(h.Method()) {
		return contract.NewError(contract.MethodNotAllowed, fmt.Sprintf("this path takes %s, not %q", x.route.allow, contract.Echo(h.Method())))
	}
	if !x.route.open(h.Method()) {
		if r := s.admit(x, h, said); r != nil {
			return r
		}
	}
	if s.draining.Load() {
		return contract.Unavailable("the service is stopping: send the request again, to another replica or in a moment", time.Second)
	}
	x.release, apiErr = x.route.Endpoint.Admit(x.client(), h)
	return apiErr
}

// admit finds the key and checks its right and its rates.
func (s *Server) admit(x *exchange, h *fasthttp.RequestHeader, said *said) *contract.APIError {
	presented, apiErr := credential(x.route, h, said)
	if apiErr != nil {
		return apiErr
	}
	if x.key = s.keys.find(presented); x.key == nil {
		return unauthenticated("the key is unknown: check that it is complete and was not withdrawn")
	}
	if !x.key.client.May(x.route.Right) {
		return contract.NewError(contract.Forbidden, "the key does not have the right that this path needs")
	}
	if wait, what := x.key.admit(); wait > 0 {
		return &contract.APIError{Code: contract.RateLimited, Description: "the key has used up its " + what + " per second", RetryAfter: wait}
	}
	return nil
}

// credential gives the key that the request presents.
func credential(r *route, h *fasthttp.RequestHeader, said *said) ([]byte, *contract.APIError) {
	if said.authorizations == 0 && r.QueryKey {
		if _, query, ok := bytes.Cut(h.RequestURI(), []byte{'?'}); ok {
			var args fasthttp.Args
			args.ParseBytes(query)
			if key := args.Peek("apiKey"); len(key) > 0 {
				return key, nil
			}
		}
	}
	if said.authorizations != 1 {
		return nil, unauthenticated("the request needs one header Authorization: apiKey <API_KEY>")
	}
	scheme, rest, _ := bytes.Cut(said.authorization, []byte{' '})
	rest = bytes.TrimSpace(rest)
	switch {
	case bytes.EqualFold(scheme, []byte("apiKey")) && len(rest) > 0:
		return rest, nil
	case r.Basic && bytes.EqualFold(scheme, []byte("Basic")):
		if text, err := base64.StdEncoding.AppendDecode(nil, rest); err == nil {
			if _, password, ok := bytes.Cut(text, []byte{':'}); ok {
				return password, nil
			}
		}
	}
	return nil, unauthenticated("the header Authorization has to be: apiKey <API_KEY>")
}

func unauthenticated(description string) *contract.APIError {
	return &contract.APIError{Code: contract.Unauthenticated, Description: description, Parameter: fasthttp.HeaderAuthorization}
}

// continues settles an Expect: 100-continue: only a request that goes on gets
// its 100, and HTTP/1.0 knows none. fasthttp compares the word byte by byte.
func continues(h *fasthttp.RequestHeader, x *exchange) {
	expect := h.PeekCanonical(headerExpect)
	if len(expect) == 0 {
		return
	}
	h.Del(fasthttp.HeaderExpect)
	if x.apiErr == nil && x.body && h.IsHTTP11() && bytes.EqualFold(expect, []byte("100-continue")) {
		h.Set(fasthttp.HeaderExpect, "100-continue")
	}
}

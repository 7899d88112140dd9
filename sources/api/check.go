package api

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/valyala/fasthttp"
	oteltrace "go.opentelemetry.io/otel/trace"

	"trafficd/schemas/contract"
)

// requestHeaders holds the headers that this package needs. They are collected in one pass, because
// each Peek of fasthttp canonicalises the name and scans all headers.
type requestHeaders struct {
	authorization  []byte // the last Authorization header
	authorizations int    // number of Authorization headers
	traceparent    []byte
	page           bool // a web page sent the request: it has the header Origin
	close          bool // the Connection header contains close
	malformed      bool // the name of a header contains a space, which fasthttp allows
}

func readHeaders(h *fasthttp.RequestHeader) (r requestHeaders) {
	for name, value := range h.All() {
		r.malformed = r.malformed || bytes.IndexByte(name, ' ') >= 0
		switch string(name) {
		case fasthttp.HeaderAuthorization:
			r.authorization, r.authorizations = value, r.authorizations+1
		case "Traceparent":
			r.traceparent = value
		case fasthttp.HeaderOrigin:
			r.page = true
		case fasthttp.HeaderConnection: // fasthttp only recognises a single option in lower case
			for option := range bytes.SplitSeq(value, []byte{','}) {
				r.close = r.close || isWord(bytes.TrimSpace(option), "close")
			}
		}
	}
	return r
}

// headerReceived checks the header of a request that has a body, before the body is read (contract
// 1.1), and keeps the result for handle, which itself checks requests without a body.
func (s *Server) headerReceived(h *fasthttp.RequestHeader) fasthttp.RequestConfig {
	expect := h.Peek(fasthttp.HeaderExpect)
	if announcesBody(h) || len(expect) > 0 {
		x := s.begin(h, time.Now())
		x.skip = x.apiErr != nil || x.preflight || h.IsGet() || h.IsHead() // no endpoint reads the body of a GET
		if len(expect) > 0 {
			// fasthttp sends a 100 Continue even to HTTP/1.0 clients, and its comparison of the
			// value is case-sensitive.
			continues := !x.skip && x.body && h.IsHTTP11() && bytes.EqualFold(expect, []byte("100-continue"))
			h.Del(fasthttp.HeaderExpect)
			if continues {
				h.Set(fasthttp.HeaderExpect, "100-continue")
			}
		}
		if x.skip {
			h.SetContentLength(0) // do not wait for the body
		}
		s.pending.put(h, x)
	}
	// fasthttp reads this many bytes of a body with a Content-Length before it calls the handler.
	// With the default of 8 KiB, the deadlines of package upload would not apply to a slow client.
	return fasthttp.RequestConfig{MaxRequestBodySize: 1}
}

// isWord reports whether text is word, ignoring ASCII case. It compares the lengths because
// bytes.EqualFold considers the Kelvin sign equal to k.
func isWord(text []byte, word string) bool {
	return len(text) == len(word) && bytes.EqualFold(text, []byte(word))
}

func announcesBody(h *fasthttp.RequestHeader) bool {
	return h.ContentLength() > 0 || h.ContentLength() == -1 // -1: chunked
}

// begin returns a new exchange for a request, with the result of checking the request's header.
func (s *Server) begin(h *fasthttp.RequestHeader, now time.Time) *exchange {
	r := readHeaders(h)
	x := newExchange(&r, now)
	if s.Tracer != nil { // the request gets the trace ID of its span, a child of the client's span
		_, x.span = s.Tracer.Start(parentOf(r.traceparent), "HTTP",
			oteltrace.WithSpanKind(oteltrace.SpanKindServer), oteltrace.WithTimestamp(now))
		id := x.span.SpanContext().TraceID()
		hex.Encode(x.trace[:], id[:])
	}
	x.body, x.close = announcesBody(h), r.close
	x.apiErr = s.check(x, h, &r)
	return x
}

// check checks the header of a request, in the order of the table in contract 1.1.
func (s *Server) check(x *exchange, h *fasthttp.RequestHeader, r *requestHeaders) (apiErr *contract.APIError) {
	defer func() {
		if p := recover(); p != nil {
			apiErr = s.panicked(p, x.trace.String())
		}
	}()
	switch protocol := h.Protocol(); {
	case !bytes.Equal(protocol, []byte("HTTP/1.1")) && !bytes.Equal(protocol, []byte("HTTP/1.0")):
		apiErr = errVersion
	case r.malformed:
		apiErr = contract.NewError(contract.InvalidParameter, "the name of a header contains a space")
	case bytes.IndexByte(h.RequestURI(), '#') >= 0: // a proxy could end the path there
		apiErr = contract.NewError(contract.InvalidParameter, "the target of the request contains a #: write it as %23")
	default:
		apiErr = checkFraming(h)
	}
	if apiErr != nil {
		x.body = true // the end of the request is unknown
		return apiErr
	}
	if x.route = s.routes.find(h.RequestURI()); x.route == nil {
		return contract.NewError(contract.NotFound, fmt.Sprintf("no such path: %q; %s describes the paths",
			contract.Echo(pathOf(h.RequestURI())), s.cfg.BasePath+contract.DocsPath))
	}
	if x.preflight = len(s.origins) > 0 && s.origins.preflight(h); x.preflight {
		return nil
	}
	if !x.route.accepts(h.Method()) {
		return contract.NewError(contract.MethodNotAllowed, fmt.Sprintf("this path accepts %s, not %q", x.route.allow, contract.Echo(h.Method())))
	}
	if !x.route.open(h.Method()) {
		presented, apiErr := credential(x.route, h, r)
		if apiErr != nil && r.authorizations == 0 && s.keys.mtls && !queryKey(x.route, h) {
			if r.page { // browsers send the certificate with requests of any page, which could act for the client
				return unauthenticated("web pages need the header Authorization: apiKey <API_KEY>; a client certificate is not enough")
			}
			x.anonymous = true
			return nil // identify goes on, when the connection is known
		}
		if apiErr != nil {
			return apiErr
		}
		if x.key = s.keys.find(presented); x.key == nil {
			return unauthenticated("unknown key: check that it is complete, has not expired and was not withdrawn")
		}
	}
	return s.admit(x, h)
}

// admit checks what depends on the key, and calls the endpoint's Admit.
func (s *Server) admit(x *exchange, h *fasthttp.RequestHeader) *contract.APIError {
	if x.key != nil {
		if !x.key.client.May(x.route.Right) {
			return contract.NewError(contract.Forbidden,
				"the key does not have the right "+rightName(x.route.Right)+", which this path requires; the operator can add it to the keys file")
		}
		if wait, limit := x.key.admit(); wait > 0 {
			return &contract.APIError{Code: contract.RateLimited, Description: "rate limit exceeded: this key may send " + limit, RetryAfter: wait}
		}
	}
	if s.rejecting.Load() {
		return contract.Unavailable("the service is stopping: send the request again, to another replica or in a moment", time.Second)
	}
	return x.route.Endpoint.Admit(x.client(), h)
}

var errVersion = contract.NewError(contract.InvalidParameter, "unsupported version of HTTP: send HTTP/1.1")

// checkFraming rejects requests with ambiguous framing, which can smuggle requests past a proxy.
// fasthttp rejects most of them, but accepts a Content-Length together with chunks, and the
// obsolete "Transfer-Encoding: identity" (RFC 9112, 6.1 and 6.3). The parsed header shows neither.
func checkFraming(h *fasthttp.RequestHeader) *contract.APIError {
	raw := h.RawHeaders()
	te, coded := rawHeader(raw, fasthttp.HeaderTransferEncoding)
	if !coded {
		return nil
	}
	if !bytes.EqualFold(te, []byte("chunked")) {
		return contract.NewParameterError(contract.InvalidParameter, fasthttp.HeaderTransferEncoding,
			"unsupported transfer coding: only chunked is supported")
	}
	if _, both := rawHeader(raw, fasthttp.HeaderContentLength); both {
		return contract.NewParameterError(contract.InvalidParameter, fasthttp.HeaderContentLength,
			"a request has either a Content-Length or a Transfer-Encoding, not both")
	}
	return nil
}

// rawHeader returns the first value of a header in an unparsed header block. Comparing the first
// letter rules out most lines.
func rawHeader(raw []byte, name string) (value []byte, ok bool) {
	for len(raw) > 0 {
		var line []byte
		line, raw, _ = bytes.Cut(raw, []byte{'\n'})
		if len(line) > 0 && line[0] > ' ' && line[0]|0x20 != name[0]|0x20 {
			continue
		}
		key, value, _ := bytes.Cut(line, []byte{':'})
		if bytes.EqualFold(bytes.TrimSpace(key), []byte(name)) {
			return bytes.TrimSpace(value), true
		}
	}
	return nil, false
}

func credential(route *route, h *fasthttp.RequestHeader, r *requestHeaders) ([]byte, *contract.APIError) {
	if r.authorizations == 0 && route.QueryKey {
		if _, query, ok := bytes.Cut(h.RequestURI(), []byte{'?'}); ok {
			var args fasthttp.Args
			args.ParseBytes(query)
			if keys := args.PeekMulti("apiKey"); len(keys) == 1 && len(keys[0]) > 0 {
				return keys[0], nil
			}
		}
	}
	if r.authorizations != 1 {
		return nil, unauthenticated("the request needs one header Authorization: apiKey <API_KEY>")
	}
	scheme, rest, _ := bytes.Cut(r.authorization, []byte{' '})
	rest = bytes.TrimSpace(rest)
	switch {
	case isWord(scheme, "apiKey") && len(rest) > 0:
		return rest, nil
	case route.Basic && isWord(scheme, "Basic"):
		if text, err := base64.StdEncoding.AppendDecode(nil, rest); err == nil {
			if _, password, ok := bytes.Cut(text, []byte{':'}); ok {
				return password, nil
			}
		}
	}
	return nil, unauthenticated("the header Authorization must be: apiKey <API_KEY>")
}

// queryKey reports whether the query has an apiKey that counts, even if it is not a valid one.
func queryKey(route *route, h *fasthttp.RequestHeader) bool {
	if !route.QueryKey {
		return false
	}
	_, query, _ := bytes.Cut(h.RequestURI(), []byte{'?'})
	var args fasthttp.Args
	args.ParseBytes(query)
	return args.Has("apiKey")
}

func unauthenticated(description string) *contract.APIError {
	return contract.NewParameterError(contract.Unauthenticated, fasthttp.HeaderAuthorization, description)
}

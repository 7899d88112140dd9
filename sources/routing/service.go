package routing

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"net/netip"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"github.com/valyala/fasthttp"

	"trafficd/pipeline/lib/admission"
	"trafficd/pipeline/lib/gunzip"
	"trafficd/pipeline/lib/metrics"
	"trafficd/pipeline/lib/turns"
	"trafficd/schemas/contract"
	"trafficd/schemas/geo"
	"trafficd/schemas/xroute"
	"trafficd/sources/internal/upload"
)

// Path is the path of the service below the base path (contract 3).
const Path = contract.RoutingPath

// Service handles requests to Path. It is safe for concurrent use.
type Service struct {
	cfg      Config
	scheme   string
	proxies  []netip.Prefix // trusted proxies
	log      zerolog.Logger
	receiver upload.Receiver
	memory   *admission.Quotas // for request bodies and responses
	watches  *admission.Quotas // one slot for each request that watches a job
	cpu      *turns.Limiter    // bounds the number of requests processed concurrently
	limits   geo.Limits
	jobs     *jobs
	operate  func(*exchange) (xroute.Response, error) // exchange.operate; tests replace it
}

// New returns a service and starts the workers for its jobs. scheme is the default scheme of the
// address in the WSDL: http or https.
func New(cfg Config, scheme string, log zerolog.Logger) *Service {
	trusted, _ := proxies(cfg.TrustedProxies) // checked by Validate
	return &Service{
		cfg: cfg, scheme: scheme, proxies: trusted, log: log,
		limits: geo.Limits{Points: cfg.MaxPoints, Depth: cfg.MaxDepth, DropMeasures: cfg.DropMeasures},
		receiver: upload.Receiver{
			Limits: cfg.Limits, MaxBytes: cfg.MaxBodyBytes,
			TooLarge: tooLarge(cfg.MaxBodyBytes), Truncated: contract.InvalidParameter,
			Slots: admission.New(cfg.AdmissionRequests, slots),
			Bytes: bodyBytes, Seconds: receiveSeconds, Aborted: aborted,
		},
		memory: admission.New(cfg.AdmissionBytes, memory), watches: admission.New(int64(cfg.MaxWatches), watches),
		cpu: turns.New(cfg.Concurrency, cfg.Concurrency, math.MaxInt), jobs: newJobs(cfg.Jobs, log), operate: (*exchange).operate,
	}
}

// Drain makes all current watchJob requests return immediately and later ones after minInterval, so
// that they do not delay the shutdown of the HTTP server.
func (s *Service) Drain() { s.jobs.drain() }

// Stop cancels the jobs and waits for them. The HTTP server must already have stopped.
func (s *Service) Stop() { s.jobs.close() }

// Admit performs the checks that need only the header.
func (s *Service) Admit(_ *contract.Client, h *fasthttp.RequestHeader) *contract.APIError {
	if !h.IsPost() {
		return nil
	}
	apiErr := checkHeader(h, s.cfg.MaxBodyBytes)
	if apiErr != nil {
		countError(apiErr)
	}
	return apiErr
}

// Handle responds with a result, a SOAP fault or the WSDL. As on other paths, it returns an error
// if it cannot receive the request or a quota is exceeded. items is the number of geometries.
func (s *Service) Handle(c *contract.Client, ctx *fasthttp.RequestCtx) (items int, err error) {
	if !ctx.IsPost() {
		return 0, s.describe(ctx)
	}
	body := &body{memory: s.memory, client: c.Owner, limit: s.cfg.MaxBodyBytes}
	defer body.free()
	if err := s.receiver.Receive(ctx, c.Owner, body); err != nil {
		countError(err)
		return 0, err
	}
	defer s.receiver.Slots.Release(c.Owner, 1)
	x := &exchange{
		service: s, client: c, start: time.Now(),
		trace: string(ctx.Response.Header.Peek("Trace-Id")),
	}
	defer func() { s.memory.Release(c.Owner, int64(x.size)) }() // send has charged the response itself
	out, err := x.process(&ctx.Request.Header, body)
	if _, ok := errors.AsType[*contract.APIError](err); ok {
		countError(err)
		return 0, err
	}
	outcome := outcomeOK
	if err != nil {
		f, known := failureOf(err)
		if !known {
			s.log.Error().Err(err).Str("trace_id", x.trace).Str("operation", x.operation()).
				Msg("cannot process a routing request: responded with a fault")
		}
		if invalid, ok := errors.AsType[*xroute.Error](err); ok && invalid.Kind == xroute.KindSyntax {
			ctx.SetConnectionClose() // the cause may be a Content-Length that is too small
		}
		outcome = f.outcome()
		if out, err = xroute.AppendMessage(nil, f.fault(x.trace, s.cfg.VendorPrefix)); err != nil {
			return 0, err
		}
	}
	s.send(ctx, c.Owner, out, outcome != outcomeOK)
	operation := x.operation()
	requests.WithLabelValues(operation, outcome).Inc()
	metrics.Since(requestSeconds.WithLabelValues(operation), x.start)
	e := s.log.Debug().Str("trace_id", x.trace).Str("client", c.Name).
		Str("operation", operation).Str("outcome", outcome).Int("geometries", x.items)
	if x.request != nil && e.Enabled() {
		if caller := xroute.Caller(x.request); caller != nil {
			for i, text := range []*string{caller.Log1, caller.Log2, caller.Log3} {
				if text != nil {
					e = e.Str(fmt.Sprintf("log%d", i+1), contract.Echo(*text))
				}
			}
		}
	}
	e.Msg("routing")
	return x.items, nil
}

// exchange is a request whose body is complete.
type exchange struct {
	service *Service
	client  *contract.Client
	trace   string
	start   time.Time

	request xroute.Request // nil until it is read
	items   int            // number of geometries in the request
	size    int            // bytes of memory reserved for the response; 0 for small responses
}

// process returns the response. It returns an error for a panic; the caller turns all errors but a
// *contract.APIError into faults. process waits for its turn, which also bounds the memory used by
// decompressed bodies. For watchJob, the turn ends before the wait.
func (x *exchange) process(h *fasthttp.RequestHeader, body *body) (out []byte, err error) {
	x.service.cpu.Take(x.client.Owner) // its queue is never full, because receiver.Slots bounds the requests
	release := sync.OnceFunc(func() { x.service.cpu.Release(x.client.Owner) })
	defer func() {
		release()
		if p := recover(); p != nil {
			panics.Inc()
			out, err = nil, fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	if x.request, err = x.service.read(h, body); err != nil {
		return nil, err
	}
	if _, waits := x.request.(*xroute.WatchJob); waits {
		release()
	}
	response, err := x.service.operate(x)
	if err != nil {
		return nil, err
	}
	if out, err = xroute.AppendMessage(make([]byte, 0, x.size), response); err != nil {
		return nil, errors.New("cannot encode the response: " + err.Error()) // not wrapped, because the client is not to blame
	}
	return out, nil
}

// reserve charges the memory for a response to the client's quota before the response is created,
// because a small request can cause a large response, which the client may never read. The error is
// a *contract.APIError.
func (x *exchange) reserve(bytes int) error {
	if apiErr := x.service.memory.Acquire(x.client.Owner, int64(bytes)); apiErr != nil {
		return apiErr
	}
	x.size += bytes
	return nil
}

// envelopeDepth is the depth allowed for elements outside the outermost collection and inside the
// innermost one.
const envelopeDepth = 32

// read parses a body and frees it. If the gzip stream is invalid, the error is a
// *contract.APIError.
func (s *Service) read(h *fasthttp.RequestHeader, body *body) (xroute.Request, error) {
	defer body.free()
	if f := checkContent(h); f != nil {
		return nil, f
	}
	limits := xroute.DefaultLimits()
	limits.Bytes, limits.VendorPrefix = s.cfg.MaxBodyBytes, s.cfg.VendorPrefix
	limits.Depth = 2*s.cfg.MaxDepth + envelopeDepth // a collection is two elements: itself and its list of members
	var from io.Reader = bytes.NewReader(body.bytes)
	switch times, _ := codings(h); {
	case times > 0:
		unpacker := unpackers.Get().(*gunzip.Reader)
		unpacker.Reset(from)
		defer func() {
			unpacker.Reset(nil) // so that the pool does not retain the body
			unpackers.Put(unpacker)
		}()
		from = unpacker
	case bytes.HasPrefix(body.bytes, []byte("\x1f\x8b")):
		const reason = "the body is compressed, but no header says so: send Content-Encoding: gzip"
		return nil, &failure{class: illegal, context: []string{fasthttp.HeaderContentEncoding}, message: reason}
	}
	request, err := xroute.ReadRequest(from, limits)
	if _, invalid := errors.AsType[*xroute.Error](err); err != nil && !invalid {
		return nil, contract.NewParameterError(contract.InvalidGzip, fasthttp.HeaderContentEncoding, fmt.Sprintf("invalid gzip: %v", err))
	}
	return request, err
}

var unpackers = sync.Pool{New: func() any { return new(gunzip.Reader) }}

// describe responds with the WSDL if the query contains wsdl; otherwise, it returns an error.
func (s *Service) describe(ctx *fasthttp.RequestCtx) error {
	for key := range ctx.QueryArgs().All() {
		if strings.EqualFold(string(key), "wsdl") { // toolkits send ?wsdl and ?WSDL
			ctx.SetContentType("text/xml; charset=utf-8")
			if s.cfg.PublicURL == "" { // the address is from this request: a cache would give it to all clients, with their keys
				ctx.Response.Header.Set(fasthttp.HeaderCacheControl, "no-store")
			}
			ctx.SetBody(xroute.WSDL(s.address(ctx))) // which imports the schemas from the same directory
			return nil
		}
	}
	return contract.NewError(contract.NotFound, "this is a SOAP service: its description is at "+Path+"?WSDL; send requests by POST")
}

// address returns the URL of the service, from the settings, a trusted proxy, or the request.
func (s *Service) address(ctx *fasthttp.RequestCtx) string {
	if s.cfg.PublicURL != "" {
		return s.cfg.PublicURL + Path
	}
	scheme, host := s.scheme, string(ctx.Host())
	remote, _ := netip.AddrFromSlice(ctx.RemoteIP())
	if slices.ContainsFunc(s.proxies, func(p netip.Prefix) bool { return p.Contains(remote.Unmap()) }) {
		if proto := strings.ToLower(forwarded(ctx, fasthttp.HeaderXForwardedProto)); proto == "http" || proto == "https" {
			scheme = proto
		}
		if name := forwarded(ctx, fasthttp.HeaderXForwardedHost); !strings.Contains(name, "/") && isBaseURL("http://"+name) {
			host = name
		}
	}
	if host == "" {
		host = ctx.LocalAddr().String()
	}
	return fmt.Sprintf("%s://%s%s", scheme, host, ctx.Path())
}

// forwarded returns the first value in a header, which describes the client's own request.
func forwarded(ctx *fasthttp.RequestCtx, header string) string {
	value, _, _ := strings.Cut(string(ctx.Request.Header.Peek(header)), ",")
	return strings.TrimSpace(value)
}

package routing

import (
	"bytes"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/rs/zerolog"
	"github.com/valyala/fasthttp"

	"trafficd/schemas/contract"
	"trafficd/schemas/geo"
	"trafficd/schemas/xroute"
)

// Path is where the service stands below the base path (contract 3).
const Path = "/xroute/ws/XRoute"

// Service answers the requests of Path. Its Before and Serve are what the server
// for clients calls; all methods may be used by many goroutines at once.
type Service struct {
	cfg     Config
	scheme  string
	log     zerolog.Logger
	places  *shares       // one for each request under way
	memory  *shares       // of bodies and answers
	watches *shares       // one for each request that watches a job
	cpu     chan struct{} // a token for each request that is worked on
	jobs    *jobs
	operate func(*exchange) (xroute.Response, error) // exchange.operate, but in tests
}

// New makes the service and starts the workers of its jobs. scheme, http or https, is how
// clients reach it; it stands in the WSDL.
func New(cfg Config, scheme string, log zerolog.Logger) *Service {
	return &Service{
		cfg: cfg, scheme: scheme, log: log,
		places: newShares(cfg.AdmissionRequests, places), memory: newShares(cfg.AdmissionBytes, memory), watches: newShares(int64(cfg.MaxWatches), watches),
		cpu: make(chan struct{}, cfg.Concurrency), jobs: newJobs(cfg.Jobs, log), operate: (*exchange).operate,
	}
}

// Drain ends the waiting of watchJob, now and from now on: a stop of the server for
// clients waits for the requests under way.
func (s *Service) Drain() { s.jobs.drain() }

// Stop ends the jobs. It is for after the server for clients has stopped.
func (s *Service) Stop() { s.jobs.close() }

// Admit does what comes before the body. Until release is called the request has
// its place.
func (s *Service) Admit(c *contract.Client, h *fasthttp.RequestHeader) (release func(), apiErr *contract.APIError) {
	if !h.IsPost() {
		return nil, nil
	}
	if apiErr = checkHeader(h, s.cfg.MaxBodyBytes); apiErr == nil {
		apiErr = s.memory.check(c.Name, firstBytes)
	}
	if apiErr == nil {
		apiErr = s.places.take(c.Name, 1)
	}
	if apiErr != nil {
		return nil, refused(apiErr)
	}
	return func() { s.places.give(c.Name, 1) }, nil
}

// Handle answers a request with a response or a fault; what keeps it from being
// read at all is refused as everywhere. items are the geometries in it.
func (s *Service) Handle(c *contract.Client, ctx *fasthttp.RequestCtx) (items int, err error) {
	if !ctx.IsPost() {
		return 0, s.describe(ctx)
	}
	body := &body{memory: s.memory, client: c.Name}
	defer body.free()
	if err := s.receive(ctx, body); err != nil {
		return 0, refused(err)
	}
	x := &exchange{
		service: s, client: c, start: time.Now(),
		trace: string(ctx.Response.Header.Peek("Trace-Id")),
	}
	defer x.free()
	out, err := x.answer(&ctx.Request.Header, body)
	if err != nil {
		return 0, refused(err)
	}
	s.send(ctx, c.Name, out, x.failure != nil)
	x.account()
	return x.items, nil
}

// exchange is a request whose body is complete, and its outcome.
type exchange struct {
	service *Service
	client  *contract.Client
	trace   string
	start   time.Time

	request xroute.Request // nil until it is read
	items   int            // geometries in it
	size    int            // about how many bytes the response takes, which are counted; 0: few
	failure *failure       // nil: there is a response
}

// answer gives the envelope of the answer. The error is a *contract.APIError.
func (x *exchange) answer(h *fasthttp.RequestHeader, body *body) (out []byte, err error) {
	err = x.guard(func() (err error) {
		out, err = x.process(h, body)
		return err
	})
	var apiErr *contract.APIError
	if errors.As(err, &apiErr) {
		return nil, apiErr
	}
	if err != nil {
		return x.fault(err)
	}
	return out, nil
}

// process makes the response. All but the waiting of a watch is done with a token, so
// that what the bodies are unpacked to is bounded too.
func (x *exchange) process(h *fasthttp.RequestHeader, body *body) (out []byte, err error) {
	x.withToken(func() {
		if x.request, err = x.service.read(h, body); err == nil && !x.waits() {
			out, err = x.respond()
		}
	})
	if err == nil && x.waits() {
		out, err = x.respond()
	}
	return out, err
}

func (x *exchange) withToken(f func()) {
	x.service.cpu <- struct{}{}
	defer func() { <-x.service.cpu }()
	f()
}

func (x *exchange) waits() bool {
	_, watch := x.request.(*xroute.WatchJob)
	return watch
}

func (x *exchange) respond() ([]byte, error) {
	response, err := x.service.operate(x)
	if err != nil {
		return nil, err
	}
	out, err := xroute.AppendMessage(make([]byte, 0, x.size), response)
	if err != nil {
		return nil, errors.New("cannot write the answer: " + err.Error()) // not wrapped: it is no error of the request
	}
	return out, nil
}

// reserve counts the memory of an answer before it is made: a small body can have a large one,
// and a client need not read it. The error is a *contract.APIError.
func (x *exchange) reserve(bytes int) error {
	if apiErr := x.service.memory.take(x.client.Name, int64(bytes)); apiErr != nil {
		return apiErr
	}
	x.size += bytes
	return nil
}

// free ends what was reserved: from now on the answer itself counts.
func (x *exchange) free() { x.service.memory.give(x.client.Name, int64(x.size)) }

// guard turns a panic into an error: it costs one request only, and that gets its
// fault like any other.
func (x *exchange) guard(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			panics.Inc()
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return f()
}

// fault gives the envelope of a fault, and logs what the client is not told.
func (x *exchange) fault(err error) ([]byte, error) {
	f, known := failureOf(err)
	if !known {
		x.service.log.Error().Err(err).Str("trace_id", x.trace).Str("operation", x.operation()).Msg("cannot answer a request of the routing service: it got a fault")
	}
	x.failure = f
	return xroute.AppendFault(nil, f.fault(x.trace))
}

// read gives the request in a body, which is not needed any more then. Errors of the
// gzip stream are refusals.
func (s *Service) read(h *fasthttp.RequestHeader, body *body) (xroute.Request, error) {
	defer body.free()
	if f := checkContent(h); f != nil {
		return nil, f
	}
	limits := xroute.DefaultLimits()
	limits.Bytes = s.cfg.MaxBodyBytes
	limits.Depth = 2*s.cfg.MaxDepth + envelopeDepth
	if !isGzipped(h) && bytes.HasPrefix(body.bytes, []byte("\x1f\x8b")) {
		return nil, &failure{class: illegal, context: []string{fasthttp.HeaderContentEncoding}, message: "the body is compressed, but no header says so: send Content-Encoding: gzip"}
	}
	if !isGzipped(h) {
		return xroute.ReadRequest(bytes.NewReader(body.bytes), limits)
	}
	z, err := newGunzip(body.bytes)
	if err != nil {
		return nil, err
	}
	defer z.free()
	return xroute.ReadRequest(z, limits)
}

// envelopeDepth is what stands around a collection, and inside the innermost one; each
// collection is an element, and its list of members another.
const envelopeDepth = 32

func (s *Service) limits() geo.Limits {
	return geo.Limits{Points: s.cfg.MaxPoints, Depth: s.cfg.MaxDepth}
}

// account counts a request that was answered, and logs it.
func (x *exchange) account() {
	outcome := "OK"
	if x.failure != nil {
		outcome = x.failure.outcome()
	}
	operation := x.operation()
	requests[operation][outcome].Inc()
	requestSeconds[operation].UpdateDuration(x.start)
	x.service.log.Debug().Str("trace_id", x.trace).Str("client", x.client.Name).
		Str("operation", operation).Str("outcome", outcome).Int("geometries", x.items).Msg("routing")
}

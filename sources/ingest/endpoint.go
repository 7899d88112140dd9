package ingest

import (
	"sync"
	"time"

	"github.com/rs/zerolog"
	"github.com/valyala/fasthttp"

	"trafficd/pipeline/batch"
	"trafficd/schemas/contract"
)

// Path is where the endpoint stands below the base path (contract 1).
const Path = "/dataprovider/ingestion/v1/detectors/data/ingest"

// Pipeline is what the endpoint needs of the stages behind it.
type Pipeline interface {
	// Ready tells why no batch of this product instance can be taken now: a 503
	// (stages full, disk low, journal failed, draining, no registry snapshot yet), or nil.
	Ready(productInstance string) *contract.APIError

	// Submit decodes, validates and journals one body. After nil s.Result is
	// durable. Otherwise it gives a *contract.APIError, and nothing of the batch was or will be
	// archived or forwarded; or batch.ErrNoAnswer where that is not known.
	Submit(s *batch.Submission) error

	// Hold reserves an idempotency key until Release: nil, or the 409 because it is
	// under way, or the 503 because the memory of keys is full.
	Hold(productInstance, idempotencyKey string) *contract.APIError
	Release(productInstance, idempotencyKey string)
}

// Endpoint answers the requests of Path. Its Before and Serve are what the server
// for clients calls; all methods may be used by many goroutines at once.
type Endpoint struct {
	cfg       Config
	pipeline  Pipeline
	log       zerolog.Logger
	admission *admission
	leave     func() // admission.leave, made a value once
}

// New makes the endpoint.
func New(cfg Config, pipeline Pipeline, log zerolog.Logger) *Endpoint {
	e := &Endpoint{cfg: cfg, pipeline: pipeline, log: log, admission: newAdmission(cfg)}
	e.leave = e.admission.leave
	return e
}

// Admit does what comes before the body (contract 1.1), in the order of the
// table. Until release is called the request has its place in the admission, and
// holds its idempotency key.
func (e *Endpoint) Admit(c *contract.Client, h *fasthttp.RequestHeader) (release func(), apiErr *contract.APIError) {
	if r := e.pipeline.Ready(c.ProductInstance); r != nil {
		return nil, counted(r)
	}
	if !e.admission.enter() {
		return nil, counted(contract.Unavailable("too many requests are under way: try again in a moment", time.Second))
	}
	if r := checkHeader(h, e.cfg.MaxCompressedBytes); r != nil {
		e.leave()
		return nil, counted(r)
	}
	key := idempotencyKey(h)
	if key == "" {
		return e.leave, nil
	}
	if r := e.pipeline.Hold(c.ProductInstance, key); r != nil {
		e.leave()
		return nil, counted(r)
	}
	return func() {
		e.pipeline.Release(c.ProductInstance, key)
		e.leave()
	}, nil
}

// Handle receives the body, submits it and answers 207. items are those of the
// batch, 0 where there is another answer.
func (e *Endpoint) Handle(c *contract.Client, ctx *fasthttp.RequestCtx) (items int, err error) {
	s := submissions.Get().(*batch.Submission)
	defer func() {
		s.Reset()
		submissions.Put(s)
	}()
	s.ProductInstance, s.IdempotencyKey = c.ProductInstance, idempotencyKey(&ctx.Request.Header)
	if err := e.submit(ctx, s); err != nil {
		return 0, counted(err)
	}
	e.account(c, ctx, &s.Result)
	items = s.Result.Items
	answer(ctx, &s.Result, e.admission)
	return items, nil
}

// submit receives the body and hands it over. The body's memory is given back
// before the answer may need some.
func (e *Endpoint) submit(ctx *fasthttp.RequestCtx, s *batch.Submission) error {
	body := newBlocks(e.admission)
	defer body.free()
	if err := e.receive(ctx, body); err != nil {
		return err
	}
	s.Body = body
	return e.pipeline.Submit(s)
}

var submissions = sync.Pool{New: func() any { return new(batch.Submission) }}

// account counts a batch that got its 207, and logs it.
func (e *Endpoint) account(c *contract.Client, ctx *fasthttp.RequestCtx, r *batch.Result) {
	batches[contract.OK].Inc()
	itemsAccepted.Add(r.Accepted)
	for i := range r.List {
		itemsRejected[r.List[i].Code].Inc()
	}
	e.log.Debug().Str("batch_id", r.ID.String()).Str("client", c.Name).
		Bytes("trace_id", ctx.Response.Header.Peek("Trace-Id")).
		Int("accepted", r.Accepted).Int("rejected", r.Rejected()).Bool("replay", r.Replay).Msg("batch")
}

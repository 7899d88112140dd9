package ingest

import (
	"sync"
	"sync/atomic"

	"github.com/rs/zerolog"
	"github.com/valyala/fasthttp"
	"go.opentelemetry.io/otel/attribute"

	"trafficd/pipeline/batch"
	"trafficd/pipeline/lib/admission"
	"trafficd/schemas/contract"
	"trafficd/sources/internal/span"
	"trafficd/sources/internal/upload"
)

// Path is the endpoint's path below the base path (contract 1).
const Path = "/dataprovider/ingestion/v1/detectors/data/ingest"

// Pipeline processes the bodies that the endpoint has received.
type Pipeline interface {
	// Ready returns nil if batches of the product instance can be accepted. Otherwise it returns a
	// 503 (disk low, journal failed, clock wrong, no registry snapshot yet) or a 403 (no
	// registry feed).
	Ready(productInstance string) *contract.APIError

	// Submit decodes, validates and journals one body. If it returns nil, s.Result is durable. A
	// *contract.APIError means that no item of the batch has been or will be delivered;
	// batch.ErrNoResponse means that this is unknown. s.Result.Items is the number of decoded
	// items, even if Submit returns an error.
	Submit(s *batch.Submission) error

	// Hold reserves an idempotency key until Release. It returns a 409 if a request with the key is
	// in progress, or a 503 if the idempotency store is full or the client has exhausted its quota.
	Hold(c *contract.Client, idempotencyKey string) *contract.APIError
	Release(c *contract.Client, idempotencyKey string)
}

// Endpoint handles requests to Path. It is safe for concurrent use.
type Endpoint struct {
	pipeline Pipeline
	log      zerolog.Logger
	memory   *admission.Quotas // for bodies and responses
	receiver upload.Receiver
	clients  atomic.Pointer[map[string]*clientMetrics] // keyed by name; nil before UseClients
	warned   sync.Map                                  // names of clients that have sent duplicates
}

// New returns an endpoint that submits bodies to pipeline.
func New(cfg Config, pipeline Pipeline, log zerolog.Logger) *Endpoint {
	return &Endpoint{
		pipeline: pipeline, log: log,
		memory: admission.New(cfg.AdmissionBytes, memory),
		receiver: upload.Receiver{
			Limits: cfg.Limits, MaxBytes: cfg.MaxCompressedBytes,
			TooLarge: tooLarge(cfg.MaxCompressedBytes), Truncated: contract.InvalidGzip,
			Slots: admission.New(cfg.AdmissionRequests, slots),
			Bytes: bodyBytes, Seconds: receiveSeconds, Aborted: aborted,
		},
	}
}

// Admit performs the checks that need only the header, in the order of the table in contract 1.1.
// It reserves the idempotency key until release is called; without a key, release is nil. The slot
// is acquired later, when the first byte of the body arrives.
func (e *Endpoint) Admit(c *contract.Client, h *fasthttp.RequestHeader) (release func(), apiErr *contract.APIError) {
	if apiErr = e.pipeline.Ready(c.ProductInstance); apiErr == nil {
		apiErr = checkHeader(h, e.receiver.MaxBytes)
	}
	key := idempotencyKey(h)
	if apiErr == nil && key != "" {
		apiErr = e.pipeline.Hold(c, key)
		release = func() { e.pipeline.Release(c, key) }
	}
	if apiErr != nil {
		countError(apiErr)
		return nil, apiErr
	}
	return release, nil
}

// Handle receives the body, submits it and responds with a 207. items is the number of decoded
// items, even if Handle returns an error.
func (e *Endpoint) Handle(c *contract.Client, ctx *fasthttp.RequestCtx) (items int, err error) {
	s := submissions.Get().(*batch.Submission)
	defer func() {
		s.Reset()
		submissions.Put(s)
	}()
	s.ProductInstance, s.Client, s.IdempotencyKey = c.ProductInstance, c.Owner, idempotencyKey(&ctx.Request.Header)
	request := span.Of(ctx)
	s.Trace = request.SpanContext()
	if err := e.submit(ctx, c.Owner, s); err != nil {
		countError(err)
		return s.Result.Items, err
	}
	r := &s.Result
	e.count(c.Name, r)
	if itemsDuplicate.Add(float64(r.Duplicates)); r.Duplicates > 0 {
		if _, warned := e.warned.LoadOrStore(c.Name, struct{}{}); !warned {
			e.log.Warn().Str("client", c.Name).Str("batch_id", r.ID.String()).Int("duplicates", r.Duplicates).Int("accepted", r.Accepted).
				Msg("items of a batch have the same detector, measure type and interval and replace each other in the archive; " +
					"encode lane or vehicle class in measureTypeCode or detectorCode (logged once per client)")
		}
	}
	e.log.Debug().Str("batch_id", r.ID.String()).Str("client", c.Name).
		Bytes("trace_id", ctx.Response.Header.Peek("Trace-Id")).
		Int("accepted", r.Accepted).Int("rejected", r.Rejected()).Bool("replay", r.Replay).Msg("processed a batch")
	if request.IsRecording() {
		request.SetAttributes(attribute.Stringer("trafficd.batch_id", r.ID), attribute.Int("trafficd.accepted", r.Accepted),
			attribute.Int("trafficd.rejected", r.Rejected()), attribute.Bool("trafficd.replay", r.Replay))
	}
	items = r.Items
	respond(ctx, r, e.memory, c.Owner)
	return items, nil
}

// submit receives the body and passes it to the pipeline. It releases the body's memory, which is
// then available for the response.
func (e *Endpoint) submit(ctx *fasthttp.RequestCtx, client string, s *batch.Submission) error {
	body := newBlocks(e.memory, client)
	defer func() { _ = body.Close() }()
	declared, _ := checkEncoding(&ctx.Request.Header)
	body.checkMagic = !declared
	if err := e.receiver.Receive(ctx, client, body); err != nil {
		return err
	}
	defer e.receiver.Slots.Release(client, 1)
	s.Body = body
	s.Peer, _ = ctx.Conn().(batch.Peer)
	return e.pipeline.Submit(s)
}

var submissions = sync.Pool{New: func() any { return new(batch.Submission) }}

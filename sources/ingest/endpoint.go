package ingest

import (
	"bytes"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"github.com/valyala/fasthttp"
	"go.opentelemetry.io/otel/attribute"

	"trafficd/pipeline/batch"
	"trafficd/pipeline/lib/admission"
	"trafficd/pipeline/lib/negotiate"
	"trafficd/pipeline/lib/receipts"
	"trafficd/schemas/contract"
	"trafficd/sources/internal/span"
	"trafficd/sources/internal/upload"
)

// Path is the endpoint's path below the base path (contract 1).
const Path = contract.IngestPath

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

	// Hold claims a client's Idempotency-Key until Release. It returns a 409 if another request has
	// it.
	Hold(client, key string) *contract.APIError
	Release(client, key string)
}

// Endpoint handles requests to Path. It is safe for concurrent use.
type Endpoint struct {
	Receipts *receipts.Waiting // gets the batches with a 207; may be nil; set before the first request

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
// The slot is acquired later, when the first byte of the body arrives.
func (e *Endpoint) Admit(c *contract.Client, h *fasthttp.RequestHeader) *contract.APIError {
	apiErr := e.pipeline.Ready(c.ProductInstance)
	if apiErr == nil {
		apiErr = checkHeader(h, e.receiver.MaxBytes)
	}
	if _, validateOnly := negotiate.Preference(h, preferValidateOnly); apiErr != nil && !validateOnly {
		countError(apiErr)
	}
	return apiErr
}

// Preferences of a dry run (contract 1.6).
const (
	preferValidateOnly = "validate-only"
	preferAllErrors    = "all-errors"
)

// Handle receives the body, submits it and responds with a 207, or with a 200 to a dry run. items
// is the number of decoded items, even if Handle returns an error.
func (e *Endpoint) Handle(c *contract.Client, ctx *fasthttp.RequestCtx) (items int, err error) {
	s := submissions.Get().(*batch.Submission)
	defer func() {
		s.Reset()
		submissions.Put(s)
	}()
	h := &ctx.Request.Header
	s.ProductInstance, s.Client, s.Trace = c.ProductInstance, c.Owner, span.Of(ctx).SpanContext()
	if _, s.ValidateOnly = negotiate.Preference(h, preferValidateOnly); s.ValidateOnly {
		_, s.AllErrors = negotiate.Preference(h, preferAllErrors)
	} else {
		s.IdempotencyKey = string(h.Peek(idempotencyHeader))
	}
	if err := e.submit(ctx, c.Owner, s); err != nil {
		if !s.ValidateOnly {
			countError(err)
		}
		return s.Result.Items, err
	}
	items = s.Result.Items
	if s.ValidateOnly {
		ctx.SetStatusCode(fasthttp.StatusOK)
		applied := preferValidateOnly
		if s.AllErrors {
			applied += ", " + preferAllErrors
		}
		ctx.Response.Header.Set("Preference-Applied", applied)
	} else {
		e.record(c, ctx, &s.Result)
		ctx.SetStatusCode(fasthttp.StatusMultiStatus)
		ctx.Response.Header.Set("Batch-Id", s.Result.ID.String())
	}
	respond(ctx, &s.Result, e.memory, c.Owner)
	return items, nil
}

// record counts and logs a batch that gets a 207.
func (e *Endpoint) record(c *contract.Client, ctx *fasthttp.RequestCtx, r *batch.Result) {
	e.count(c.Name, r)
	if !r.Replay || r.Accepted == 0 { // without rows, there is no other receipt
		e.Receipts.Accepted(receipts.Receipt{Batch: r.ID, Client: c.Owner, Accepted: uint32(r.Accepted), At: time.Now().UnixMilli()})
	}
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
	if request := span.Of(ctx); request.IsRecording() {
		request.SetAttributes(attribute.Stringer("trafficd.batch_id", r.ID), attribute.Int("trafficd.accepted", r.Accepted),
			attribute.Int("trafficd.rejected", r.Rejected()), attribute.Bool("trafficd.replay", r.Replay))
	}
}

// submit receives the body and passes it to the pipeline, while it holds the key. It releases the
// body's memory, which is then available for the response.
func (e *Endpoint) submit(ctx *fasthttp.RequestCtx, client string, s *batch.Submission) error {
	if s.IdempotencyKey != "" {
		if apiErr := e.pipeline.Hold(client, s.IdempotencyKey); apiErr != nil {
			return apiErr
		}
		defer e.pipeline.Release(client, s.IdempotencyKey)
	}
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

const (
	idempotencyHeader = "Idempotency-Key"
	maxKeyLen         = 128
	multipart         = "multipart/"
)

// checkHeader applies the rules of contract 1.1 that need only the header.
func checkHeader(h *fasthttp.RequestHeader, maxBody int64) *contract.APIError {
	if media := h.ContentType(); len(media) >= len(multipart) && bytes.EqualFold(media[:len(multipart)], []byte(multipart)) {
		return contract.NewParameterError(contract.UnsupportedContentType, fasthttp.HeaderContentType,
			"multipart bodies are not supported: send the gzip-compressed JSON as the body itself")
	}
	if _, apiErr := checkEncoding(h); apiErr != nil {
		return apiErr
	}
	if n := int64(h.ContentLength()); n > maxBody {
		return tooLarge(maxBody)
	}
	return checkIdempotencyKey(h)
}

// checkEncoding accepts a Content-Encoding of gzip, or none. declared reports whether the header
// declares gzip; if it does not, the body must begin with gzip's magic number.
func checkEncoding(h *fasthttp.RequestHeader) (declared bool, _ *contract.APIError) {
	times, other := negotiate.CountGzip(h.PeekAll(fasthttp.HeaderContentEncoding), "")
	if other != nil {
		return false, gzipRequired(fmt.Sprintf("unsupported Content-Encoding %q: compress the body with gzip", contract.Echo(other)))
	}
	if times > 1 {
		return false, gzipRequired(fmt.Sprintf("the Content-Encoding names gzip %d times: compress the body once", times))
	}
	return times == 1, nil
}

func gzipRequired(description string) *contract.APIError {
	return contract.NewParameterError(contract.GzipRequired, fasthttp.HeaderContentEncoding, description)
}

func tooLarge(maxBody int64) *contract.APIError {
	return contract.NewError(contract.BodyTooLarge,
		fmt.Sprintf("the compressed body is larger than %d bytes: send it as several batches", maxBody))
}

// checkIdempotencyKey accepts no key, or one key of 1–128 visible ASCII characters (contract 1.5).
func checkIdempotencyKey(h *fasthttp.RequestHeader) *contract.APIError {
	values := h.PeekAll(idempotencyHeader)
	valid := len(values) <= 1
	for _, key := range values {
		invisible := bytes.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' })
		valid = valid && len(key) >= 1 && len(key) <= maxKeyLen && !invisible
	}
	if valid {
		return nil
	}
	return contract.NewParameterError(contract.InvalidParameter, idempotencyHeader,
		fmt.Sprintf("the header Idempotency-Key must occur once, with 1 to %d visible ASCII characters", maxKeyLen))
}

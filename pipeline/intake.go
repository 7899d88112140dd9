package pipeline

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/google/uuid"
	"github.com/rs/zerolog"

	"trafficd/pipeline/batch"
	"trafficd/pipeline/decode"
	"trafficd/pipeline/journal"
	"trafficd/pipeline/lib/durable"
	"trafficd/pipeline/lib/gunzip"
	"trafficd/pipeline/lib/gunzip/inflate"
	"trafficd/pipeline/lib/metrics"
	"trafficd/pipeline/lib/settings"
	"trafficd/pipeline/lib/turns"
	"trafficd/pipeline/validate"
	"trafficd/schemas/contract"
)

// Config configures the stages between a complete body and the journal.
type Config struct {
	// maximum number of bodies decoded concurrently, at most half of them from one client; 0: two per
	// CPU
	Workers int `setting:"-"`
	// Maximum number of complete bodies that wait for a worker; further batches are rejected with 503.
	// One client may fill at most half of the queue.
	Queue        int   `setting:"-"`
	MaxBodyBytes int64 `setting:"max_body_bytes"` // maximum decompressed size of a body

	Now func() time.Time `setting:"-"` // the wall clock; nil for the system's, which simulations cannot set

	Decode      decode.Config     `setting:"decode"`      // limits of a body's contents
	Validate    validate.Config   `setting:"validate"`    // configurable rules for measurements
	Idempotency IdempotencyConfig `setting:"idempotency"` // store of the responses to requests with an Idempotency-Key
}

// DefaultConfig returns two workers per CPU, a queue of 512 bodies, and a limit of 64 MiB for a
// decompressed body (contract 1.1).
func DefaultConfig() Config {
	return Config{
		Queue: 512, MaxBodyBytes: 64 << 20,
		Decode: decode.DefaultConfig(), Validate: validate.DefaultConfig(), Idempotency: DefaultIdempotencyConfig(),
	}
}

// Check reports every setting that is out of bounds. Decode, Validate and Idempotency are checked
// separately.
func (c Config) Check() error {
	return settings.Within("max_body_bytes", c.MaxBodyBytes, 1<<10, 1<<40, "it bounds the CPU time of a decompression bomb, not memory")
}

// Registry holds the detectors of the product instances.
type Registry interface {
	// Snapshot returns the detectors of a product instance, or nil if they are not loaded yet.
	Snapshot(productInstance string) *batch.Detectors
	// HasFeed reports whether the registry loads detectors for a product instance.
	HasFeed(productInstance string) bool
}

// Intake decompresses, decodes and validates complete bodies and appends them to the journal, on
// the goroutines of the requests. A request gives back its worker before it waits for the disk, so
// that one fsync serves many requests.
type Intake struct {
	Tap Tap // samples the validated items

	cfg         Config
	journal     Journal
	registry    Registry
	idempotency *IdempotencyStore
	allowed     contract.Allowed // without a product instance
	clock       clock

	turns   *turns.Limiter // limits the workers in use
	idleMu  sync.Mutex
	idle    []*worker // the last one is used first: its memory is most likely still in the CPU's caches
	entries sync.Pool // of *durable.Entry

	gate   sync.RWMutex // guards closed; Submit holds a read lock until it returns
	closed bool
}

// worker decodes and validates one body at a time.
type worker struct {
	unpacker unpacker
	decoder  *decode.Decoder
	validate *validate.Validator
	items    batch.Items
	accepted batch.Batch
}

// NewIntake returns an Intake. If j is Ordered, the received_at of new frames is later than that of
// the journal's newest frame.
func NewIntake(cfg Config, j Journal, registry Registry, idempotency *IdempotencyStore, log zerolog.Logger) (*Intake, error) {
	if cfg.Workers == 0 {
		cfg.Workers = 2 * runtime.GOMAXPROCS(0)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	in := &Intake{
		cfg: cfg, journal: j, registry: registry, idempotency: idempotency, allowed: cfg.Validate.Allowed(),
		clock: clock{now: cfg.Now, began: time.Now(), log: log},
		turns: turns.New(cfg.Workers, max(1, cfg.Workers/2), cfg.Queue),
	}
	if j, ordered := j.(Ordered); ordered {
		_, newest, err := j.Last()
		if err != nil {
			return nil, err
		}
		in.clock.ordered, in.clock.durable = true, batch.FrameReceivedAt(newest)
		in.clock.stamped = in.clock.durable
	}
	in.clock.trusted = in.clock.read()
	_ = in.CheckClock() // logs the error
	in.entries.New = func() any { return new(durable.Entry) }
	in.registerMetrics()
	return in, nil
}

// Close makes Submit fail with 503, and waits for all calls in progress.
func (in *Intake) Close() {
	in.gate.Lock()
	defer in.gate.Unlock()
	in.closed = true
}

// Ready returns nil if a batch of the product instance can be accepted, otherwise a 503 or, if the
// product instance has no registry feed, a 403 (contract 1.1).
func (in *Intake) Ready(productInstance string) *contract.APIError {
	if in.registry.Snapshot(productInstance) == nil { // checked first: a 403 must not be hidden by a temporary 503
		return contract.NoRegistry(productInstance, in.registry.HasFeed(productInstance))
	}
	if err := in.journal.Ready(productInstance); err != nil {
		return journalError(err)
	}
	if in.CheckClock() != nil {
		return journalError(errClock)
	}
	return nil
}

// CheckClock returns an error if batches are rejected because of the clock: it has jumped ahead, or
// the newest frame in the journal is ahead of it.
func (in *Intake) CheckClock() error { return in.clock.Check() }

// Submit decodes, validates and stores a body. The caller holds its Idempotency-Key, if any. If it
// returns nil, every accepted item is durable, unless s.ValidateOnly is set, and s.Result is the
// content of the 207. If it returns a *contract.APIError, no item was or will be archived or
// forwarded. After batch.ErrNoResponse, the outcome is unknown.
func (in *Intake) Submit(s *batch.Submission) error {
	in.gate.RLock()
	defer in.gate.RUnlock()
	if in.closed {
		return contract.Unavailable("the daemon is shutting down; retry", time.Second)
	}
	e, sample, err := in.work(s)
	if e != nil {
		err = e.Wait()
	}
	if err == nil && len(sample) > 0 {
		in.Tap.send(sample)
	}
	if e == nil { // nothing to store, or the error of the body
		return err
	}
	in.clock.committed(e.Data, err)
	if s.IdempotencyKey != "" {
		in.idempotency.committed(e, err)
	}
	in.recycle(e)
	return diskError(err)
}

// work processes a body when it is the client's turn.
func (in *Intake) work(s *batch.Submission) (*durable.Entry, []tapped, error) {
	ok, waited := in.turns.Take(s.Client)
	if !ok {
		return nil, nil, queueFull()
	}
	defer in.turns.Release(s.Client)
	if waited && s.Peer != nil && s.Peer.Gone() {
		// The client would not learn that the batch was stored, and would send it again.
		return nil, nil, contract.Unavailable(
			"the client closed the connection while the batch was queued; no part of it was stored; retry", time.Second)
	}
	started := time.Now()
	w := in.takeWorker()
	e, sample, err := in.process(w, s)
	in.putWorker(w) // not deferred: a worker is not used again after a panic
	metrics.Since(decodeSeconds, started)
	return e, sample, err
}

// process decodes, validates and encodes a body, and queues its frame in the journal. The entry is
// nil if there is nothing to store. The sample is for the tap, once the entry is durable.
func (in *Intake) process(w *worker, s *batch.Submission) (*durable.Entry, []tapped, error) {
	known := in.registry.Snapshot(s.ProductInstance)
	if known == nil {
		return nil, nil, contract.NoRegistry(s.ProductInstance, in.registry.HasFeed(s.ProductInstance))
	}
	s.Result.Detectors = known
	b := &w.unpacker
	b.gz.Reset(s.Body)
	b.hash.Reset()
	b.left, b.hashed = b.max, s.IdempotencyKey != ""
	err := w.decoder.Decode(b, &w.items)
	s.Result.Items = w.items.Count
	if err != nil {
		if apiErr, ok := errors.AsType[*contract.APIError](err); ok { // from the decoder or from unpacker.Next
			return nil, nil, apiErr
		}
		return nil, nil, contract.NewError(contract.InvalidGzip,
			fmt.Sprintf("invalid gzip: %v; send the output of gzip whole and unchanged, with curl by --data-binary", err))
	}
	var hash uint64
	if s.IdempotencyKey != "" {
		hash = b.hash.Sum64()
	}
	replayed, err := in.idempotency.replay(s, hash)
	s.Result.Allowed = in.allowed
	s.Result.Allowed.ProductInstance = s.ProductInstance
	if replayed || err != nil {
		if want := batch.DerivedID(s.Client, s.IdempotencyKey, hash); err == nil && s.Result.ID != want {
			_ = promisedResponse.broken(in.clock.log, "the remembered response is about batch %s, not %s", s.Result.ID, want)
			return nil, nil, checkFailed()
		}
		return nil, nil, err
	}
	now := in.clock.now().UnixNano()
	r := &s.Result
	r.Items = w.items.Count
	if s.ValidateOnly {
		r.Accepted, r.Duplicates = w.validate.Validate(&w.items, known, now, s.AllErrors, &r.Rejections)
		return nil, nil, nil
	}
	r.Accepted, r.Duplicates = w.validate.Validate(&w.items, known, now, false, &r.Rejections)
	if s.IdempotencyKey != "" {
		r.ID = batch.DerivedID(s.Client, s.IdempotencyKey, hash)
	} else {
		r.ID = batch.ID(uuid.Must(uuid.NewV7())) // crypto/rand never fails
	}
	var sample []tapped
	if in.Tap.active.Load() > 0 {
		sample = in.Tap.sample(s, &w.items, r, time.Unix(0, now))
	}
	if r.Accepted == 0 && s.IdempotencyKey == "" {
		return nil, sample, nil
	}
	w.accepted.Accept(&w.items, &r.Rejections)
	for _, to := range w.accepted.To {
		r.Newest = max(r.Newest, to)
	}
	w.accepted.ID, w.accepted.ProductInstance, w.accepted.Client, w.accepted.Trace = r.ID, s.ProductInstance, s.Client, s.Trace
	response := batch.Response{
		Key: s.IdempotencyKey, Client: s.Client, BodyHash: hash, Items: r.Items, Duplicates: r.Duplicates, Rejections: r.Rejections,
	}
	e := in.entries.Get().(*durable.Entry)
	e.Data = batch.AppendFrame(e.Data[:0], &w.accepted, &response)
	if rows, err := batch.FrameRows(e.Data); err != nil || rows != r.Accepted || r.Accepted+r.Len() != r.Items {
		in.recycle(e)
		_ = promisedBatch.broken(in.clock.log, "%d items, %d accepted, %d rejected, and a frame with %d rows (error: %v)",
			r.Items, r.Accepted, r.Len(), rows, err)
		return nil, nil, checkFailed()
	}
	err = in.clock.enqueue(e.Data, func() error {
		if s.IdempotencyKey == "" {
			return in.journal.Enqueue(e)
		}
		return in.idempotency.enqueue(e)
	})
	if err != nil {
		in.recycle(e)
		return nil, nil, journalError(err)
	}
	return e, sample, nil
}

func (in *Intake) takeWorker() *worker {
	in.idleMu.Lock()
	defer in.idleMu.Unlock()
	last := len(in.idle) - 1
	if last < 0 {
		return &worker{unpacker: unpacker{max: in.cfg.MaxBodyBytes}, decoder: decode.New(in.cfg.Decode), validate: validate.New(in.cfg.Validate)}
	}
	w := in.idle[last]
	in.idle = in.idle[:last]
	return w
}

func (in *Intake) putWorker(w *worker) {
	in.idleMu.Lock()
	defer in.idleMu.Unlock()
	in.idle = append(in.idle, w)
}

// recycle makes an entry available for other batches.
func (in *Intake) recycle(e *durable.Entry) {
	const maxKept = 4 << 20 // larger buffers are not reused
	if cap(e.Data) > maxKept {
		e.Data = nil
	}
	in.entries.Put(e)
}

// diskError converts the error of a queued frame to an API error or batch.ErrNoResponse (contract
// 1.1).
func diskError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, durable.ErrVoided):
		return contract.Unavailable("the journal cannot store the batch; no part of it was stored; retry", 5*time.Second)
	case errors.Is(err, durable.ErrTooLarge):
		return journalError(err)
	}
	return fmt.Errorf("%w: %w", batch.ErrNoResponse, err)
}

// journalError converts an error of Enqueue or Ready, or durable.ErrTooLarge, to an API error. It
// omits the cause, which may contain addresses and paths; operators find it in /readyz.
func journalError(err error) *contract.APIError {
	if errors.Is(err, durable.ErrTooLarge) {
		return contract.NewError(contract.BodyTooLarge,
			"the batch exceeds the maximum frame size of the journal; send fewer measurements per request")
	}
	reason, after := "the journal is unavailable", 5*time.Second
	for _, kind := range []error{durable.ErrBusy, durable.ErrFull, journal.ErrDiskLow, journal.ErrFailed, durable.ErrClosed, errClock} {
		if errors.Is(err, kind) {
			reason = kind.Error()
		}
	}
	if errors.Is(err, durable.ErrBusy) {
		after = time.Second
	}
	return contract.Unavailable("cannot accept the batch: "+reason, after)
}

// checkFailed returns the response to a batch for which a promise is broken.
func checkFailed() *contract.APIError {
	return contract.Unavailable("cannot accept the batch: an internal check failed; retry", 5*time.Second)
}

func queueFull() *contract.APIError {
	return contract.Unavailable("too many batches are queued; retry", time.Second)
}

// This compiles only if gunzip pads its output at least as much as decode requires.
const _ = uint(inflate.Slack - decode.Padding)

// unpacker decompresses a request body through a fixed buffer and limits its decompressed size. For
// requests with an Idempotency-Key it also hashes the decompressed text.
type unpacker struct {
	max    int64
	gz     gunzip.Reader
	left   int64 // decompressed bytes still allowed
	hash   xxhash.Digest
	hashed bool // whether to compute hash
}

// Next implements decode.Text. io.EOF means that the checksums of all gzip members are correct.
func (b *unpacker) Next(keep int) ([]byte, error) {
	text, err := b.gz.Next(keep)
	if int64(len(text)-keep) > b.left {
		text = text[:keep+int(b.left)]
		err = contract.NewError(contract.BodyTooLarge,
			fmt.Sprintf("the decompressed body exceeds %d bytes; send fewer measurements per request", b.max))
	}
	b.left -= int64(len(text) - keep)
	if b.hashed {
		_, _ = b.hash.Write(text[keep:]) // never fails
	}
	return text, err
}

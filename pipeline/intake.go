package pipeline

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/google/uuid"

	"trafficd/pipeline/batch"
	"trafficd/pipeline/decode"
	"trafficd/pipeline/journal"
	"trafficd/pipeline/metrics"
	"trafficd/pipeline/settings"
	"trafficd/pipeline/validate"
	"trafficd/schemas/contract"
	"trafficd/schemas/gunzip"
	"trafficd/schemas/gunzip/inflate"
)

// Config configures the stages between a complete body and the journal.
type Config struct {
	// maximum number of bodies decoded concurrently, at most half of them from one client; 0: two per
	// CPU
	Workers int `setting:"workers"`
	// Maximum number of complete bodies that wait for a worker; further batches are rejected with 503.
	// One client may fill at most half of the queue.
	Queue        int   `setting:"queue"`
	MaxBodyBytes int64 `setting:"max_body_bytes"` // maximum decompressed size of a body

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
	return errors.Join(
		settings.Within("workers", c.Workers, 0, 1024, "each keeps the columns of one batch in memory"),
		settings.Within("queue", c.Queue, 1, 100_000, "each entry may hold a whole compressed body"),
		settings.Within("max_body_bytes", c.MaxBodyBytes, 1<<10, 1<<40, "it bounds the CPU time of a decompression bomb, not memory"),
	)
}

// Registry holds the detectors of the product instances.
type Registry interface {
	// Snapshot returns the detectors of a product instance, or nil if they are not loaded yet.
	Snapshot(productInstance string) *batch.Detectors
	// HasFeed reports whether the registry loads detectors for a product instance.
	HasFeed(productInstance string) bool
}

// Intake decompresses, decodes and validates complete bodies and appends them to the journal. Its
// workers do not wait for the disk: the goroutines of the requests do, so that one fsync serves
// many requests.
type Intake struct {
	Tap Tap // samples the validated items

	cfg         Config
	journal     Journal
	registry    Registry
	idempotency *IdempotencyStore
	now         func() time.Time

	jobs    *queue
	workers sync.WaitGroup
	pool    sync.Pool // of *job

	gate    sync.RWMutex // guards closed; Submit holds a read lock until it returns
	closed  bool
	stamp   sync.Mutex // held from stamping a frame until it is queued: received_at must increase from frame to frame
	stamped int64      // received_at of the last stamped frame
}

type job struct {
	s      *batch.Submission
	entry  journal.Entry
	queued bool // entry is in the journal's queue
	done   chan error
}

// NewIntake returns an Intake and starts its workers, which Close stops. The received_at of new
// frames is later than that of the journal's newest frame.
func NewIntake(cfg Config, j Journal, registry Registry, idempotency *IdempotencyStore) (*Intake, error) {
	_, newest, err := j.Last()
	if err != nil {
		return nil, err
	}
	if cfg.Workers == 0 {
		cfg.Workers = 2 * runtime.GOMAXPROCS(0)
	}
	in := &Intake{
		cfg: cfg, journal: j, registry: registry, idempotency: idempotency, now: time.Now,
		jobs: newQueue(cfg.Queue, cfg.Workers), stamped: batch.FrameReceivedAt(newest),
	}
	in.pool.New = func() any { return &job{done: make(chan error, 1)} }
	in.show()
	for range cfg.Workers {
		in.workers.Go(in.work)
	}
	return in, nil
}

// Close makes Submit fail with 503, waits until the workers have emptied the queue, and stops them.
func (in *Intake) Close() {
	in.gate.Lock()
	in.closed = true
	in.gate.Unlock()
	in.jobs.close()
	in.workers.Wait()
}

// Ready returns nil if a batch of the product instance can be accepted, otherwise a 503 or, if the
// product instance has no registry feed, a 403 (contract 1.1).
func (in *Intake) Ready(productInstance string) *contract.APIError {
	if in.registry.Snapshot(productInstance) == nil { // checked first: a 403 must not be hidden by a temporary 503
		return in.noRegistry(productInstance)
	}
	if in.jobs.depth() == in.cfg.Queue {
		return queueFull()
	}
	if err := in.journal.Ready(); err != nil {
		return journalError(err)
	}
	return nil
}

// Hold claims an Idempotency-Key; see IdempotencyStore.Hold.
func (in *Intake) Hold(c *contract.Client, key string) *contract.APIError {
	return in.idempotency.Hold(c, key)
}

// Release releases a key that Hold has claimed.
func (in *Intake) Release(c *contract.Client, key string) { in.idempotency.Release(c, key) }

// Submit decodes, validates and stores a body. If it returns nil, every accepted item is durable
// and s.Result is the content of the 207. If it returns a *contract.APIError, no item was or will
// be archived or forwarded. After batch.ErrNoResponse, the outcome is unknown.
func (in *Intake) Submit(s *batch.Submission) error {
	in.gate.RLock()
	defer in.gate.RUnlock()
	if in.closed {
		return contract.Unavailable("the daemon is shutting down; retry", time.Second)
	}
	j := in.pool.Get().(*job)
	j.s, j.queued = s, false
	defer func() {
		const maxKept = 4 << 20 // larger buffers are not reused
		if j.s = nil; cap(j.entry.Data) > maxKept {
			j.entry.Data = nil
		}
		in.pool.Put(j)
	}()
	if !in.jobs.push(j) {
		return queueFull()
	}
	if err := <-j.done; err != nil || !j.queued {
		return err
	}
	err := j.entry.Wait()
	if s.IdempotencyKey != "" {
		in.idempotency.settle(&j.entry, err)
	}
	return diskError(err)
}

type stages struct {
	body     body
	decoder  *decode.Decoder
	validate *validate.Validator
	items    batch.Items
	accepted batch.Batch
}

func (in *Intake) work() {
	st := &stages{body: body{max: in.cfg.MaxBodyBytes}, decoder: decode.New(in.cfg.Decode), validate: validate.New(in.cfg.Validate)}
	w := make(worker, 1)
	for j, c := in.jobs.pop(w); j != nil; j, c = in.jobs.pop(w) {
		started := time.Now()
		err := in.process(st, j)
		metrics.Since(decodeSeconds, started)
		in.jobs.done(c)
		j.done <- err
	}
}

// process decodes, validates and encodes a body, and queues its frame in the journal.
func (in *Intake) process(st *stages, j *job) error {
	s := j.s
	known := in.registry.Snapshot(s.ProductInstance)
	if known == nil {
		return in.noRegistry(s.ProductInstance)
	}
	s.Result.Detectors = known
	b := &st.body
	b.gz.Reset(s.Body)
	b.hash.Reset()
	b.left, b.hashed = b.max, s.IdempotencyKey != ""
	err := st.decoder.Decode(b, &st.items)
	s.Result.Items = st.items.Count
	if err != nil {
		if apiErr, ok := errors.AsType[*contract.APIError](err); ok { // from the decoder or from body.Next
			return apiErr
		}
		return contract.NewError(contract.InvalidGzip, "invalid gzip: "+err.Error())
	}
	var hash uint64
	if s.IdempotencyKey != "" {
		hash = b.hash.Sum64()
	}
	if replayed, err := in.idempotency.replay(s, hash); replayed || err != nil {
		return err
	}
	now := in.now().UnixNano()
	r := &s.Result
	r.Duplicates = st.validate.Validate(&st.items, known, now, &r.Rejections)
	if s.IdempotencyKey != "" {
		r.ID = batch.DerivedID(s.Client, s.IdempotencyKey, hash)
	} else {
		r.ID = batch.ID(uuid.Must(uuid.NewV7())) // crypto/rand never fails
	}
	r.Items, r.Accepted = st.items.Count, st.items.Count-r.Len()
	in.Tap.offer(s, &st.items, r, time.Unix(0, now))
	if r.Accepted == 0 && s.IdempotencyKey == "" {
		return nil // nothing to store
	}
	st.accepted.Accept(&st.items, &r.Rejections)
	st.accepted.ID, st.accepted.ProductInstance, st.accepted.Trace = r.ID, s.ProductInstance, s.Trace
	response := batch.Response{
		Key: s.IdempotencyKey, Client: s.Client, BodyHash: hash, Items: r.Items, Duplicates: r.Duplicates, Rejections: r.Rejections,
	}
	j.entry.Data, j.entry.Rows = batch.AppendFrame(j.entry.Data[:0], &st.accepted, &response), st.accepted.Rows()

	in.stamp.Lock()
	defer in.stamp.Unlock()
	in.stamped = max(now, in.stamped+1)
	batch.StampFrame(j.entry.Data, in.stamped)
	if s.IdempotencyKey == "" {
		err = in.journal.Enqueue(&j.entry)
	} else {
		err = in.idempotency.enqueue(&j.entry)
	}
	if err != nil {
		return journalError(err)
	}
	j.queued = true
	return nil
}

// diskError converts the error of a queued frame to an API error or batch.ErrNoResponse (contract
// 1.1).
func diskError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, journal.ErrVoided):
		return contract.Unavailable("the journal cannot store the batch; no part of it was stored; retry", 5*time.Second)
	case errors.Is(err, journal.ErrTooLarge):
		return journalError(err)
	}
	return fmt.Errorf("%w: %w", batch.ErrNoResponse, err)
}

// journalError converts an error of Enqueue or Ready, or journal.ErrTooLarge, to an API error. It
// omits the cause, which may contain addresses and paths; operators find it in /readyz.
func journalError(err error) *contract.APIError {
	if errors.Is(err, journal.ErrTooLarge) {
		return contract.NewError(contract.BodyTooLarge,
			"the batch exceeds the maximum frame size of the journal; send fewer measurements per request")
	}
	reason, after := "the journal is unavailable", 5*time.Second
	for _, kind := range []error{journal.ErrBusy, journal.ErrFull, journal.ErrDiskLow, journal.ErrFailed, journal.ErrClosed} {
		if errors.Is(err, kind) {
			reason = kind.Error()
		}
	}
	if errors.Is(err, journal.ErrBusy) {
		after = time.Second
	}
	return contract.Unavailable("cannot accept the batch: "+reason, after)
}

func queueFull() *contract.APIError {
	return contract.Unavailable("too many batches are queued; retry", time.Second)
}

func (in *Intake) noRegistry(productInstance string) *contract.APIError {
	if !in.registry.HasFeed(productInstance) {
		return contract.NewError(contract.Forbidden,
			"the key's product instance "+productInstance+" has no detector registry; the operator must add it to registry.feeds")
	}
	return contract.Unavailable("the detector registry of product instance "+productInstance+" is not loaded yet; retry", 5*time.Second)
}

// This compiles only if gunzip pads its output at least as much as decode requires.
const _ = uint(inflate.Slack - decode.Padding)

// body decompresses a request body through a fixed buffer and limits its decompressed size. For
// requests with an Idempotency-Key it also hashes the decompressed text.
type body struct {
	max    int64
	gz     gunzip.Reader
	left   int64 // decompressed bytes still allowed
	hash   xxhash.Digest
	hashed bool // whether to compute hash
}

// Next implements decode.Source. io.EOF means that the checksums of all gzip members are correct.
func (b *body) Next(keep int) ([]byte, error) {
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

package pipeline

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/google/uuid"

	"trafficd/pipeline/batch"
	"trafficd/pipeline/decode"
	"trafficd/pipeline/journal"
	"trafficd/pipeline/validate"
	"trafficd/schemas/contract"
)

// Config is what the stages between a complete body and the journal leave to the operator.
type Config struct {
	Workers      int   `koanf:"workers"`        // bodies decoded at the same time; 0: one for each CPU
	Queue        int   `koanf:"queue"`          // complete bodies that may wait for a worker; more get 503
	MaxBodyBytes int64 `koanf:"max_body_bytes"` // decompressed size of a body

	Decode   decode.Config   `koanf:"decode"`
	Validate validate.Config `koanf:"validate"`
	Answers  AnswersConfig   `koanf:"answers"`
}

// DefaultConfig gives a worker to each CPU, a queue of 256 and 64 MiB for a decompressed body (contract 1.1).
func DefaultConfig() Config {
	return Config{
		Queue: 256, MaxBodyBytes: 64 << 20,
		Decode: decode.DefaultConfig(), Validate: validate.DefaultConfig(), Answers: DefaultAnswersConfig(),
	}
}

// Check reports every setting that is out of bounds. Decode, Validate and Answers are checked separately.
func (c Config) Check() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(c.Workers >= 0 && c.Workers <= 1024, "workers is %d, must be 0 to 1024: each keeps the columns of one batch in memory", c.Workers)
	check(c.Queue >= 1 && c.Queue <= 100_000, "queue is %d, must be 1 to 100000: each entry may hold a whole compressed body", c.Queue)
	check(c.MaxBodyBytes >= 1<<10 && c.MaxBodyBytes <= 1<<40,
		"max_body_bytes is %d, must be 1024 to 1099511627776: it bounds the CPU time of a decompression bomb, not memory", c.MaxBodyBytes)
	return errors.Join(errs...)
}

// Registry gives the detectors of a product instance, nil if none were loaded yet.
type Registry interface {
	Snapshot(productInstance string) *batch.Detectors
}

// Intake takes complete bodies through gunzip, decode and validate into the journal. Its workers are the
// only ones that do so; a body's own goroutine waits for them and then for the disk, so one fsync
// serves all bodies that wait for it.
type Intake struct {
	cfg      Config
	journal  *journal.Journal
	registry Registry
	answers  *Answers
	now      func() time.Time

	jobs    chan *job
	workers sync.WaitGroup
	pool    sync.Pool // of *job

	gate    sync.RWMutex // held for reading by Submit, for writing by Close
	closed  bool
	stamp   sync.Mutex // received_at rises in the order of the frames
	stamped int64
}

// job is a submission in the hands of a worker.
type job struct {
	s     *batch.Submission
	entry journal.Entry
	write bool // entry was queued: wait for it
	done  chan error
}

// keptFrame is the largest frame whose memory is kept for the next batch.
const keptFrame = 4 << 20

// NewIntake starts the workers, which Close stops. The journal's newest frame tells how far received_at has come.
func NewIntake(cfg Config, j *journal.Journal, registry Registry, answers *Answers) (*Intake, error) {
	last, err := lastReceivedAt(j)
	if err != nil {
		return nil, err
	}
	if cfg.Workers == 0 {
		cfg.Workers = runtime.GOMAXPROCS(0)
	}
	in := &Intake{cfg: cfg, journal: j, registry: registry, answers: answers, now: time.Now, jobs: make(chan *job, cfg.Queue), stamped: last}
	in.pool.New = func() any { return &job{done: make(chan error, 1)} }
	in.export()
	for range cfg.Workers {
		in.workers.Add(1)
		go in.work()
	}
	return in, nil
}

// Close lets the workers finish what is queued and stops them. Submit then refuses.
func (in *Intake) Close() {
	in.gate.Lock()
	in.closed = true
	in.gate.Unlock()
	close(in.jobs)
	in.workers.Wait()
}

// Ready gives the reason why a batch of this product instance could not be taken now, nil if there is none
// (contract 1.1: 503).
func (in *Intake) Ready(productInstance string) *contract.APIError {
	if len(in.jobs) == cap(in.jobs) {
		return contract.Unavailable("too many batches wait for a worker; send again later", time.Second)
	}
	if err := in.journal.Ready(); err != nil {
		return journalRefusal(err)
	}
	if in.registry.Snapshot(productInstance) == nil {
		return noRegistry(productInstance)
	}
	return nil
}

// Hold claims an Idempotency-Key while its request is under way; see Answers.Hold.
func (in *Intake) Hold(productInstance, key string) *contract.APIError {
	return in.answers.Hold(productInstance, key)
}

// Release gives a claimed key free.
func (in *Intake) Release(productInstance, key string) { in.answers.Release(productInstance, key) }

// Submit takes a body to disk. nil: every accepted item is durable, s.Result is the 207. A *contract.APIError:
// nothing of the batch was or will be archived or forwarded. batch.ErrNoAnswer: nobody knows.
func (in *Intake) Submit(s *batch.Submission) error {
	in.gate.RLock()
	defer in.gate.RUnlock()
	if in.closed {
		return contract.Unavailable("the daemon is shutting down; send again", time.Second)
	}
	j := in.pool.Get().(*job)
	j.s, j.write = s, false
	defer in.put(j)
	select {
	case in.jobs <- j:
	default:
		return contract.Unavailable("too many batches wait for a worker; send again later", time.Second)
	}
	if err := <-j.done; err != nil {
		return err
	}
	if !j.write {
		return nil
	}
	err := j.entry.Wait()
	if s.IdempotencyKey != "" {
		in.answers.settle(scope{s.ProductInstance, s.IdempotencyKey}, &j.entry, err)
	}
	if err != nil {
		return undurable(err)
	}
	return nil
}

func (in *Intake) put(j *job) {
	j.s = nil
	if cap(j.entry.Data) > keptFrame {
		j.entry.Data = nil
	}
	in.pool.Put(j)
}

// work is one worker: it ends when the channel of jobs is closed.
func (in *Intake) work() {
	defer in.workers.Done()
	st := newStages(in.cfg)
	for j := range in.jobs {
		started := time.Now()
		err := in.process(st, j)
		decodeSeconds.UpdateDuration(started)
		j.done <- err
	}
}

// stages is the memory of one worker.
type stages struct {
	body     body
	decoder  *decode.Decoder
	validate *validate.Validator
	items    batch.Items
	accepted batch.Batch
	answer   batch.Answer
}

func newStages(cfg Config) *stages {
	st := &stages{decoder: decode.New(cfg.Decode), validate: validate.New(cfg.Validate)}
	st.body.init(cfg.MaxBodyBytes)
	return st
}

// process is the way of a body from its bytes to the journal's queue.
func (in *Intake) process(st *stages, j *job) error {
	s := j.s
	known := in.registry.Snapshot(s.ProductInstance)
	if known == nil {
		return noRegistry(s.ProductInstance)
	}
	st.body.reset(s.Body, s.IdempotencyKey != "")
	if err := st.decoder.Decode(&st.body, &st.items); err != nil {
		return st.body.apiErr(err)
	}
	if replayed, err := in.answers.replay(s, st.body.sum()); replayed || err != nil {
		return err
	}
	now := in.now()
	st.validate.Validate(&st.items, known, now.UnixNano(), &s.Result.Rejections)
	id, err := uuid.NewV7()
	if err != nil {
		return contract.NewError(contract.InternalError, "cannot make a batch id: "+err.Error())
	}
	s.Result.ID, s.Result.Items = batch.ID(id), st.items.Count
	s.Result.Accepted = st.items.Count - s.Result.Len()
	if s.Result.Accepted == 0 && s.IdempotencyKey == "" {
		return nil // nothing has to be kept
	}
	j.entry.Data = st.frame(j.entry.Data[:0], s)
	return in.enqueue(j, now.UnixNano())
}

// frame appends the frame of what was accepted of s.
func (st *stages) frame(dst []byte, s *batch.Submission) []byte {
	st.accepted.Accept(&st.items, &s.Result.Rejections)
	st.accepted.ID, st.accepted.ProductInstance = s.Result.ID, s.ProductInstance
	st.answer = batch.Answer{Key: s.IdempotencyKey, BodyHash: st.body.sum(), Items: s.Result.Items, Rejections: s.Result.Rejections}
	return batch.AppendFrame(dst, &st.accepted, &st.answer)
}

// enqueue stamps the frame and queues it for the disk.
func (in *Intake) enqueue(j *job, now int64) error {
	in.stamp.Lock()
	defer in.stamp.Unlock()
	in.stamped = max(now, in.stamped+1)
	batch.StampFrame(j.entry.Data, in.stamped)
	var err error
	if j.s.IdempotencyKey == "" {
		err = in.journal.Enqueue(&j.entry)
	} else {
		err = in.answers.enqueue(&j.entry)
	}
	if err != nil {
		return journalRefusal(err)
	}
	j.write = true
	return nil
}

// undurable is what a client is told when the disk failed after the frame was queued (contract 1.1).
func undurable(err error) error {
	if errors.Is(err, journal.ErrVoided) {
		return contract.Unavailable("the journal could not write the batch to disk; nothing of it was kept; send again", 5*time.Second)
	}
	return fmt.Errorf("%w: %w", batch.ErrNoAnswer, err)
}

func journalRefusal(err error) *contract.APIError {
	after := 5 * time.Second
	switch {
	case errors.Is(err, journal.ErrBusy):
		after = time.Second
	case errors.Is(err, journal.ErrTooLarge):
		return contract.NewError(contract.BodyTooLarge, "the batch is larger than one frame of the journal; send fewer measurements")
	}
	return contract.Unavailable("the batch cannot be kept now: "+err.Error(), after)
}

func noRegistry(productInstance string) *contract.APIError {
	return contract.Unavailable("the detector registry of product instance "+productInstance+" is not loaded yet; send again later", 5*time.Second)
}

func lastReceivedAt(j *journal.Journal) (int64, error) {
	seq, frame, err := j.Last()
	if err != nil || seq == 0 {
		return 0, err
	}
	return batch.FrameReceivedAt(frame), nil
}

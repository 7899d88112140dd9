package pipeline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"trafficd/pipeline/batch"
	"trafficd/pipeline/journal"
	"trafficd/schemas/contract"
)

// AnswersConfig bounds what is remembered of requests with an Idempotency-Key (contract 1.5).
type AnswersConfig struct {
	Window   time.Duration  `koanf:"window"`    // how long a 207 is remembered
	MaxBytes int64          `koanf:"max_bytes"` // memory for them; when it is full, requests with the header get 503
	Journal  journal.Config `koanf:"journal"`   // where they outlive the frames of their batches; dir has to be set before OpenAnswers
}

// DefaultAnswersConfig remembers for an hour in up to 128 MiB, about a million answers without rejections.
func DefaultAnswersConfig() AnswersConfig {
	c := AnswersConfig{Window: time.Hour, MaxBytes: 128 << 20, Journal: journal.DefaultConfig()}
	c.Journal.Dir = ""
	c.Journal.SegmentBytes, c.Journal.MaxBytes = 16<<20, 1<<30
	// What the main journal leaves free is for this one: where it could not copy, that could not delete.
	c.Journal.MinFreeBytes = 0
	return c
}

// Validate reports every setting that is out of bounds.
func (c AnswersConfig) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(c.Window >= time.Second && c.Window <= 30*24*time.Hour, "window is %v, must be 1s to 720h: clients rely on it for retries", c.Window)
	check(c.MaxBytes >= 1<<20, "max_bytes is %d, must be at least 1048576: one answer with many rejections may take as much", c.MaxBytes)
	return errors.Join(errs...)
}

// AnswersConsumer is the cursor of the answers in the main journal.
const AnswersConsumer = "answers"

// windowConsumer is the cursor in the answers' own journal: behind it lies what has left the window.
const windowConsumer = "window"

// Answers remembers the 207s of requests with an Idempotency-Key, so that the same batch sent again gets the
// same answer and is not kept twice (contract 1.5).
//
// An answer becomes durable in the frame of its batch, in the same commit. Those frames go when both
// stores have them, the answers stay for the window: so a third consumer of the journal copies them, without
// the columns, to a journal of their own. On start both are read again.
type Answers struct {
	cfg  AnswersConfig
	main *journal.Journal
	own  *journal.Journal
	now  func() time.Time

	mu      sync.Mutex
	known   map[scope]*kept
	order   []*kept        // by expiry, oldest first
	fresh   []*kept        // durable, not copied yet
	pending map[uint64]int // frames of the main journal whose answers are not copied yet; counted, for the number of a voided frame is given again
	held    map[scope]struct{}
	bytes   int64

	stop context.CancelFunc
	done chan struct{}
}

// scope is a client's key within its product instance.
type scope struct{ instance, key string }

// kept is one remembered answer.
type kept struct {
	scope
	hash    uint64
	answer  []byte // the frame without its rows
	expires time.Time
	main    uint64 // its batch's frame
	seq     uint64 // in the answers' own journal, 0 before it is there
}

// size is about what an answer takes in memory.
func (k *kept) size() int64 { return int64(len(k.answer)+len(k.instance)+len(k.key)) + 200 }

// OpenAnswers reads what is remembered and starts copying, which Close stops. cfg.Journal.Dir has to be set.
func OpenAnswers(cfg AnswersConfig, main *journal.Journal, opts ...journal.Option) (*Answers, error) {
	own, err := journal.Open(cfg.Journal, []string{windowConsumer}, opts...)
	if err != nil {
		return nil, fmt.Errorf("cannot open the remembered answers: %w", err)
	}
	a := &Answers{cfg: cfg, main: main, own: own, now: time.Now, known: map[scope]*kept{}, pending: map[uint64]int{}, held: map[scope]struct{}{}, done: make(chan struct{})}
	if err := a.recall(); err != nil {
		return nil, errors.Join(fmt.Errorf("cannot read the remembered answers: %w", err), own.Close())
	}
	ctx, stop := context.WithCancel(context.Background())
	a.stop = stop
	go a.run(ctx)
	return a, nil
}

// Close stops the copying; what is not copied yet still stands in the main journal.
func (a *Answers) Close() error {
	a.stop()
	<-a.done
	return a.own.Close()
}

// Hold claims a key for a request under way. The refusal says that it is claimed already (409) or that no more
// answers can be remembered (503). Without a refusal, Release has to follow.
func (a *Answers) Hold(productInstance, key string) *contract.APIError {
	s := scope{productInstance, key}
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, taken := a.held[s]; taken {
		return &contract.APIError{Code: contract.IdempotencyKeyInUse, Description: "a request with this Idempotency-Key is under way; wait for its end, then send again", Parameter: "Idempotency-Key", RetryAfter: time.Second}
	}
	if _, known := a.known[s]; !known && a.bytes >= a.cfg.MaxBytes {
		return contract.Unavailable("no more answers can be remembered now; send again later, or without Idempotency-Key", 30*time.Second)
	}
	a.held[s] = struct{}{}
	return nil
}

// Release gives a claimed key free.
func (a *Answers) Release(productInstance, key string) {
	a.mu.Lock()
	delete(a.held, scope{productInstance, key})
	a.mu.Unlock()
}

// replay fills in the first answer where the key is known and stands for the same body.
func (a *Answers) replay(s *batch.Submission, hash uint64) (bool, error) {
	if s.IdempotencyKey == "" {
		return false, nil
	}
	a.mu.Lock()
	k := a.known[scope{s.ProductInstance, s.IdempotencyKey}]
	a.mu.Unlock()
	if k == nil || !a.now().Before(k.expires) {
		return false, nil
	}
	if k.hash != hash {
		return false, &contract.APIError{Code: contract.IdempotencyKeyReused, Description: "this Idempotency-Key stands for another body; use a new key for a new batch", Parameter: "Idempotency-Key"}
	}
	return true, k.fill(&s.Result)
}

func (k *kept) fill(r *batch.Result) error {
	var b batch.Batch
	var ans batch.Answer
	if err := batch.DecodeFrame(k.answer, &b, &ans); err != nil {
		return contract.NewError(contract.InternalError, "cannot read the remembered answer: "+err.Error())
	}
	r.ID, r.Items, r.Accepted, r.Replay = b.ID, ans.Items, ans.Items-ans.Len(), true
	r.Rejections = ans.Rejections
	return nil
}

// enqueue queues a frame with an answer in the main journal. From then on the cursor of the answers does not pass it until
// the answer is copied.
func (a *Answers) enqueue(e *journal.Entry) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.main.Enqueue(e); err != nil {
		return err
	}
	a.pending[e.Seq]++
	return nil
}

// settle is told what became of a frame: one that is durable is remembered. Any other holds the cursor no longer: the journal
// voids it before it goes on, and where the process ends before that, the next start finds it ahead of the cursor.
func (a *Answers) settle(s scope, e *journal.Entry, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err != nil {
		a.unpend(e.Seq)
		return
	}
	k := a.from(s, batch.AnswerOf(e.Data))
	k.main = e.Seq
	a.keep(k)
	a.fresh = append(a.fresh, k)
}

func (a *Answers) from(s scope, answer []byte) *kept {
	received := time.Unix(0, batch.FrameReceivedAt(answer))
	now := a.now()
	// An answer from what is now the future, after the clock was set back, stays no longer than a new one.
	age := min(max(now.Sub(received), 0), a.cfg.Window)
	return &kept{scope: s, hash: bodyHash(answer), answer: answer, expires: now.Add(a.cfg.Window - age)}
}

// unpend gives a frame free for the cursor. The caller holds mu.
func (a *Answers) unpend(seq uint64) {
	if a.pending[seq]--; a.pending[seq] == 0 {
		delete(a.pending, seq)
	}
}

// keep adds an answer in place of an older one of the same key. The caller holds mu, or is alone.
func (a *Answers) keep(k *kept) {
	if old := a.known[k.scope]; old != nil {
		a.bytes -= old.size()
	}
	a.known[k.scope] = k
	a.order = append(a.order, k)
	a.bytes += k.size()
	answersBytes.Set(float64(a.bytes))
}

// recall reads the answers' own journal, then what the main journal has beyond it. Nothing is written: on a full disk the
// daemon has to start all the same, or the stores could not take what fills it. run copies.
func (a *Answers) recall() error {
	err := each(a.own.Reader(0), func(seq uint64, frame []byte) error {
		return a.read(frame, func(k *kept) { k.seq = seq })
	})
	if err != nil {
		return err
	}
	start, _ := a.main.Cursor(AnswersConsumer).Load()
	return each(a.main.Reader(start), func(seq uint64, frame []byte) error {
		return a.read(frame, func(k *kept) {
			k.main = seq
			a.pending[seq]++
			a.fresh = append(a.fresh, k)
		})
	})
}

// each calls do for every frame that is there now; do may keep nothing of a frame.
func each(r *journal.Reader, do func(seq uint64, frame []byte) error) error {
	var buf []byte
	for {
		seq, frame, ok, err := r.TryNext(buf)
		if err != nil || !ok {
			return err
		}
		if err := do(seq, frame); err != nil {
			return err
		}
		buf = frame
	}
}

// read keeps the answer of a frame that has one.
func (a *Answers) read(frame []byte, note func(*kept)) error {
	instance, key, _, err := batch.FrameKey(frame)
	if err != nil || key == "" {
		return err
	}
	k := a.from(scope{instance, key}, batch.AnswerOf(frame))
	note(k)
	a.keep(k)
	return nil
}

// run copies new answers and forgets old ones until it is stopped.
func (a *Answers) run(ctx context.Context) {
	defer close(a.done)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := a.copy(); err != nil {
			answersErrors.Inc() // the next tick tries again; the main journal keeps what is not copied
		}
		a.forget()
	}
}

// copy makes fresh answers durable in their own journal and moves the cursor of the main one.
func (a *Answers) copy() error {
	a.mu.Lock()
	_, next := a.main.Bounds()
	fresh := a.fresh
	a.fresh = nil
	a.mu.Unlock()
	err := a.write(fresh)
	a.mu.Lock()
	left := slices.DeleteFunc(fresh, func(k *kept) bool {
		if k.seq != 0 {
			a.unpend(k.main)
		}
		return k.seq != 0
	})
	a.fresh = append(left, a.fresh...) // before the newer ones: what leaves the window is forgotten in this order
	for seq := range a.pending {
		next = min(next, seq)
	}
	a.mu.Unlock()
	if err != nil {
		return err
	}
	if done, _ := a.main.Cursor(AnswersConsumer).Load(); done >= next {
		return nil
	}
	return a.main.Cursor(AnswersConsumer).Save(next, nil)
}

// write queues answers for their own journal and waits for the disk; those that got there have a seq then.
func (a *Answers) write(fresh []*kept) error {
	entries := make([]*journal.Entry, 0, len(fresh))
	var failed error
	for _, k := range fresh {
		e := &journal.Entry{Data: k.answer}
		if failed = a.own.Enqueue(e); failed != nil {
			break
		}
		entries = append(entries, e)
	}
	for i, e := range entries {
		if err := e.Wait(); err != nil {
			failed = err
			continue
		}
		a.mu.Lock()
		fresh[i].seq = e.Seq
		a.mu.Unlock()
	}
	return failed
}

// forget drops what has left the window, in memory and on disk.
func (a *Answers) forget() {
	now := a.now()
	last := uint64(0)
	a.mu.Lock()
	n := 0
	for n < len(a.order) && a.order[n].seq != 0 && !now.Before(a.order[n].expires) {
		k := a.order[n]
		last = max(last, k.seq)
		if a.known[k.scope] == k {
			delete(a.known, k.scope)
			a.bytes -= k.size()
		}
		n++
	}
	clear(a.order[:n])
	a.order = a.order[n:]
	answersBytes.Set(float64(a.bytes))
	a.mu.Unlock()
	if last == 0 {
		return
	}
	if err := a.own.Cursor(windowConsumer).Save(last+1, nil); err != nil {
		answersErrors.Inc()
	}
}

func bodyHash(answer []byte) uint64 {
	_, _, hash, _ := batch.FrameKey(answer)
	return hash
}

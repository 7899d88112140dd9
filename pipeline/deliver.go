package pipeline

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"trafficd/pipeline/batch"
	"trafficd/pipeline/journal"
)

// Sink is a store that accepted rows are delivered to. One goroutine calls it.
type Sink interface {
	// Plan fixes the next block before its first attempt: how many of the rows, from their start (at least one), go out
	// in one attempt, and a plan that makes each attempt of the block the same one, whatever
	// happens in between. state is what the last Deliver returned, nil at first.
	Plan(ctx context.Context, state []byte, rows batch.Block) (n int, plan []byte, err error)
	// Deliver returns when the store has exactly this block durably. It is called again with the same plan and rows
	// after an error, and after a restart of the daemon. state is what the next Plan gets. A
	// *batch.PermanentError says that the store will never take these rows as a block: the loop halves it. Where a part of the
	// block was applied all the same, the state that comes with the error makes later plans know. Every
	// other error is tried again.
	Deliver(ctx context.Context, plan []byte, rows batch.Block) (state []byte, err error)
	Close() error
}

// DeliveryConfig is how blocks are gathered and retried.
type DeliveryConfig struct {
	MaxRows  int           `koanf:"max_rows"`  // rows offered to the sink at a time
	MinRows  int           `koanf:"min_rows"`  // with fewer, more are waited for
	Linger   time.Duration `koanf:"linger"`    // but no longer than this
	RetryMin time.Duration `koanf:"retry_min"` // first wait after a failed attempt; it doubles
	RetryMax time.Duration `koanf:"retry_max"` // up to this
}

// Validate reports every setting that is out of bounds.
func (c DeliveryConfig) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(c.MaxRows >= 1 && c.MaxRows <= 1_000_000, "max_rows is %d, must be 1 to 1000000: a row takes about 100 bytes of memory", c.MaxRows)
	check(c.MinRows >= 1 && c.MinRows <= c.MaxRows, "min_rows is %d, must be 1 to max_rows (%d)", c.MinRows, c.MaxRows)
	check(c.Linger >= 0 && c.Linger <= time.Minute, "linger is %v, must be 0 to 1m: measurements wait up to that long for others", c.Linger)
	check(c.RetryMin >= time.Millisecond, "retry_min is %v, must be at least 1ms", c.RetryMin)
	check(c.RetryMax >= c.RetryMin, "retry_max is %v, must be at least retry_min (%v)", c.RetryMax, c.RetryMin)
	return errors.Join(errs...)
}

// Delivery takes the journal's rows to one sink: cursor → frames → block → sink → cursor. Archive and forward are two
// of them; neither waits for the other.
type Delivery struct {
	name   string
	cfg    DeliveryConfig
	sink   Sink
	cursor cursor
	window window
	dead   *DeadLetters
	log    zerolog.Logger

	at      progress // as it is on disk, or further if unsaved
	unsaved bool     // the last save failed
	limit   int      // rows of a block; lowered while a refused row is looked for

	reached atomic.Uint64 // frame of the first row that is not delivered
	behind  atomic.Int64  // received_at of the oldest row that is not delivered, 0 if there is none
	rows    atomic.Int64  // delivered by this process
	mu      sync.Mutex
	trouble error // why the last attempt failed, nil if it did not
}

// cursor keeps the progress; journal.Cursor is it.
type cursor interface {
	Load() (frame uint64, state []byte)
	Save(frame uint64, state []byte) error
}

// passedFrames is how many frames without rows may wait to be told to the disk.
const passedFrames = 64

// NewDelivery reads where the sink's cursor stands. Run does the work.
func NewDelivery(name string, cfg DeliveryConfig, j *journal.Journal, sink Sink, dead *DeadLetters, log zerolog.Logger) (*Delivery, error) {
	d := &Delivery{name: name, cfg: cfg, sink: sink, cursor: j.Cursor(name), dead: dead, log: log.With().Str("sink", name).Logger(), limit: cfg.MaxRows}
	frame, state := d.cursor.Load()
	var err error
	if d.at, err = decodeProgress(frame, state); err != nil {
		return nil, fmt.Errorf("cannot read the cursor of %s: %w", name, err)
	}
	d.reached.Store(frame)
	d.window.start(j, d.at.done)
	d.export(j)
	return d, nil
}

// Run delivers until soft is done, which lets an attempt in hand finish; ctx ends that too, and has to be done no
// earlier than soft. What was not delivered is delivered by the next Run, in this process or another.
func (d *Delivery) Run(ctx, soft context.Context) error {
	for {
		rows, err := d.next(soft)
		if err == nil {
			err = d.deliver(ctx, soft, rows)
		}
		switch {
		case err == nil:
		case soft.Err() != nil, errors.Is(err, journal.ErrClosed):
			return errors.Join(d.rest(), d.sink.Close())
		default: // the journal cannot be read, or the cursor not be written
			d.failed(err, "cannot go on; trying again")
			_ = d.sleep(soft, d.cfg.RetryMax) // next tells of a stop
			d.window.rewind(d.at.done)
		}
	}
}

// next gives the block to deliver: the one that was planned before a restart, or a new one with its plan on disk.
func (d *Delivery) next(ctx context.Context) (batch.Block, error) {
	if d.at.planned() {
		rows, err := d.window.upTo(ctx, d.at.end)
		if err == nil {
			d.behind.Store(rows[0].ReceivedAt)
		}
		return rows, err
	}
	if d.unsaved { // the journal deletes nothing until it is told, and nobody knows when the next row comes
		if err := d.save(d.at); err != nil {
			return nil, err
		}
		d.setTrouble(nil)
	}
	for {
		rows, err := d.window.gather(ctx, d.cfg)
		if err != nil {
			return nil, err
		}
		if len(rows) > 0 {
			d.behind.Store(rows[0].ReceivedAt)
			return d.plan(ctx, rows.Head(min(d.limit, rows.Rows())))
		}
		if err := d.pass(); err != nil {
			return nil, err
		}
	}
}

// pass moves over frames that have no rows. The disk is told when nothing else waits, and now and then: a journal that is full
// of such frames gets no new ones that would move us on.
func (d *Delivery) pass() error {
	d.at.done = d.window.end()
	idle := !d.window.more()
	if idle {
		d.at.done = d.window.end() // beyond still more of them
	}
	d.reached.Store(d.at.done.Frame)
	if saved, _ := d.cursor.Load(); !idle && d.at.done.Frame-saved < passedFrames {
		return nil
	}
	return d.save(d.at)
}

// plan has the sink fix the next block and makes that durable before the first attempt.
func (d *Delivery) plan(ctx context.Context, rows batch.Block) (batch.Block, error) {
	for wait := d.cfg.RetryMin; ; wait = min(2*wait, d.cfg.RetryMax) {
		n, plan, err := d.sink.Plan(ctx, d.at.state, rows)
		if err == nil {
			block := rows.Head(n)
			return block, d.save(progress{done: d.at.done, state: d.at.state, end: block.End(), plan: plan})
		}
		d.failed(err, "cannot plan a block; trying again")
		if err := d.sleep(ctx, wait); err != nil {
			return nil, err
		}
	}
}

// deliver repeats a block until the store has it, or has refused it for good.
func (d *Delivery) deliver(ctx, soft context.Context, rows batch.Block) error {
	for wait := d.cfg.RetryMin; ; wait = min(2*wait, d.cfg.RetryMax) {
		started := time.Now()
		state, err := d.sink.Deliver(ctx, d.at.plan, rows)
		if err == nil {
			d.delivered(rows, state, started)
			return nil
		}
		var refused *batch.PermanentError
		if errors.As(err, &refused) {
			if state != nil {
				d.at.state = state
			}
			return d.refused(rows, refused)
		}
		d.failed(err, "cannot deliver a block; trying again")
		if err := d.sleep(soft, wait); err != nil {
			return err
		}
	}
}

// delivered moves on in memory; the cursor on disk follows with the next plan. Until then a restart would deliver the
// same plan once more, which the store takes for what it is.
func (d *Delivery) delivered(rows batch.Block, state []byte, started time.Time) {
	n := rows.Rows()
	d.at = progress{done: rows.End(), state: state}
	d.window.drop(n)
	d.rows.Add(int64(n))
	d.limit = min(2*d.limit, d.cfg.MaxRows)
	d.setTrouble(nil)
	d.log.Debug().Int("rows", n).Dur("took", time.Since(started)).Msg("delivered")
	if !d.window.more() {
		d.idle()
	}
	d.reached.Store(d.at.done.Frame)
}

// idle writes the cursor when all that there is was delivered.
func (d *Delivery) idle() {
	d.behind.Store(0)
	d.at.done = d.window.end()
	if err := d.rest(); err != nil {
		d.failed(err, "cannot save the cursor; trying again")
	}
}

// refused halves the block until the row that the store does not want stands alone, and puts that one aside.
func (d *Delivery) refused(rows batch.Block, cause *batch.PermanentError) error {
	if n := rows.Rows(); n > 1 {
		d.limit = n / 2
		d.log.Warn().Err(cause).Int("rows", n).Msg("the store refuses a block; halving it")
		return d.save(progress{done: d.at.done, state: d.at.state})
	}
	if err := d.dead.Add(d.name, rows, cause.Err); err != nil {
		return err
	}
	d.log.Error().Err(cause).Str("batch", rows[0].ID.String()).Uint32("index", rows[0].Index[rows[0].From]).Msg("the store refuses a measurement for good: it stands in the dead-letter file")
	d.window.drop(1)
	return d.save(progress{done: rows.End(), state: d.at.state})
}

// rest writes the cursor of a delivery that has nothing in hand.
func (d *Delivery) rest() error {
	if d.at.planned() {
		return nil // the plan is on disk, the next Run takes it up
	}
	return d.save(d.at)
}

func (d *Delivery) save(p progress) error {
	err := d.cursor.Save(p.done.Frame, p.encode())
	if d.unsaved = err != nil; !d.unsaved {
		d.at = p
	}
	return err
}

// sleep waits about as long as told; the error is ctx's.
func (d *Delivery) sleep(ctx context.Context, wait time.Duration) error {
	t := time.NewTimer(wait/2 + rand.N(wait/2+1))
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// failed logs the first of a row of failures as a warning, the others at debug.
func (d *Delivery) failed(err error, what string) {
	if errors.Is(err, context.Canceled) {
		return // stopping
	}
	level := zerolog.DebugLevel
	if d.setTrouble(err) {
		level = zerolog.WarnLevel
	}
	d.log.WithLevel(level).Err(err).Msg(what)
}

// setTrouble is true when there was none before.
func (d *Delivery) setTrouble(err error) (began bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	began = d.trouble == nil && err != nil
	if d.trouble != nil && err == nil {
		d.log.Info().Msg("delivering again")
	}
	d.trouble = err
	return began
}

// Status is how far a delivery is behind, for readiness and metrics.
type Status struct {
	Lag     time.Duration // age of the oldest row that is not delivered; 0 if there is none
	Rows    int64         // delivered by this process
	Trouble error         // why the last attempt failed; nil if it did not
}

// Status may be called from any goroutine.
func (d *Delivery) Status() Status {
	d.mu.Lock()
	s := Status{Rows: d.rows.Load(), Trouble: d.trouble}
	d.mu.Unlock()
	if at := d.behind.Load(); at != 0 {
		s.Lag = max(time.Since(time.Unix(0, at)), 0)
	}
	return s
}

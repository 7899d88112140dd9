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
	"trafficd/pipeline/settings"
)

// Sink is a store that accepted rows are delivered to. It is used by one goroutine.
type Sink interface {
	// Plan fixes the next block before its first attempt: n is the number of rows, from the first on and at least one, that
	// one attempt delivers; plan makes all attempts of the block identical, also after a restart. state is the result of the
	// last Deliver, nil at first. No two batches of rows have the same ID.
	Plan(ctx context.Context, state []byte, rows batch.Block) (n int, plan []byte, err error)
	// Deliver returns nil when the store has exactly this block durably. After an error or a restart it is called again with
	// the same plan and rows. The next Plan gets state. A *batch.PermanentError makes the loop halve the block; if part of the
	// block was stored nevertheless, state must tell later plans. All other errors are retried.
	Deliver(ctx context.Context, plan []byte, rows batch.Block) (state []byte, err error)
	// Probe returns why the store cannot take rows now. It is called at the start and while there are none.
	Probe(ctx context.Context) error
	Close() error
}

// DeliveryConfig configures how blocks are formed and retried.
type DeliveryConfig struct {
	MaxRows  int           `setting:"max_rows"`  // rows offered to the sink at a time
	MinRows  int           `setting:"min_rows"`  // with fewer rows the delivery waits for more
	Linger   time.Duration `setting:"linger"`    // but no longer than this
	RetryMin time.Duration `setting:"retry_min"` // wait after the first failed attempt; it doubles
	RetryMax time.Duration `setting:"retry_max"` // up to this; also the time between two probes of an idle store
}

// Validate reports every setting that is out of bounds.
func (c DeliveryConfig) Validate() error {
	return errors.Join(
		settings.Within("max_rows", c.MaxRows, 1, 1_000_000, "a row takes about 100 bytes of memory"),
		settings.Within("min_rows", c.MinRows, 1, c.MaxRows, "the upper bound is max_rows"),
		settings.Within("linger", c.Linger, 0, time.Minute, "measurements wait up to that long for others"),
		settings.AtLeast("retry_min", c.RetryMin, time.Millisecond, "shorter waits burden a store that is in trouble"),
		settings.AtLeast("retry_max", c.RetryMax, c.RetryMin, "waits start with retry_min"),
	)
}

// Delivery delivers the journal's rows to one sink: cursor → frames → block → sink → cursor. The deliveries to the archive
// and to Kafka are independent of each other.
type Delivery struct {
	name   string
	cfg    DeliveryConfig
	sink   Sink
	cursor cursor
	window window
	dead   *DeadLetters
	log    zerolog.Logger

	at      progress // as on disk, or further if unsaved
	unsaved bool     // the last save failed
	limit   int      // rows of a block; lowered while searching for a rejected row

	reached atomic.Uint64 // frame of the first undelivered row
	behind  atomic.Int64  // received_at of the oldest undelivered row, 0 if there is none
	rows    atomic.Int64  // delivered by this process
	mu      sync.Mutex
	trouble error // why the last attempt failed, nil if it succeeded
}

// cursor is implemented by journal.Cursor.
type cursor interface {
	Load() (frame uint64, state []byte)
	Save(frame uint64, state []byte) error
}

// NewDelivery loads the sink's cursor. Run delivers.
func NewDelivery(name string, cfg DeliveryConfig, j *journal.Journal, sink Sink, dead *DeadLetters, log zerolog.Logger) (*Delivery, error) {
	d := &Delivery{
		name: name, cfg: cfg, sink: sink, cursor: j.Cursor(name), window: window{journal: j}, dead: dead,
		log: log.With().Str("sink", name).Logger(), limit: cfg.MaxRows,
	}
	frame, state := d.cursor.Load()
	var err error
	if d.at, err = decodeProgress(frame, state); err != nil {
		return nil, fmt.Errorf("cannot read the cursor of %s: %w", name, err)
	}
	d.reached.Store(frame)
	d.window.idle, d.window.every = d.probe, cfg.RetryMax
	d.window.rewind(d.at.done)
	d.show(j)
	return d, nil
}

// Run delivers until soft is done, which lets the current attempt finish; ctx, which must be done no earlier than soft,
// interrupts it. The next Run, in this process or another, continues with what was not delivered.
func (d *Delivery) Run(ctx, soft context.Context) error {
	if !d.at.planned() {
		d.probe(soft)
	}
	for {
		rows, err := d.next(soft)
		if err == nil {
			err = d.deliver(ctx, soft, rows)
		}
		switch {
		case err == nil:
		case soft.Err() != nil, errors.Is(err, journal.ErrClosed):
			return errors.Join(d.rest(), d.sink.Close())
		default: // the journal cannot be read, or the cursor cannot be written
			d.failed(err, "delivery failed; retrying")
			_ = d.sleep(soft, d.cfg.RetryMax) // next returns soft's error
			d.window.rewind(d.at.done)
		}
	}
}

// next returns the block to deliver: the one planned before a restart, or a new one whose plan is on disk.
func (d *Delivery) next(ctx context.Context) (batch.Block, error) {
	if d.at.planned() {
		rows, err := d.window.upTo(ctx, d.at.end)
		if err == nil {
			d.behind.Store(rows[0].ReceivedAt)
		}
		return rows, err
	}
	if d.unsaved { // the journal can delete nothing before the save, and the next row may be far off
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
			return d.plan(ctx, distinct(rows.Head(min(d.limit, rows.Rows()))))
		}
		if err := d.passEmptyFrames(); err != nil {
			return nil, err
		}
	}
}

// distinct cuts rows before the second batch with the same ID, so that sinks can identify a row of a block by batch ID and
// index. A batch that is accepted again after the idempotency window has the ID of the first time.
func distinct(rows batch.Block) batch.Block {
	var seen map[batch.ID]struct{}
	for i, s := range rows {
		if !s.ID.Derived() {
			continue
		}
		if _, again := seen[s.ID]; again {
			return rows[:i]
		}
		if seen == nil {
			seen = make(map[batch.ID]struct{}, len(rows)-i)
		}
		seen[s.ID] = struct{}{}
	}
	return rows
}

// maxUnsavedFrames is how many frames without rows are passed before the cursor is saved.
const maxUnsavedFrames = 64

// passEmptyFrames moves past frames without rows. It saves the cursor when no rows follow, and every maxUnsavedFrames: a
// journal full of such frames accepts no new ones that would move the cursor.
func (d *Delivery) passEmptyFrames() error {
	d.at.done = d.window.end()
	idle := !d.window.more()
	if idle {
		d.at.done = d.window.end() // more has read further empty frames
	}
	d.reached.Store(d.at.done.Frame)
	if saved, _ := d.cursor.Load(); !idle && d.at.done.Frame-saved < maxUnsavedFrames {
		return nil
	}
	return d.save(d.at)
}

// plan lets the sink fix the next block and saves the plan before the first attempt.
func (d *Delivery) plan(ctx context.Context, rows batch.Block) (batch.Block, error) {
	for wait := d.cfg.RetryMin; ; wait = min(2*wait, d.cfg.RetryMax) {
		n, plan, err := d.sink.Plan(ctx, d.at.state, rows)
		if err == nil {
			block := rows.Head(n)
			return block, d.save(progress{done: d.at.done, state: d.at.state, end: block.End(), plan: plan})
		}
		d.failed(err, "cannot plan a block; retrying")
		if err := d.sleep(ctx, wait); err != nil {
			return nil, err
		}
	}
}

// deliver repeats a block until the store has it or has permanently rejected it.
func (d *Delivery) deliver(ctx, soft context.Context, rows batch.Block) error {
	for wait := d.cfg.RetryMin; ; wait = min(2*wait, d.cfg.RetryMax) {
		started := time.Now()
		state, err := d.sink.Deliver(ctx, d.at.plan, rows)
		if err == nil {
			d.delivered(rows, state, started)
			return nil
		}
		var rejected *batch.PermanentError
		if errors.As(err, &rejected) {
			if state != nil {
				d.at.state = state
			}
			return d.rejected(rows, rejected)
		}
		d.failed(err, "cannot deliver a block; retrying")
		if err := d.sleep(soft, wait); err != nil {
			return err
		}
	}
}

// delivered moves on in memory. The cursor is saved with the next plan: until then, a restart would deliver the same plan
// again, which the store recognizes.
func (d *Delivery) delivered(rows batch.Block, state []byte, started time.Time) {
	n := rows.Rows()
	d.at = progress{done: rows.End(), state: state}
	d.window.drop(n)
	d.rows.Add(int64(n))
	d.limit = min(2*d.limit, d.cfg.MaxRows)
	d.setTrouble(nil)
	d.log.Debug().Int("rows", n).Dur("took", time.Since(started)).Msg("delivered a block")
	if !d.window.more() { // everything is delivered: save the cursor now
		d.behind.Store(0)
		d.at.done = d.window.end()
		if err := d.rest(); err != nil {
			d.failed(err, "cannot save the cursor; retrying")
		}
	}
	d.reached.Store(d.at.done.Frame)
}

// rejected halves the block until the rejected row is alone, and moves that one to the dead-letter file.
func (d *Delivery) rejected(rows batch.Block, cause *batch.PermanentError) error {
	if n := rows.Rows(); n > 1 {
		d.limit = n / 2
		d.log.Warn().Err(cause).Int("rows", n).Msg("the store rejects a block; halving it")
		return d.save(progress{done: d.at.done, state: d.at.state})
	}
	if err := d.dead.Add(d.name, rows, cause.Err); err != nil {
		return err
	}
	d.log.Error().Err(cause).Str("batch", rows[0].ID.String()).Uint32("index", rows[0].Index[rows[0].From]).
		Msg("the store permanently rejects a measurement; wrote it to the dead-letter file")
	d.window.drop(1)
	return d.save(progress{done: rows.End(), state: d.at.state})
}

// probe finds out whether the store can be reached, so that a failure is known before the first row.
func (d *Delivery) probe(ctx context.Context) {
	err := d.sink.Probe(ctx)
	switch {
	case err != nil:
		d.failed(err, "the store cannot take rows; retrying")
	case !d.unsaved:
		d.setTrouble(nil)
	}
}

// rest saves the cursor unless a block is in progress, whose plan is on disk for the next Run.
func (d *Delivery) rest() error {
	if d.at.planned() {
		return nil
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

// sleep waits for 50–100 % of wait, or returns ctx's error.
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

// failed logs the first of consecutive failures as a warning and the others at debug level.
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

// setTrouble reports whether err is the first failure after a success.
func (d *Delivery) setTrouble(err error) (began bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	began = d.trouble == nil && err != nil
	if d.trouble != nil && err == nil {
		d.log.Info().Msg("delivery has recovered")
	}
	d.trouble = err
	return began
}

// Status is how far a delivery is behind, for readiness and metrics.
type Status struct {
	Lag     time.Duration // age of the oldest undelivered row, 0 if there is none
	Rows    int64         // delivered by this process
	Trouble error         // why the last attempt failed, nil if it succeeded
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

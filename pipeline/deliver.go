package pipeline

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"trafficd/pipeline/batch"
	"trafficd/pipeline/journal"
	"trafficd/pipeline/lib/durable"
	"trafficd/pipeline/lib/receipts"
	"trafficd/pipeline/lib/settings"
)

// Sink is a store that accepted rows are delivered to. Its methods are not called concurrently.
type Sink interface {
	// Plan chooses the size of the next block, the first n > 0 rows, before its first attempt. plan
	// holds what Deliver needs to make all attempts identical, even after a restart. If the rows alone
	// determine that, plan may be nil or empty: the block is saved all the same. state is the one that
	// the last Deliver returned, nil at first; an empty one may be passed as nil. All batches in rows
	// have different IDs.
	Plan(ctx context.Context, state []byte, rows batch.Block) (n int, plan []byte, err error)
	// Deliver returns nil once the store has durably stored exactly this block. state is passed to the
	// next Plan. After an error or a restart Deliver is called again with the same plan and rows,
	// except after a *batch.PermanentError: its Rejected rows are then dead-lettered, and the block is
	// done. If Rejected is nil, the block is halved, or dead-lettered if it has one row; if part of it
	// may have been stored, state must record that for later plans.
	Deliver(ctx context.Context, plan []byte, rows batch.Block) (state []byte, err error)
	// Probe returns an error if the store cannot take rows now. It is called at startup and while
	// there are no rows to deliver.
	Probe(ctx context.Context) error
	Close() error
}

// DeliveryConfig configures how blocks are formed and retried.
type DeliveryConfig struct {
	// maximum number of rows offered to the sink at a time; raise it if the store prefers larger
	// blocks
	MaxRows int           `setting:"max_rows"`
	Linger  time.Duration `setting:"linger"` // maximum wait for more rows, counted from the last block; avoids small blocks

	// No settings, but sinks and tests differ in them.
	MinRows  int           `setting:"-"` // number of rows for which Linger does not wait
	RetryMin time.Duration `setting:"-"` // wait after the first failed attempt; doubled after each further failure
	RetryMax time.Duration `setting:"-"` // maximum wait between attempts, and interval at which an idle store is probed
}

// Validate reports every setting that is out of bounds.
func (c DeliveryConfig) Validate() error {
	return errors.Join(
		settings.Within("max_rows", c.MaxRows, 1, 1_000_000, "a row takes about 100 bytes of memory"),
		settings.Within("linger", c.Linger, 0, time.Minute, "under load, measurements wait up to this long for more to arrive"),
	)
}

// Delivery delivers the journal's rows to one sink: it reads frames from the cursor onward, forms
// blocks, writes them, and advances the cursor. Deliveries are independent of each other.
type Delivery struct {
	Tracer   trace.Tracer      // creates spans for blocks; nil disables tracing; set before Run
	Receipts *receipts.Waiting // gets what became of batches; may be nil; set before Run

	name    string
	cfg     DeliveryConfig
	sink    Sink
	source  Source
	cursor  durable.Cursor
	pending pending
	dead    *DeadLetters
	log     zerolog.Logger

	at      CursorStatus   // progress, which may be ahead of the saved cursor
	saved   batch.Position // in the saved cursor
	unsaved bool           // the last save failed
	limit   int            // maximum rows in a block; lowered while searching for a rejected row

	reached atomic.Pointer[batch.Position] // of the first undelivered row
	behind  atomic.Int64                   // received_at of the oldest undelivered row, 0 if there is none
	began   atomic.Int64                   // Unix time in ns since which rows are sent but none was accepted, 0 if no block is in progress
	rows    atomic.Int64                   // rows delivered by this process
	mu      sync.Mutex                     // guards trouble
	trouble error                          // error of the last attempt, nil if it succeeded
}

// NewDelivery returns a delivery that starts at the sink's cursor.
func NewDelivery(name string, cfg DeliveryConfig, source Source, sink Sink, dead *DeadLetters, log zerolog.Logger) (*Delivery, error) {
	d := &Delivery{
		name: name, cfg: cfg, sink: sink, source: source, cursor: source.Cursor(), pending: pending{source: source}, dead: dead,
		log: log.With().Str("sink", name).Logger(), limit: cfg.MaxRows,
	}
	frame, state := d.cursor.Load()
	var err error
	if d.at, err = DescribeCursor(frame, state); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	done := d.at.Done // a copy, because Status reads it while d.at changes
	d.reached.Store(&done)
	d.saved, d.pending.log = done, d.log
	d.pending.idle, d.pending.every = d.probe, cfg.RetryMax
	d.pending.rewind(d.at.Done)
	return d, nil
}

// Run delivers until soft is done or the journal is closed. It then lets the current attempt
// finish, unless ctx is done too; ctx must not be done before soft. The next Run, in this process
// or another, continues with the undelivered rows. Run closes the sink.
func (d *Delivery) Run(ctx, soft context.Context) error {
	if d.at.Plan == nil {
		d.probe(soft)
	}
	for {
		rows, err := d.next(soft)
		if err == nil {
			err = d.deliver(ctx, soft, rows)
		}
		switch {
		case err == nil:
		case soft.Err() != nil, errors.Is(err, durable.ErrClosed):
			if d.at.Plan != nil { // the cursor was saved with the plan
				return d.sink.Close()
			}
			return errors.Join(d.save(d.at), d.sink.Close())
		default: // the journal cannot be read, or the cursor cannot be saved
			if errors.As(err, new(*journal.CorruptError)) || errors.Is(err, batch.ErrFrame) {
				err = fmt.Errorf("%w; to list all damaged frames, run trafficctl journal verify", err)
			}
			d.report(err, "delivery failed; retrying")
			_ = sleep(soft, d.cfg.RetryMax) // if soft is done, next returns its error
			d.pending.rewind(d.at.Done)
		}
	}
}

// next returns the block in progress, possibly planned by an earlier Run, or plans a new one. The
// block's plan is saved by the time next returns.
func (d *Delivery) next(ctx context.Context) (batch.Block, error) {
	// The failed save may have reached the disk, so that another process would not repeat the block in
	// progress. And if no new row arrived, the journal could not delete frames.
	if d.unsaved {
		if err := d.save(d.at); err != nil {
			return nil, err
		}
		d.report(nil, "")
	}
	if d.at.Plan != nil {
		rows, err := d.pending.rowsUpTo(ctx, d.at.End)
		switch {
		case err != nil:
			return nil, err
		case len(rows) == 0: // the next Run starts at the oldest remaining row
			return nil, fmt.Errorf("%w: frames of the planned block were deleted", durable.ErrClosed)
		}
		d.begin(rows)
		return rows, nil
	}
	cfg := d.cfg
	cfg.MinRows = min(cfg.MinRows, d.limit) // do not wait for rows that the block cannot have
	for {
		rows, err := d.pending.gather(ctx, cfg)
		switch {
		case err != nil:
			return nil, err
		case len(rows) > 0:
			d.begin(rows)
			return d.plan(ctx, distinct(rows.Head(min(d.limit, rows.Rows()))))
		}
		if err := d.passEmptyFrames(); err != nil {
			return nil, err
		}
	}
}

// begin records that rows are about to be sent.
func (d *Delivery) begin(rows batch.Block) {
	d.behind.Store(rows[0].ReceivedAt)
	d.began.CompareAndSwap(0, time.Now().UnixNano())
}

// distinct truncates a block before the second batch with the same ID, so that batch ID and index
// identify a row in the block. A batch accepted again after the idempotency window has its old ID.
func distinct(rows batch.Block) batch.Block {
	seen := map[batch.ID]struct{}{}
	for i, s := range rows {
		if _, again := seen[s.ID]; again {
			return rows[:i]
		}
		if s.ID.Derived() {
			seen[s.ID] = struct{}{}
		}
	}
	return rows
}

// maxUnsavedFrames is the number of frames without rows after which the cursor is saved.
const maxUnsavedFrames = 64

// passEmptyFrames moves past frames without rows. It saves the cursor when no rows follow, and
// every maxUnsavedFrames frames, so that a journal full of such frames does not stay full.
func (d *Delivery) passEmptyFrames() error {
	d.at.Done = d.pending.end()
	idle := d.advance(0)
	if saved, _ := d.cursor.Load(); !idle && d.at.Done.Frame-saved < maxUnsavedFrames {
		return nil
	}
	return d.save(d.at)
}

// advance drops the first n rows, which end at d.at.Done. If no row follows, it also moves
// d.at.Done past frames without rows, and returns true.
func (d *Delivery) advance(n int) (idle bool) {
	d.pending.drop(n)
	d.began.Store(0)
	if idle = !d.pending.more(); idle {
		d.behind.Store(0)
		d.at.Done = d.pending.end()
	}
	at := d.at.Done
	d.reached.Store(&at)
	return idle
}

// plan asks the sink to plan the next block, and saves the plan before the first attempt.
func (d *Delivery) plan(ctx context.Context, rows batch.Block) (batch.Block, error) {
	var n int
	var plan []byte
	err := d.retry(ctx, "cannot plan a block; retrying", func() (err error) {
		n, plan, err = d.sink.Plan(ctx, d.at.State, rows)
		if err == nil && (n < 1 || n > rows.Rows()) {
			err = promisedBlock.broken(d.log, "the sink has planned %d of %d rows", n, rows.Rows())
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if plan == nil {
		plan = []byte{} // in a CursorStatus, nil means that no block is in progress
	}
	block := rows.Head(n)
	return block, d.save(CursorStatus{Done: d.at.Done, State: d.at.State, End: block.End(), Plan: plan})
}

func (d *Delivery) deliver(ctx, soft context.Context, rows batch.Block) error {
	var started time.Time
	var state []byte
	ctx, span := d.startSpan(ctx, rows)
	defer span.End()
	if err := d.checkBlock(rows); err != nil {
		return err
	}
	err := d.retry(soft, "cannot deliver a block; retrying", func() (err error) {
		if err = d.source.Confirm(); err != nil {
			return err
		}
		started = time.Now()
		if state, err = d.sink.Deliver(ctx, d.at.Plan, rows); err != nil {
			span.RecordError(err)
		}
		return err
	})
	if err == nil {
		d.addReceipts(rows)
		d.delivered(rows, state, started)
		return nil
	}
	span.SetStatus(codes.Error, "not delivered: "+err.Error())
	rejected, ok := errors.AsType[*batch.PermanentError](err)
	switch {
	case !ok:
		return err
	case rejected.Rejected != nil:
		n, err := d.bury(rejected.Rejected...)
		if err != nil {
			return err
		}
		d.addReceipts(rows, rejected.Rejected...)
		d.rows.Add(-int64(n)) // delivered counts the whole block
		limit := d.limit
		d.delivered(rows, state, started)
		d.limit = limit // a larger block may have too many such rows
		return nil
	case state == nil:
		state = d.at.State
	}
	return d.rejected(rows, state, rejected)
}

// maxLinks bounds the links in a span: a block may have rows from thousands of batches.
const maxLinks = 128

// startSpan starts a span that covers all attempts of this process to deliver a block. Unless a
// batch in the block is from a sampled request, the span is a no-op.
func (d *Delivery) startSpan(ctx context.Context, rows batch.Block) (context.Context, trace.Span) {
	var links []trace.Link
	for _, s := range rows {
		if s.Trace.IsSampled() && len(links) < maxLinks {
			links = append(links, trace.Link{SpanContext: s.Trace, Attributes: []attribute.KeyValue{attribute.Stringer("trafficd.batch_id", s.ID)}})
		}
	}
	if d.Tracer == nil || len(links) == 0 {
		return ctx, trace.SpanFromContext(context.Background())
	}
	return d.Tracer.Start(ctx, "deliver to "+d.name, trace.WithSpanKind(trace.SpanKindProducer), trace.WithLinks(links...),
		trace.WithAttributes(attribute.String("trafficd.sink", d.name), attribute.Int("trafficd.rows", rows.Rows()),
			attribute.Int("trafficd.batches", len(rows))))
}

// retry calls attempt until it succeeds, returns a *batch.PermanentError, or ctx is done. The wait
// between attempts is a random 50–100% of an interval that doubles up to RetryMax.
func (d *Delivery) retry(ctx context.Context, what string, attempt func() error) error {
	for wait := d.cfg.RetryMin; ; wait = min(2*wait, d.cfg.RetryMax) {
		err := attempt()
		if err == nil || errors.As(err, new(*batch.PermanentError)) {
			return err
		}
		d.report(err, what)
		if err := sleep(ctx, wait/2+rand.N(wait/2+1)); err != nil {
			return err
		}
	}
}

func sleep(ctx context.Context, wait time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(wait):
		return nil
	}
}

// delivered moves past a delivered block. The cursor is saved with the next plan. If the process
// restarts before that, the block is sent again, and the store recognises the duplicate.
func (d *Delivery) delivered(rows batch.Block, state []byte, started time.Time) {
	n := rows.Rows()
	d.at = CursorStatus{Done: rows.End(), State: state}
	d.rows.Add(int64(n))
	d.limit = min(2*d.limit, d.cfg.MaxRows)
	d.report(nil, "")
	d.log.Debug().Int("rows", n).Dur("took", time.Since(started)).Msg("delivered a block")
	if d.advance(n) { // there is no next plan yet: save the cursor now
		if err := d.save(d.at); err != nil {
			d.report(err, "cannot save the cursor; retrying")
		}
	}
}

// rejected limits the next block to half of the rejected rows or, if there is only one, writes it
// to the dead-letter file. It saves the sink's state with that.
func (d *Delivery) rejected(rows batch.Block, state []byte, cause *batch.PermanentError) error {
	if n := rows.Rows(); n > 1 {
		d.limit = n / 2
		d.log.Warn().Err(cause).Int("rows", n).Msg("the store rejected a block; halving it")
		return d.save(CursorStatus{Done: d.at.Done, State: state})
	}
	row := batch.RejectedRows{Rows: rows, Reason: cause.Err}
	if _, err := d.bury(row); err != nil {
		return err
	}
	d.addReceipts(rows, row)
	if err := d.save(CursorStatus{Done: rows.End(), State: state}); err != nil {
		return err // the row will be attempted again
	}
	if d.advance(1) {
		return d.save(d.at)
	}
	return nil
}

// bury writes rows to the dead-letter file, and returns their number.
func (d *Delivery) bury(rejected ...batch.RejectedRows) (n int, err error) {
	for _, r := range rejected {
		n += r.Rows.Rows()
	}
	first := rejected[0].Rows[0]
	if err := d.dead.Add(d.name, rejected...); err != nil {
		return 0, err
	}
	d.log.Error().Err(rejected[0].Reason).Int("rows", n).Str("batch", first.ID.String()).Uint32("index", first.Index[first.From]).
		Msg("the store permanently rejected measurements; wrote them to the dead-letter file")
	return n, nil
}

// addReceipts records that the store has the rows of a block, except for those that are in the
// dead-letter file. It is called before the cursor moves past the block, so that a crash loses
// none.
func (d *Delivery) addReceipts(rows batch.Block, dead ...batch.RejectedRows) {
	buried := map[uint64]uint32{} // by frame
	for _, r := range dead {
		for _, s := range r.Rows {
			buried[s.Frame] += uint32(s.To - s.From)
		}
	}
	list := make([]receipts.Receipt, 0, len(rows))
	for _, s := range rows {
		n := buried[s.Frame]
		list = append(list, receipts.Receipt{
			Batch: s.ID, Client: s.Client, ReceivedAt: s.ReceivedAt, Accepted: uint32(s.Batch.Rows()), Sink: d.name,
			First: uint32(s.From), Delivered: uint32(s.To-s.From) - n, Dead: n, At: time.Now().UnixMilli(),
		})
	}
	d.Receipts.Add(list...)
}

func (d *Delivery) probe(ctx context.Context) {
	if err := d.sink.Probe(ctx); err != nil || !d.unsaved {
		d.report(err, "the store cannot take rows; retrying")
	}
}

func (d *Delivery) save(p CursorStatus) error {
	var err error
	if p.Done.Before(d.saved) {
		err = promisedCursor.broken(d.log, "the cursor would move back from %v to %v", d.saved, p.Done)
	}
	if err == nil {
		err = d.quarantine(p.Done.Frame)
	}
	if err == nil {
		err = d.cursor.Save(p.Done.Frame, p.Encode())
	}
	if d.unsaved = err != nil; !d.unsaved {
		d.at, d.saved = p, p.Done
	}
	return err
}

// checkBlock returns an error unless the saved cursor has the plan of a block with these rows.
func (d *Delivery) checkBlock(rows batch.Block) error {
	frame, state := d.cursor.Load()
	first, end := batch.Position{Frame: rows[0].Frame, Row: uint32(rows[0].From)}, rows.End()
	switch {
	case frame != d.at.Done.Frame || !bytes.Equal(state, d.at.Encode()):
		return promisedBlock.broken(d.log, "the cursor saved at frame %d does not have the plan of the block at %v", frame, d.at.Done)
	case first.Before(d.at.Done) || end != d.at.End:
		return promisedBlock.broken(d.log, "the block has the rows from %v to %v, but was planned from %v to %v", first, end, d.at.Done, d.at.End)
	}
	return nil
}

// quarantine writes the broken records that precede a frame to the dead-letter file, so that the
// cursor can move past them.
func (d *Delivery) quarantine(before uint64) error {
	for len(d.pending.broken) > 0 && d.pending.broken[0].frame < before {
		r := d.pending.broken[0]
		if err := d.source.Confirm(); err != nil { // otherwise the next owner of the cursor does it
			return err
		}
		if err := d.dead.AddRecord(d.name, r.RecordError); err != nil {
			return err
		}
		d.log.Error().Err(r.RecordError).Msg("skipping a record that is not an intact frame; wrote it to the dead-letter file")
		d.pending.broken = d.pending.broken[1:]
	}
	return nil
}

// report records the outcome of an attempt. It logs the first of consecutive failures as a warning
// and the rest at debug level.
func (d *Delivery) report(err error, what string) {
	if errors.Is(err, context.Canceled) {
		return // the delivery is stopping
	}
	d.mu.Lock()
	before := d.trouble
	d.trouble = err
	d.mu.Unlock()
	switch {
	case err != nil && before == nil:
		d.log.Warn().Err(err).Msg(what)
	case err != nil:
		d.log.Debug().Err(err).Msg(what)
	case before != nil:
		d.log.Info().Msg("delivery has recovered")
	}
}

// Status is the state of a delivery, for the readiness check and metrics.
type Status struct {
	Lag     time.Duration // age of the oldest undelivered row, 0 if there is none
	Stalled time.Duration // for how long rows have been sent, but none was accepted; 0 while none are sent
	Waiting int64         // undelivered rows in the journal: an estimate from the mean number of rows of a frame
	Counted bool          // false if Waiting may be far too low, because no frame has been read yet
	Frames  uint64        // frames in the journal that are not completely delivered
	Rows    int64         // rows delivered by this process
	Trouble error         // error of the last attempt, nil if it succeeded
}

// Status returns the current status. It is safe for concurrent use.
func (d *Delivery) Status() Status {
	d.mu.Lock()
	s := Status{Rows: d.rows.Load(), Trouble: d.trouble}
	d.mu.Unlock()
	_, next := d.source.Bounds()
	at := *d.reached.Load()
	s.Frames = next - min(at.Frame, next)
	frames, rows := d.pending.frames.Load(), d.pending.total.Load()
	s.Counted = frames > 0 || s.Frames == 0
	if s.Frames > 0 { // never 0, which would mean that nothing waits
		mean := max(1, float64(rows)/float64(max(1, frames)))
		s.Waiting = max(1, int64(float64(s.Frames)*mean)-int64(at.Row))
	}
	if at := d.behind.Load(); at != 0 {
		s.Lag = max(time.Since(time.Unix(0, at)), 0)
	}
	if at := d.began.Load(); at != 0 {
		s.Stalled = max(time.Since(time.Unix(0, at)), 0)
	}
	return s
}

package pipeline

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"trafficd/pipeline/batch"
	"trafficd/pipeline/journal"
	"trafficd/pipeline/lib/durable"
	"trafficd/pipeline/lib/receipts"
)

// fakeStore recognises blocks by their plans, as real stores do by tokens or sequences, and fails
// at random.
type fakeStore struct {
	*rand.Rand
	rows    []string // in the order they were applied
	applied map[string]int
	rejects func(code string) bool
	state   int
	plans   int
	maxRows int
	down    bool
}

var errUnavailable = errors.New("the store is unavailable")

func (s *fakeStore) Plan(_ context.Context, state []byte, rows batch.Block) (int, []byte, error) {
	if s.down || s.IntN(5) == 0 {
		return 0, nil, errUnavailable
	}
	if want := fmt.Sprint(s.state); s.state > 0 && string(state) != want {
		return 0, nil, fmt.Errorf("got state %q, want %q", state, want)
	}
	s.plans++
	n := 1 + s.IntN(min(rows.Rows(), s.maxRows))
	first := rows[0]
	return n, fmt.Appendf(nil, "%d rows from %s/%d after %d", n, first.ID, first.From, s.state), nil
}

func (s *fakeStore) Deliver(_ context.Context, plan []byte, rows batch.Block) ([]byte, error) {
	if s.down || s.IntN(4) == 0 {
		return nil, errUnavailable
	}
	if _, known := s.applied[string(plan)]; !known {
		if err := s.apply(string(plan), rows); err != nil {
			return nil, err
		}
	}
	if s.applied[string(plan)] != rows.Rows() {
		return nil, fmt.Errorf("plan %s: got %d rows, want %d as before", plan, rows.Rows(), s.applied[string(plan)])
	}
	if s.IntN(4) == 0 {
		return nil, errors.New("the acknowledgement was lost")
	}
	return fmt.Append(nil, s.state), nil
}

func (s *fakeStore) apply(plan string, rows batch.Block) error {
	if !strings.HasPrefix(plan, fmt.Sprintf("%d rows from %s/%d", rows.Rows(), rows[0].ID, rows[0].From)) {
		return &batch.PermanentError{Err: fmt.Errorf("plan %q does not match the %d rows", plan, rows.Rows())}
	}
	var codes []string
	for _, span := range rows {
		for i := span.From; i < span.To; i++ {
			codes = append(codes, string(span.Code(i)))
			if s.rejects(codes[len(codes)-1]) {
				return &batch.PermanentError{Err: errors.New("the store does not accept " + codes[len(codes)-1])}
			}
		}
	}
	s.rows = append(s.rows, codes...)
	s.applied[plan] = rows.Rows()
	s.state += rows.Rows()
	return nil
}

func (s *fakeStore) Probe(context.Context) error {
	if s.down {
		return errUnavailable
	}
	return nil
}

func (s *fakeStore) Close() error { return nil }

func newFakeStore(seed uint64) *fakeStore {
	return &fakeStore{Rand: rand.New(rand.NewPCG(seed, 7)), applied: map[string]int{}, rejects: func(string) bool { return false }, maxRows: 40}
}

var quick = DeliveryConfig{MaxRows: 100, MinRows: 10, Linger: time.Millisecond, RetryMin: time.Millisecond, RetryMax: 2 * time.Millisecond}

// TestEachRowArrivesOnceAndInOrder submits batches while the delivery is killed and restarted,
// acknowledgements are lost, the cursor cannot be saved, and some rows are permanently rejected.
func TestEachRowArrivesOnceAndInOrder(t *testing.T) {
	for seed := range uint64(12) {
		r := rand.New(rand.NewPCG(seed, 1))
		h := open(t, t.TempDir())
		store := newFakeStore(seed)
		poison := seed%3 == 0
		store.rejects = func(code string) bool { return poison && strings.HasSuffix(code, "13") }
		dead := filepath.Join(h.dir, "dead.ndjson")
		known := &table{rows: map[receipts.Receipt]receipts.Receipt{}}
		waiting, err := receipts.Open(filepath.Join(h.dir, "receipts"), known, zerolog.Nop())
		require.NoError(t, err)
		h.receipts = waiting
		var want, rejected []string
		accepted, refused := map[batch.ID]int{}, map[batch.ID]int{}
		for n := range 30 {
			var items []string
			before := len(want)
			for i := range r.IntN(60) {
				code := fmt.Sprintf("%d-%d", n, i)
				items = append(items, item(code, i))
				if store.rejects(code) {
					rejected = append(rejected, code)
				} else {
					want = append(want, code)
				}
			}
			h.codes["city"] = set(codesOf(n)...)
			result, err := h.submit(measurements(items...), fmt.Sprint(n)) // with a key, batches without rows are stored too
			require.NoError(t, err)
			accepted[result.Result.ID] = len(items)
			refused[result.Result.ID] = len(items) - (len(want) - before)
			if r.IntN(4) == 0 {
				h.deliverFor(t, store, time.Duration(r.IntN(20))*time.Millisecond)
			}
			if r.IntN(15) == 0 {
				h.close()
				h = open(t, h.dir)
				h.receipts = waiting
			}
		}
		enough := 30 * time.Millisecond
		require.Eventually(t, func() bool {
			h.deliverFor(t, store, enough)
			enough += enough / 4 // the machine may be slow
			return len(store.rows) >= len(want)
		}, time.Minute, time.Microsecond)
		h.deliverAll(t, store)
		require.Equal(t, want, store.rows, "seed %d", seed)
		require.Equal(t, rejected, deadCodes(t, dead), "seed %d", seed)
		done, _ := h.journal.Cursor("sink").Load()
		_, next := h.journal.Bounds()
		require.Equal(t, next, done, "the cursor is at the end")
		require.NoError(t, waiting.Close(t.Context()))
		delivered, buried := map[batch.ID]int{}, map[batch.ID]int{}
		for _, r := range known.rows {
			require.Equal(t, "city", r.Client)
			require.EqualValues(t, accepted[r.Batch], r.Accepted)
			delivered[r.Batch] += int(r.Delivered)
			buried[r.Batch] += int(r.Dead)
		}
		for id, n := range accepted {
			require.Equal(t, refused[id], buried[id], "seed %d", seed)
			require.Equal(t, n-refused[id], delivered[id], "seed %d", seed)
		}
		h.close()
	}
}

func codesOf(n int) (list []string) {
	for i := range 60 {
		list = append(list, fmt.Sprintf("%d-%d", n, i))
	}
	return list
}

// deliverFor runs a delivery for the given time. Its state in memory is lost.
func (h *fixture) deliverFor(t *testing.T, store Sink, d time.Duration) {
	delivery := h.delivery(t, quick, store)
	delivery.cursor = flaky{delivery.cursor}
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	if err := delivery.Run(ctx, ctx); !errors.Is(err, errDisk) {
		require.NoError(t, err)
	}
}

// flaky is a cursor whose saves fail at random, before or after writing to disk.
type flaky struct{ durable.Cursor }

func (c flaky) Save(frame uint64, state []byte) error {
	switch rand.IntN(12) {
	case 0:
		return errDisk
	case 1:
		return errors.Join(c.Cursor.Save(frame, state), errDisk)
	}
	return c.Cursor.Save(frame, state)
}

// delivery returns a delivery from the journal to a store.
func (h *fixture) delivery(t *testing.T, cfg DeliveryConfig, store Sink) *Delivery {
	t.Helper()
	d, err := NewDelivery("sink", cfg, Local(h.journal, "sink"), store, NewDeadLetters(filepath.Join(h.dir, "dead.ndjson")), zerolog.Nop())
	require.NoError(t, err)
	d.Receipts = h.receipts
	return d
}

// table is a receipts.Store in memory.
type table struct {
	mu   sync.Mutex
	rows map[receipts.Receipt]receipts.Receipt // by what identifies a receipt
}

func (s *table) PutReceipts(_ context.Context, list []receipts.Receipt) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range list {
		s.rows[receipts.Receipt{Batch: r.Batch, ReceivedAt: r.ReceivedAt, Sink: r.Sink, First: r.First}] = r
	}
	return nil
}

func (s *table) Receipts(context.Context, batch.ID, string) ([]receipts.Receipt, error) {
	return nil, nil
}

// run starts a delivery and returns a function that stops it.
func run(t *testing.T, d *Delivery) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- d.Run(ctx, ctx) }()
	return func() {
		t.Helper()
		cancel()
		require.NoError(t, <-ended)
	}
}

// deliverAll runs a delivery until it reaches the end of the journal.
func (h *fixture) deliverAll(t *testing.T, store Sink) {
	t.Helper()
	d := h.delivery(t, quick, store)
	defer run(t, d)()
	_, next := h.journal.Bounds()
	require.Eventually(t, func() bool {
		done, _ := h.journal.Cursor("sink").Load()
		return done == next && d.Status().Waiting == 0
	}, time.Minute, time.Millisecond)
}

func deadCodes(t *testing.T, path string) (codes []string) {
	text, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		return nil
	}
	require.NoError(t, err)
	for _, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
		var l DeadLetter
		require.NoError(t, json.Unmarshal([]byte(line), &l))
		require.NotEmpty(t, l.Reason)
		if code := l.Item.DetectorCode; len(codes) == 0 || codes[len(codes)-1] != code { // a crash may repeat a line
			codes = append(codes, code)
		}
	}
	return codes
}

func TestUnavailableStoreDoesNotStopTheOther(t *testing.T) {
	h := open(t, t.TempDir())
	defer h.close()
	h.stopCopying() // the other delivery uses its cursor
	h.codes["city"] = set("A")
	down, up := newFakeStore(1), newFakeStore(2)
	down.down = true
	d := h.delivery(t, quick, down)
	defer run(t, d)()
	other, err := NewDelivery(IdempotencyConsumer, quick, Local(h.journal, IdempotencyConsumer), up, NewDeadLetters(filepath.Join(h.dir, "d")), zerolog.Nop())
	require.NoError(t, err)
	defer run(t, other)()
	for range 20 {
		_, err := h.submit(measurements(item("A", 1)), "")
		require.NoError(t, err)
	}
	require.Eventually(t, func() bool { s := other.Status(); return s.Rows == 20 && s.Lag == 0 }, time.Minute, time.Millisecond)
	require.Eventually(t, func() bool { return errors.Is(d.Status().Trouble, errUnavailable) }, time.Minute, time.Millisecond)
	require.Positive(t, d.Status().Lag)
	require.Zero(t, d.Status().Rows)
}

// halfway is a sink that stores the first row of a block, rejects the others, and records this in
// its state.
type halfway struct {
	applied []string
	states  []string
}

func (h *halfway) Plan(_ context.Context, state []byte, rows batch.Block) (int, []byte, error) {
	h.states = append(h.states, string(state))
	return rows.Rows(), []byte("plan"), nil
}

func (h *halfway) Deliver(_ context.Context, _ []byte, rows batch.Block) ([]byte, error) {
	first := string(rows[0].Code(rows[0].From))
	if rows.Rows() == 1 && len(h.applied) == 1 {
		h.applied = append(h.applied, first)
		return []byte("all"), nil
	}
	h.applied = []string{first}
	return []byte(first + " is stored"), &batch.PermanentError{Err: errors.New("not the others")}
}

func (h *halfway) Probe(context.Context) error { return nil }

func (h *halfway) Close() error { return nil }

// choosy is a sink that stores each block except the rows of detector B.
type choosy struct{ recorder }

func (s *choosy) Deliver(ctx context.Context, plan []byte, rows batch.Block) ([]byte, error) {
	state, _ := s.recorder.Deliver(ctx, plan, rows)
	var rejected batch.Block
	for _, span := range rows {
		for i := span.From; i < span.To; i++ {
			if string(span.Code(i)) == "B" {
				rejected = append(rejected, batch.Span{Batch: span.Batch, Frame: span.Frame, From: i, To: i + 1})
			}
		}
	}
	if rejected != nil {
		return state, &batch.PermanentError{Err: errors.New("some"), Rejected: []batch.RejectedRows{{Rows: rejected, Reason: errors.New("not B")}}}
	}
	return state, nil
}

// TestRejectedRowsOfStoredBlock checks that the rows that a sink names are dead-lettered, and that
// the rest of their block is not sent again.
func TestRejectedRowsOfStoredBlock(t *testing.T) {
	h := open(t, t.TempDir())
	defer h.close()
	h.codes["city"] = set("A", "B", "C")
	_, err := h.submit(measurements(item("A", 1), item("B", 2), item("C", 3), item("B", 4)), "")
	require.NoError(t, err)
	store := &choosy{}
	d := h.delivery(t, quick, store)
	stop := run(t, d)
	require.Eventually(t, func() bool { return d.Status().Frames == 0 }, time.Minute, time.Millisecond)
	_, err = h.submit(measurements(item("C", 5)), "")
	require.NoError(t, err)
	require.Eventually(t, func() bool { return d.Status().Rows == 3 }, time.Minute, time.Millisecond)
	require.NoError(t, d.Status().Trouble)
	stop()
	require.Equal(t, "ABCBC", strings.Join(store.codes, ""), "each row once")
	require.Equal(t, []string{"", "all"}, store.states)
	text, err := os.ReadFile(filepath.Join(h.dir, "dead.ndjson"))
	require.NoError(t, err)
	require.Equal(t, 2, strings.Count(string(text), `"detectorCode":"B"`))
	require.Equal(t, 2, strings.Count(string(text), "\n"))
}

func TestStateOfRejectedBlockIsKept(t *testing.T) {
	h := open(t, t.TempDir())
	defer h.close()
	_, err := h.submit(measurements(item("A", 1), item("B", 2)), "")
	require.NoError(t, err)
	store := &halfway{}
	h.deliverAll(t, store)
	require.Equal(t, []string{"", "A is stored", "all"}, store.states)
}

// planless is an unavailable store whose sink plans one row at a time, with a fixed plan.
type planless struct {
	recorder
	plan []byte
}

func (s *planless) Plan(context.Context, []byte, batch.Block) (int, []byte, error) {
	return 1, s.plan, nil
}

func (s *planless) Deliver(context.Context, []byte, batch.Block) ([]byte, error) {
	return nil, errUnavailable
}

// TestBlockWithEmptyPlanIsKept checks that after a restart, a block whose plan is empty or nil is
// delivered as it was planned.
func TestBlockWithEmptyPlanIsKept(t *testing.T) {
	f := func(plan []byte) {
		t.Helper()
		h := open(t, t.TempDir())
		defer h.close()
		_, err := h.submit(measurements(item("A", 1), item("B", 2), item("C", 3)), "")
		require.NoError(t, err)
		d := h.delivery(t, quick, &planless{plan: plan})
		stop := run(t, d)
		require.Eventually(t, func() bool { return d.Status().Trouble != nil }, time.Minute, time.Millisecond)
		stop()

		frame, state := h.journal.Cursor("sink").Load()
		saved, err := DescribeCursor(frame, state)
		require.NoError(t, err)
		require.NotNil(t, saved.Plan)
		require.Equal(t, batch.Position{Frame: frame, Row: 1}, saved.End)
		rows, err := h.delivery(t, quick, &recorder{}).next(t.Context()) // recorder plans all rows
		require.NoError(t, err)
		require.Equal(t, 1, rows.Rows(), "the rows that were planned before the restart")
	}
	f(nil)
	f([]byte{})
}

func TestFramesWithoutRowsAreSkipped(t *testing.T) {
	h := open(t, t.TempDir())
	defer h.close()
	for n := range 2 * maxUnsavedFrames {
		_, err := h.submit(measurements(item("unknown", n)), fmt.Sprint(n))
		require.NoError(t, err)
	}
	store := newFakeStore(1)
	h.deliverAll(t, store)
	require.Zero(t, store.plans)
}

// TestUnreadableFrameIsNotPassed checks that an unreadable frame, for example of another version,
// stops the delivery with an error. Rows before it are delivered, and rows after it wait for a
// daemon that can read it.
func TestUnreadableFrameIsNotPassed(t *testing.T) {
	f := func(cfg DeliveryConfig) {
		t.Helper()
		h := open(t, t.TempDir())
		defer h.close()
		h.codes["city"] = set("before", "after")
		_, err := h.submit(measurements(item("before", 1)), "")
		require.NoError(t, err)
		bad := &durable.Entry{Data: []byte{255, 2, 3}}
		require.NoError(t, h.journal.Enqueue(bad))
		require.NoError(t, bad.Wait())
		_, err = h.submit(measurements(item("after", 1)), "")
		require.NoError(t, err)

		store := newFakeStore(1)
		d := h.delivery(t, cfg, store)
		stop := run(t, d)
		require.Eventually(t, func() bool { return errors.Is(d.Status().Trouble, batch.ErrFrame) }, time.Minute, time.Millisecond)
		require.Eventually(t, func() bool { return d.Status().Rows > 0 }, time.Minute, time.Millisecond)
		require.Eventually(t, func() bool { return errors.Is(d.Status().Trouble, batch.ErrFrame) }, time.Minute, time.Millisecond)
		require.ErrorContains(t, d.Status().Trouble, "trafficctl journal verify")
		stop()
		require.Equal(t, []string{"before"}, store.rows)
		done, _ := h.journal.Cursor("sink").Load()
		require.Equal(t, bad.Seq, done)
	}
	f(quick)
	one := quick
	one.MaxRows, one.MinRows = 1, 1
	f(one)
	one.Linger = 0
	f(one)
}

// brokenCursor is a cursor whose saves fail while broken is set.
type brokenCursor struct {
	durable.Cursor
	broken atomic.Bool
	failed atomic.Int64
}

var errDisk = errors.New("the disk has failed")

func (c *brokenCursor) Save(frame uint64, state []byte) error {
	if c.broken.Load() {
		c.failed.Add(1)
		return errDisk
	}
	return c.Cursor.Save(frame, state)
}

// TestUnsavedCursorIsRetried checks that a cursor that could not be saved is saved as soon as
// possible, not with the next row: until then the journal may be full.
func TestUnsavedCursorIsRetried(t *testing.T) {
	h := open(t, t.TempDir())
	defer h.close()
	_, err := h.submit(measurements(item("A", 1)), "")
	require.NoError(t, err)
	disk := &brokenCursor{}
	store := &recorder{delivered: func() { disk.broken.Store(true) }}
	d := h.delivery(t, quick, store)
	disk.Cursor, d.cursor = d.cursor, disk
	stop := run(t, d)
	require.Eventually(t, func() bool { return disk.failed.Load() > 2 }, time.Minute, time.Millisecond)
	require.ErrorIs(t, d.Status().Trouble, errDisk)
	disk.broken.Store(false)
	_, next := h.journal.Bounds()
	require.Eventually(t, func() bool {
		done, _ := h.journal.Cursor("sink").Load()
		return done == next && d.Status().Trouble == nil
	}, time.Minute, time.Millisecond)
	stop()
	require.Equal(t, []string{"A"}, store.codes, "each row once")
}

// recorder accepts every block and records its rows and states.
type recorder struct {
	codes     []string
	states    []string
	delivered func() // called for each block; may be nil
}

func (s *recorder) Plan(_ context.Context, state []byte, rows batch.Block) (int, []byte, error) {
	s.states = append(s.states, string(state))
	return rows.Rows(), []byte("plan"), nil
}

func (s *recorder) Deliver(_ context.Context, _ []byte, rows batch.Block) ([]byte, error) {
	for _, span := range rows {
		for i := span.From; i < span.To; i++ {
			s.codes = append(s.codes, string(span.Code(i)))
		}
	}
	if s.delivered != nil {
		s.delivered()
	}
	return []byte("all"), nil
}

func (s *recorder) Probe(context.Context) error { return nil }

func (s *recorder) Close() error { return nil }

// TestSameBatchAcceptedAgain checks that after the idempotency window, the same key and body are
// accepted again under the same ID. Both batches are delivered, in two blocks, so that a sink can
// identify a row of a block by ID and index.
func TestSameBatchAcceptedAgain(t *testing.T) {
	h := open(t, t.TempDir())
	defer h.close()
	h.stopCopying()
	var ids []batch.ID
	for n := range 3 {
		h.store.now = func() time.Time { return time.Now().Add(time.Duration(n) * 61 * time.Minute) }
		h.setClock(h.store.now)
		s, err := h.submit(measurements(item("A", 1), item("B", 2)), "k")
		require.NoError(t, err)
		require.False(t, s.Result.Replay)
		require.EqualValues(t, 8, s.Result.ID[6]>>4, "a UUIDv8")
		ids = append(ids, s.Result.ID)
		_, err = h.submit(measurements(item("A", 1)), "")
		require.NoError(t, err)
	}
	require.Equal(t, []batch.ID{ids[0], ids[0], ids[0]}, ids)
	store := &recorder{}
	h.deliverAll(t, store)
	require.Equal(t, "ABAABAABA", strings.Join(store.codes, ""))
	require.Len(t, store.states, 3, "one block for each acceptance")
}

// TestReenabledDeliveryStartsOver checks that a delivery that was disabled until frames it had not
// read were deleted continues with the oldest remaining row: the row, plan and state of its cursor
// refer to deleted frames.
func TestReenabledDeliveryStartsOver(t *testing.T) {
	f := func(before CursorStatus, wantState string) {
		t.Helper()
		h := &fixture{t: t, dir: t.TempDir()}
		cfg := journal.DefaultConfig()
		cfg.Dir, cfg.SegmentBytes, cfg.MaxBytes = filepath.Join(h.dir, "journal"), 64<<10, 192<<20
		reopen := func(consumer string) {
			t.Helper()
			if h.journal != nil {
				require.NoError(t, h.journal.Close())
			}
			var err error
			h.journal, err = journal.Open(cfg, []string{consumer})
			require.NoError(t, err)
		}
		reopen("sink")
		h.add(t, 5)
		require.NoError(t, h.journal.Cursor("sink").Save(before.Done.Frame, before.Encode()))
		reopen("other")
		h.add(t, 200)
		_, next := h.journal.Bounds()
		require.NoError(t, h.journal.Cursor("other").Save(next, nil))
		oldest, _ := h.journal.Bounds()
		require.Greater(t, oldest, uint64(5), "frames were deleted")

		reopen("sink")
		store := &recorder{}
		h.deliverAll(t, store)
		require.Equal(t, wantState, store.states[0])
		var want []string
		for frame := oldest; frame < next; frame++ {
			for row := range rowsOfFrame {
				want = append(want, fmt.Sprintf("%d-%d", frame, row))
			}
		}
		require.Equal(t, want, store.codes)
		require.NoError(t, h.journal.Close())
	}
	f(CursorStatus{Done: batch.Position{Frame: 2}}, "")
	f(CursorStatus{Done: batch.Position{Frame: 2, Row: 7}, State: []byte("old")}, "")
	f(CursorStatus{Done: batch.Position{Frame: 2, Row: 7}, State: []byte("old"), End: batch.Position{Frame: 4, Row: 1}, Plan: []byte("plan")}, "")
}

const rowsOfFrame = 20

// add appends frames whose detector codes contain the frame number.
func (h *fixture) add(t *testing.T, frames int) {
	t.Helper()
	for range frames {
		_, frame := h.journal.Bounds()
		b := &batch.Batch{ProductInstance: "city"}
		b.TypeText, b.TypeEnd = []byte("speed"), []uint32{5}
		for row := range rowsOfFrame {
			b.Codes = fmt.Appendf(b.Codes, "%d-%d", frame, row)
			b.CodeEnd = append(b.CodeEnd, uint32(len(b.Codes)))
			b.Type, b.Index = append(b.Type, 0), append(b.Index, uint32(row))
			b.From, b.To = append(b.From, 0), append(b.To, 0)
			b.Value, b.Quality = append(b.Value, 1), append(b.Quality, 1)
		}
		e := &durable.Entry{Data: batch.AppendFrame(nil, b, nil)}
		require.NoError(t, h.journal.Enqueue(e))
		require.NoError(t, e.Wait())
		require.Equal(t, frame, e.Seq)
	}
}

// TestIdleDeliveryIsAtTheEnd checks that frames without rows after the last row are passed
// immediately, because the next row might not arrive for a long time.
func TestIdleDeliveryIsAtTheEnd(t *testing.T) {
	h := open(t, t.TempDir())
	defer h.close()
	_, err := h.submit(measurements(item("A", 1)), "")
	require.NoError(t, err)
	for n := range 3 {
		_, err := h.submit(measurements(item("unknown", n)), fmt.Sprint(n))
		require.NoError(t, err)
	}
	d := h.delivery(t, quick, newFakeStore(1))
	defer run(t, d)()
	_, next := h.journal.Bounds()
	require.Eventually(t, func() bool {
		done, _ := h.journal.Cursor("sink").Load()
		return done == next && d.reached.Load().Frame == next
	}, time.Minute, time.Millisecond)
	require.EqualValues(t, 1, d.Status().Rows)
}

// TestRejectedRowIsNotBehind checks that a row in the dead-letter file no longer counts as
// undelivered, even if no row follows it.
func TestRejectedRowIsNotBehind(t *testing.T) {
	h := open(t, t.TempDir())
	defer h.close()
	_, err := h.submit(measurements(item("A", 1)), "")
	require.NoError(t, err)
	_, err = h.submit(measurements(item("unknown", 1)), "frame without rows")
	require.NoError(t, err)
	store := newFakeStore(1)
	store.rejects = func(string) bool { return true }
	d := h.delivery(t, quick, store)
	defer run(t, d)()
	_, next := h.journal.Bounds()
	require.Eventually(t, func() bool {
		done, _ := h.journal.Cursor("sink").Load()
		return done == next
	}, time.Minute, time.Millisecond)
	require.Eventually(t, func() bool { s := d.Status(); return s.Lag == 0 && s.Frames == 0 && s.Waiting == 0 }, time.Minute, time.Millisecond)
}

func TestDeliveryBounds(t *testing.T) {
	require.NoError(t, quick.Validate())
	f := func(want string, change func(*DeliveryConfig)) {
		t.Helper()
		c := quick
		change(&c)
		require.ErrorContains(t, c.Validate(), want)
	}
	f("max_rows", func(c *DeliveryConfig) { c.MaxRows = 0 })
	f("linger", func(c *DeliveryConfig) { c.Linger = time.Hour })
}

// idleStore is a store that gets no rows.
type idleStore struct {
	fakeStore
	away atomic.Bool
}

func (s *idleStore) Probe(context.Context) error {
	if s.away.Load() {
		return errUnavailable
	}
	return nil
}

// TestIdleStoreIsProbed checks that a store that is down is reported before the first row arrives,
// and that one line is logged each time it fails or recovers.
func TestIdleStoreIsProbed(t *testing.T) {
	h := open(t, t.TempDir())
	defer h.close()
	var log bytes.Buffer // of the delivery's goroutine until it has ended
	store := &idleStore{}
	store.away.Store(true)
	d, err := NewDelivery("sink", quick, Local(h.journal, "sink"), store, NewDeadLetters(filepath.Join(h.dir, "d")), zerolog.New(&log).Level(zerolog.InfoLevel))
	require.NoError(t, err)
	stop := run(t, d)
	awaitTrouble := func(err error) {
		t.Helper()
		require.Eventually(t, func() bool { return errors.Is(d.Status().Trouble, err) }, time.Minute, time.Millisecond)
	}
	awaitTrouble(errUnavailable)
	time.Sleep(20 * time.Millisecond) // further probes
	store.away.Store(false)
	awaitTrouble(nil)
	store.away.Store(true)
	awaitTrouble(errUnavailable)
	stop()
	require.Equal(t, 2, strings.Count(log.String(), "the store cannot take rows"), log.String())
	require.Equal(t, 1, strings.Count(log.String(), "delivery has recovered"), log.String())
}

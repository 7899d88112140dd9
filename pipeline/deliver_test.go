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
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"trafficd/pipeline/batch"
	"trafficd/pipeline/journal"
)

// fakeStore recognizes blocks by their plan, as real stores do by token or sequence, and fails at
// random.
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
		return 0, nil, fmt.Errorf("state %q, wanted %q", state, want)
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
		return nil, fmt.Errorf("plan %s came with %d rows, then with %d", plan, s.applied[string(plan)], rows.Rows())
	}
	if s.IntN(4) == 0 {
		return nil, errors.New("the acknowledgement was lost")
	}
	return fmt.Append(nil, s.state), nil
}

func (s *fakeStore) apply(plan string, rows batch.Block) error {
	if !strings.HasPrefix(plan, fmt.Sprintf("%d rows from %s/%d", rows.Rows(), rows[0].ID, rows[0].From)) {
		return &batch.PermanentError{Err: fmt.Errorf("plan %q is not for these %d rows", plan, rows.Rows())}
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
		var want, rejected []string
		for n := range 30 {
			var items []string
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
			_, err := h.submit(measurements(items...), fmt.Sprint(n)) // with a key, batches without rows are stored too
			require.NoError(t, err)
			if r.IntN(4) == 0 {
				h.deliverFor(t, store, dead, time.Duration(r.IntN(20))*time.Millisecond)
			}
			if r.IntN(15) == 0 {
				h.close()
				h = open(t, h.dir)
			}
		}
		enough := 30 * time.Millisecond
		require.Eventually(t, func() bool {
			h.deliverFor(t, store, dead, enough)
			enough += enough / 4 // the machine may be slow
			return len(store.rows) >= len(want)
		}, time.Minute, time.Microsecond)
		h.deliverAll(t, store)
		require.Equal(t, want, store.rows, "seed %d", seed)
		require.Equal(t, rejected, deadCodes(t, dead), "seed %d", seed)
		done, _ := h.journal.Cursor("sink").Load()
		_, next := h.journal.Bounds()
		require.Equal(t, next, done, "the cursor is at the end")
		h.close()
	}
}

func codesOf(n int) (list []string) {
	for i := range 60 {
		list = append(list, fmt.Sprintf("%d-%d", n, i))
	}
	return list
}

// deliverFor runs a delivery for a while and discards its state in memory.
func (h *fixture) deliverFor(t *testing.T, store Sink, dead string, d time.Duration) {
	delivery, err := NewDelivery("sink", quick, Local(h.journal, "sink"), store, NewDeadLetters(dead), zerolog.Nop())
	require.NoError(t, err)
	delivery.cursor = flaky{delivery.cursor}
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	if err := delivery.Run(ctx, ctx); !errors.Is(err, errDisk) {
		require.NoError(t, err)
	}
}

// flaky is a cursor whose saves fail at random, before or after they are on disk.
type flaky struct{ Cursor }

func (c flaky) Save(frame uint64, state []byte) error {
	switch rand.IntN(12) {
	case 0:
		return errDisk
	case 1:
		return errors.Join(c.Cursor.Save(frame, state), errDisk)
	}
	return c.Cursor.Save(frame, state)
}

// deliverAll runs a delivery until it reaches the end of the journal.
func (h *fixture) deliverAll(t *testing.T, store Sink) {
	t.Helper()
	d, err := NewDelivery("sink", quick, Local(h.journal, "sink"), store, NewDeadLetters(filepath.Join(h.dir, "dead.ndjson")), zerolog.Nop())
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- d.Run(ctx, ctx) }()
	_, next := h.journal.Bounds()
	require.Eventually(t, func() bool {
		done, _ := h.journal.Cursor("sink").Load()
		return done == next && d.Status().Waiting == 0
	}, time.Minute, time.Millisecond)
	cancel()
	require.NoError(t, <-ended)
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
	h.codes["city"] = set("A")
	down, up := newFakeStore(1), newFakeStore(2)
	down.down = true
	d, err := NewDelivery("sink", quick, Local(h.journal, "sink"), down, NewDeadLetters(filepath.Join(h.dir, "d")), zerolog.Nop())
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- d.Run(ctx, ctx) }()
	other, err := NewDelivery(IdempotencyConsumer, quick, Local(h.journal, IdempotencyConsumer), up, NewDeadLetters(filepath.Join(h.dir, "d")), zerolog.Nop())
	require.NoError(t, err)
	go func() { ended <- other.Run(ctx, ctx) }()
	for range 20 {
		_, err := h.submit(measurements(item("A", 1)), "")
		require.NoError(t, err)
	}
	require.Eventually(t, func() bool { s := other.Status(); return s.Rows == 20 && s.Lag == 0 }, time.Minute, time.Millisecond)
	require.Eventually(t, func() bool { return errors.Is(d.Status().Trouble, errUnavailable) }, time.Minute, time.Millisecond)
	require.Positive(t, d.Status().Lag)
	require.Zero(t, d.Status().Rows)
	cancel()
	require.NoError(t, <-ended)
	require.NoError(t, <-ended)
}

// halfway stores the first row of a block, rejects the rest, and records this in its state.
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

func TestStateOfARejectedBlockIsKept(t *testing.T) {
	h := open(t, t.TempDir())
	defer h.close()
	_, err := h.submit(measurements(item("A", 1), item("B", 2)), "")
	require.NoError(t, err)
	store := &halfway{}
	h.deliverAll(t, store)
	require.Equal(t, []string{"", "A is stored", "all"}, store.states)
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
		h.codes["city"] = set("before", "behind")
		_, err := h.submit(measurements(item("before", 1)), "")
		require.NoError(t, err)
		bad := &journal.Entry{Data: []byte{255, 2, 3}}
		require.NoError(t, h.journal.Enqueue(bad))
		require.NoError(t, bad.Wait())
		_, err = h.submit(measurements(item("behind", 1)), "")
		require.NoError(t, err)

		store := newFakeStore(1)
		d, err := NewDelivery("sink", cfg, Local(h.journal, "sink"), store, NewDeadLetters(filepath.Join(h.dir, "d")), zerolog.Nop())
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error)
		go func() { ended <- d.Run(ctx, ctx) }()
		require.Eventually(t, func() bool { return errors.Is(d.Status().Trouble, batch.ErrFrame) }, time.Minute, time.Millisecond)
		require.Eventually(t, func() bool { return d.Status().Rows > 0 }, time.Minute, time.Millisecond)
		require.Eventually(t, func() bool { return errors.Is(d.Status().Trouble, batch.ErrFrame) }, time.Minute, time.Millisecond)
		cancel()
		require.NoError(t, <-ended)
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
	Cursor
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
	d, err := NewDelivery("sink", quick, Local(h.journal, "sink"), store, NewDeadLetters(filepath.Join(h.dir, "d")), zerolog.Nop())
	require.NoError(t, err)
	disk.Cursor, d.cursor = d.cursor, disk
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- d.Run(ctx, ctx) }()
	require.Eventually(t, func() bool { return disk.failed.Load() > 2 }, time.Minute, time.Millisecond)
	require.ErrorIs(t, d.Status().Trouble, errDisk)
	disk.broken.Store(false)
	_, next := h.journal.Bounds()
	require.Eventually(t, func() bool {
		done, _ := h.journal.Cursor("sink").Load()
		return done == next && d.Status().Trouble == nil
	}, time.Minute, time.Millisecond)
	cancel()
	require.NoError(t, <-ended)
	require.Equal(t, []string{"A"}, store.codes, "once")
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
	var ids []batch.ID
	for n := range 3 {
		h.store.now = func() time.Time { return time.Now().Add(time.Duration(n) * 61 * time.Minute) }
		h.intake.now = h.store.now
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

// TestReenabledDeliveryStartsOver checks that a delivery that was disabled for so long that frames
// it never read were deleted continues with the oldest remaining row: row, plan and state of its
// cursor refer to deleted frames.
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
		require.NoError(t, h.journal.Cursor("sink").Save(before.Done.Frame, before.encode()))
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
		e := &journal.Entry{Data: batch.AppendFrame(nil, b, nil), Rows: b.Rows()}
		require.NoError(t, h.journal.Enqueue(e))
		require.NoError(t, e.Wait())
		require.Equal(t, frame, e.Seq)
	}
}

// TestIdleDeliveryIsAtTheEnd checks that frames without rows after the last row are passed
// immediately: the next row may be a long time off.
func TestIdleDeliveryIsAtTheEnd(t *testing.T) {
	h := open(t, t.TempDir())
	defer h.close()
	_, err := h.submit(measurements(item("A", 1)), "")
	require.NoError(t, err)
	for n := range 3 {
		_, err := h.submit(measurements(item("unknown", n)), fmt.Sprint(n))
		require.NoError(t, err)
	}
	d, err := NewDelivery("sink", quick, Local(h.journal, "sink"), newFakeStore(1), NewDeadLetters(filepath.Join(h.dir, "d")), zerolog.Nop())
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- d.Run(ctx, ctx) }()
	_, next := h.journal.Bounds()
	require.Eventually(t, func() bool {
		done, _ := h.journal.Cursor("sink").Load()
		return done == next && d.reached.Load() == next
	}, time.Minute, time.Millisecond)
	require.EqualValues(t, 1, d.Status().Rows)
	cancel()
	require.NoError(t, <-ended)
}

func TestProgressRoundTrip(t *testing.T) {
	f := func(p CursorStatus) {
		t.Helper()
		b := p.encode()
		got, err := DescribeCursor(p.Done.Frame, b)
		require.NoError(t, err)
		require.Equal(t, p, got)
		for n := 1; n < len(b); n++ {
			if _, err := DescribeCursor(p.Done.Frame, b[:n]); err == nil {
				t.Fatalf("decoded %d of %d bytes", n, len(b))
			}
		}
	}
	f(CursorStatus{Done: batch.Position{Frame: 3}})
	f(CursorStatus{Done: batch.Position{Frame: 3, Row: 70_000}, State: []byte("abc")})
	f(CursorStatus{Done: batch.Position{Frame: 3, Row: 7}, State: []byte("abc"), End: batch.Position{Frame: 900, Row: 2}, Plan: []byte("plan")})
	f(CursorStatus{End: batch.Position{Frame: 1}, Plan: []byte{}})
	moved, err := DescribeCursor(4, CursorStatus{Done: batch.Position{Frame: 3, Row: 7}, State: []byte("abc")}.encode())
	require.NoError(t, err)
	require.Equal(t, CursorStatus{Done: batch.Position{Frame: 4}}, moved)
	_, err = DescribeCursor(1, []byte{9})
	require.ErrorIs(t, err, errProgress)
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
	f("min_rows", func(c *DeliveryConfig) { c.MinRows = 101 })
	f("linger", func(c *DeliveryConfig) { c.Linger = time.Hour })
	f("retry_min", func(c *DeliveryConfig) { c.RetryMin = 0 })
}

// idleStore does not expect rows.
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

// TestIdleStoreIsProbed checks that a store that is down is reported before the first row arrives:
// one line is logged then, and one when the store has recovered.
func TestIdleStoreIsProbed(t *testing.T) {
	h := open(t, t.TempDir())
	defer h.close()
	var log bytes.Buffer // of the delivery's goroutine until it has ended
	store := &idleStore{}
	store.away.Store(true)
	d, err := NewDelivery("sink", quick, Local(h.journal, "sink"), store, NewDeadLetters(filepath.Join(h.dir, "d")), zerolog.New(&log).Level(zerolog.InfoLevel))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- d.Run(ctx, ctx) }()
	known := func(err error) {
		t.Helper()
		require.Eventually(t, func() bool { return errors.Is(d.Status().Trouble, err) }, time.Minute, time.Millisecond)
	}
	known(errUnavailable)
	time.Sleep(20 * time.Millisecond) // further probes
	store.away.Store(false)
	known(nil)
	store.away.Store(true)
	known(errUnavailable)
	cancel()
	require.NoError(t, <-ended)
	require.Equal(t, 2, strings.Count(log.String(), "the store cannot take rows"), log.String())
	require.Equal(t, 1, strings.Count(log.String(), "delivery has recovered"), log.String())
}

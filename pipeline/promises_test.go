package pipeline

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"trafficd/pipeline/batch"
)

// TestBrokenPromises breaks each promise, as a bug would, and expects that it is counted, and that
// the batch or the block goes no further.
func TestBrokenPromises(t *testing.T) {
	f := func(p *promise, act func(h *fixture) error) {
		t.Helper()
		h := open(t, t.TempDir())
		defer h.close()
		h.codes["city"] = set("A", "B")
		before := testutil.ToFloat64(brokenPromises.WithLabelValues(p.name))
		err := act(h)
		require.Error(t, err)
		require.Equal(t, before+1, testutil.ToFloat64(brokenPromises.WithLabelValues(p.name)), "%s: %v", p.name, err)
	}
	isBroken := func(err error) error {
		t.Helper()
		require.ErrorAs(t, err, new(*BrokenPromise))
		return err
	}
	body := measurements(item("A", 1), item("B", 2))

	f(&promisedBatch, func(h *fixture) error { // an item is lost between decoding and validation
		w := h.intake.takeWorker()
		h.intake.putWorker(w)
		h.setClock(func() time.Time { w.items.Count = 1; return time.Now() })
		_, err := h.submit(body, "")
		require.ErrorContains(t, err, "internal check")
		require.Empty(t, h.frames())
		return err
	})
	f(&promisedResponse, func(h *fixture) error {
		_, err := h.submit(body, "first")
		require.NoError(t, err)
		store := h.intake.idempotency
		store.known[scopedKey{"city", "second"}] = store.known[scopedKey{"city", "first"}]
		_, err = h.submit(body, "second")
		require.ErrorContains(t, err, "internal check")
		require.Len(t, h.frames(), 1)
		return err
	})

	store := &recorder{}
	delivery := func(h *fixture) *Delivery {
		h.add(t, 3)
		return h.delivery(t, quick, store)
	}
	next := func(d *Delivery) batch.Block {
		rows, err := d.next(t.Context())
		require.NoError(t, err)
		return rows
	}
	f(&promisedOrder, func(h *fixture) error { // a frame comes again
		d := delivery(h)
		_ = next(d)
		d.pending.reader = d.source.Reader(1)
		return isBroken(d.pending.wait(t.Context()))
	})
	f(&promisedOrder, func(h *fixture) error {
		d := delivery(h)
		require.NoError(t, d.pending.wait(t.Context()))
		d.pending.newest = time.Now().UnixNano()
		return isBroken(d.pending.wait(t.Context()))
	})
	f(&promisedCursor, func(h *fixture) error {
		d := delivery(h)
		require.NoError(t, d.save(CursorStatus{Done: batch.Position{Frame: 2}}))
		return isBroken(d.save(CursorStatus{Done: batch.Position{Frame: 1, Row: 1}}))
	})
	f(&promisedBlock, func(h *fixture) error {
		d := delivery(h)
		rows := next(d)
		d.at.Plan = []byte("another plan")
		return isBroken(d.deliver(t.Context(), t.Context(), rows))
	})
	f(&promisedBlock, func(h *fixture) error {
		d := delivery(h)
		rows := next(d)
		return isBroken(d.deliver(t.Context(), t.Context(), rows.Head(rows.Rows()-1)))
	})
	f(&promisedBlock, func(h *fixture) error {
		d := delivery(h)
		d.sink, d.cfg.RetryMin = &greedy{}, time.Hour
		ctx, stop := context.WithCancel(t.Context())
		d.log = zerolog.New(writerFunc(stop)) // the first failed attempt is logged
		_, err := d.next(ctx)
		require.ErrorIs(t, err, context.Canceled)
		return isBroken(d.Status().Trouble)
	})
	require.Empty(t, store.codes, "nothing was delivered")
}

// greedy plans more rows than it was offered.
type greedy struct{ recorder }

func (*greedy) Plan(_ context.Context, _ []byte, rows batch.Block) (int, []byte, error) {
	return rows.Rows() + 1, nil, nil
}

type writerFunc func()

func (f writerFunc) Write(p []byte) (int, error) { f(); return len(p), nil }

// TestDeadLettersCannotBeWritten checks that a block is tried again, with the plan that was saved,
// if its only row was rejected and the dead-letter file could not be written.
func TestDeadLettersCannotBeWritten(t *testing.T) {
	h := open(t, t.TempDir())
	defer h.close()
	h.add(t, 1)
	d := h.delivery(t, quick, &suspicious{})
	path := d.dead.path
	d.limit = 1
	for _, d.dead.path = range []string{"/missing/dead", "/missing/dead", path} {
		rows, err := d.next(t.Context())
		require.NoError(t, err)
		err = d.deliver(t.Context(), t.Context(), rows)
		if d.dead.path == path {
			require.NoError(t, err)
			break
		}
		require.ErrorContains(t, err, "cannot write the dead-letter file")
	}
	require.Equal(t, "suspect", string(d.at.State))
}

// suspicious rejects each block and returns a new state with that.
type suspicious struct{ recorder }

func (*suspicious) Deliver(context.Context, []byte, batch.Block) ([]byte, error) {
	return []byte("suspect"), &batch.PermanentError{Err: errors.New("no")}
}

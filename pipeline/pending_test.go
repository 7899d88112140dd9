package pipeline

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"trafficd/pipeline/batch"
	"trafficd/pipeline/lib/durable"
)

// frames is a Reader of frames from a channel.
type frames struct {
	Source
	channel chan []byte
	seq     uint64
}

func (f *frames) Reader(uint64) durable.Reader { return f }

func (f *frames) Next(ctx context.Context, _ []byte) (uint64, []byte, error) {
	select {
	case frame := <-f.channel:
		f.seq++
		return f.seq, frame, nil
	case <-ctx.Done():
		return 0, nil, ctx.Err()
	}
}

func (f *frames) TryNext([]byte) (uint64, []byte, bool, error) {
	select {
	case frame := <-f.channel:
		f.seq++
		return f.seq, frame, true, nil
	default:
		return 0, nil, false, nil
	}
}

func (f *frames) Confirm() error           { return nil }
func (f *frames) Bounds() (uint64, uint64) { return 1, f.seq + 1 }

// encoded returns a frame with the given number of rows.
func encoded(rows int) []byte {
	b := new(batch.Batch)
	b.Extend(rows)
	for i := range rows {
		b.Index = append(b.Index, uint32(i))
	}
	b.TypeEnd = []uint32{0}
	return batch.AppendFrame(nil, b, nil)
}

// TestPendingDoesNotKeepMemory checks that the memory kept for reuse does not grow while a backlog
// of many small batches with a few large ones among them is delivered.
func TestPendingDoesNotKeepMemory(t *testing.T) {
	const small, large = 200, 10_000
	f := &frames{channel: make(chan []byte, small+1)}
	w := pending{source: f, reader: f, next: 1, every: time.Minute}
	kept := 0
	for cycle := range 10 * maxFree {
		for n := range small {
			if n == cycle%small {
				f.channel <- encoded(large)
			}
			f.channel <- encoded(1)
		}
		rows, err := w.gather(t.Context(), DeliveryConfig{MaxRows: small + large, MinRows: 1})
		require.NoError(t, err)
		require.Equal(t, small+large, rows.Rows())
		w.drop(w.count)
		kept = 0
		for _, b := range w.free {
			kept += cap(b.Value)
		}
	}
	require.LessOrEqual(t, kept, 2*maxFree*large)
}

// TestDeliveredRowsOfDeletedFrame checks that no rows are skipped if the frame whose first rows
// were delivered has been deleted.
func TestDeliveredRowsOfDeletedFrame(t *testing.T) {
	f := func(from batch.Position, rows int) {
		t.Helper()
		w := pending{source: &frames{channel: make(chan []byte, 1), seq: 6}}
		w.rewind(from)
		w.source.(*frames).channel <- encoded(5)
		require.NoError(t, w.wait(t.Context()))
		require.Equal(t, rows, w.count)
	}
	f(batch.Position{Frame: 7, Row: 3}, 2)
	f(batch.Position{Frame: 4, Row: 3}, 5)
}

// TestPlannedBlockOfDeletedFrames checks that a delivery ends if a frame of its planned block has
// been deleted: sinks need all rows of a plan.
func TestPlannedBlockOfDeletedFrames(t *testing.T) {
	d := &Delivery{at: CursorStatus{Done: batch.Position{Frame: 2}, Plan: []byte("plan"), End: batch.Position{Frame: 4, Row: 1}}}
	f := func(oldest uint64, want error) {
		t.Helper()
		source := &frames{channel: make(chan []byte, 3), seq: oldest - 1}
		d.pending = pending{source: source}
		d.pending.rewind(d.at.Done)
		for range cap(source.channel) {
			source.channel <- encoded(5)
		}
		rows, err := d.next(t.Context())
		require.ErrorIs(t, err, want)
		if want == nil {
			require.Equal(t, 11, rows.Rows())
		}
	}
	f(2, nil)
	f(3, durable.ErrClosed)
	f(4, durable.ErrClosed)
	f(7, durable.ErrClosed)
}

// TestRowsAfterPauseDoNotWait checks that only a block that follows another within linger waits for
// more rows.
func TestRowsAfterPauseDoNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &frames{channel: make(chan []byte, 10)}
		send := func(rows int) { source.channel <- encoded(rows) }
		w := pending{source: source, every: time.Hour, idle: func(context.Context) {}}
		w.rewind(batch.Position{})
		cfg := DeliveryConfig{MaxRows: 100, MinRows: 10, Linger: time.Second}
		f := func(rows int, after time.Duration) {
			t.Helper()
			start := time.Now()
			block, err := w.gather(t.Context(), cfg)
			require.NoError(t, err)
			require.Equal(t, rows, block.Rows())
			require.Equal(t, after, time.Since(start))
			w.drop(rows)
		}
		send(3)
		f(3, 0) // the first
		send(4)
		time.AfterFunc(time.Second/2, func() { send(2) })
		f(6, time.Second)
		time.Sleep(time.Second / 4)
		send(1)
		f(1, 3*time.Second/4)
		send(5)
		send(5)
		send(5)
		f(15, 0) // there are enough
		time.Sleep(2 * time.Second)
		send(1)
		f(1, 0)
	})
}

// memoryCursor is a Cursor without a disk.
type memoryCursor struct {
	frame uint64
	state []byte
}

func (c *memoryCursor) Load() (uint64, []byte) { return c.frame, c.state }

func (c *memoryCursor) Save(frame uint64, state []byte) error {
	c.frame, c.state = frame, state
	return nil
}

// hangingStore takes half a minute for each attempt and fails until up is set.
type hangingStore struct {
	recorder
	up atomic.Bool
}

func (s *hangingStore) Deliver(context.Context, []byte, batch.Block) ([]byte, error) {
	time.Sleep(30 * time.Second)
	if s.up.Load() {
		return nil, nil
	}
	return nil, errUnavailable
}

// TestStalled checks that the time for which a store has accepted no rows begins with the first
// attempt, not with its error, and ends when the store accepts a block.
func TestStalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source, store := &frames{channel: make(chan []byte, 2)}, &hangingStore{}
		d := &Delivery{
			cfg: DeliveryConfig{MaxRows: 5, MinRows: 1, RetryMin: time.Millisecond, RetryMax: time.Millisecond}, limit: 5, source: source,
			sink: store, cursor: new(memoryCursor), pending: pending{source: source, every: time.Hour},
		}
		d.reached.Store(&batch.Position{})
		d.pending.rewind(batch.Position{})
		require.Zero(t, d.Status().Stalled)
		for range 2 {
			source.channel <- encoded(5)
			rows, err := d.next(t.Context())
			require.NoError(t, err)
			store.up.Store(false)
			ended := make(chan error)
			go func() { ended <- d.deliver(t.Context(), t.Context(), rows) }()
			time.Sleep(20 * time.Second)
			require.NoError(t, d.Status().Trouble)
			require.Equal(t, 20*time.Second, d.Status().Stalled)
			time.Sleep(25 * time.Second)
			require.ErrorIs(t, d.Status().Trouble, errUnavailable)
			require.Equal(t, 45*time.Second, d.Status().Stalled)
			store.up.Store(true)
			require.NoError(t, <-ended)
			require.Zero(t, d.Status().Stalled)
			time.Sleep(time.Hour) // without rows
		}
	})
}

// TestHalvedBlockDoesNotWait checks that a block that was halved does not wait for the minimum
// number of rows, which it cannot have.
func TestHalvedBlockDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &frames{channel: make(chan []byte, 1)}
		source.channel <- encoded(80)
		d := &Delivery{
			cfg: DeliveryConfig{MaxRows: 200, MinRows: 100, Linger: time.Minute}, limit: 200,
			source: source, sink: &recorder{}, cursor: new(memoryCursor), pending: pending{source: source, every: time.Hour},
		}
		d.pending.rewind(batch.Position{})
		start := time.Now()
		for want := 80; want > 0; want /= 2 {
			rows, err := d.next(t.Context())
			require.NoError(t, err)
			require.Equal(t, want, rows.Rows())
			if want > 1 {
				require.NoError(t, d.rejected(rows, nil, &batch.PermanentError{Err: errUnavailable}))
			}
		}
		require.Equal(t, start, time.Now())
	})
}

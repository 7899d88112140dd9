package journal

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"trafficd/pipeline/lib/durable"
)

func TestReaderStartsAnywhere(t *testing.T) {
	fs := newMemFS(1)
	j := mustOpen(t, testConfig(), fs)
	addTogether(t, j, fs, payload(2, 100), payload(3, 8000), payload(4, 12), payload(5, 8000), payload(6, 0+8))
	for i := uint64(7); i <= 20; i++ {
		add(t, j, payload(i, 2500))
	}
	for from := uint64(0); from <= 20; from++ {
		r := j.Reader(from)
		for want := max(from, 1); want <= 20; want++ {
			seq, frame, ok, err := r.TryNext(nil)
			require.NoError(t, err)
			require.True(t, ok)
			require.Equal(t, want, seq)
			if want > 1 {
				require.Equal(t, want, idOf(frame))
			}
		}
		_, _, ok, err := r.TryNext(nil)
		require.NoError(t, err)
		require.False(t, ok)
	}
	require.NoError(t, j.Close())
}

func TestReaderWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := mustOpen(t, testConfig(), newMemFS(1))
		type result struct {
			seq   uint64
			frame string
			err   error
		}
		next := func(ctx context.Context, r *Reader) <-chan result {
			c := make(chan result, 1)
			go func() {
				seq, frame, err := r.Next(ctx, nil)
				c <- result{seq, string(frame), err}
			}()
			synctest.Wait()
			return c
		}
		first, second := next(t.Context(), j.Reader(0)), next(t.Context(), j.Reader(2))
		require.Empty(t, first)
		add(t, j, []byte("one"))
		require.Equal(t, result{1, "one", nil}, <-first)
		synctest.Wait()
		require.Empty(t, second, "frame 2 is not written yet")
		add(t, j, []byte("two"))
		require.Equal(t, result{2, "two", nil}, <-second)

		ctx, cancel := context.WithCancel(t.Context())
		cancelled := next(ctx, j.Reader(3))
		cancel()
		require.ErrorIs(t, (<-cancelled).err, context.Canceled)
		require.Empty(t, j.waiting, "a reader that stopped waiting is not woken")

		closed := next(t.Context(), j.Reader(3))
		require.NoError(t, j.Close())
		require.ErrorIs(t, (<-closed).err, durable.ErrClosed)
	})
}

func TestReaderSeesOnlyDurableFrames(t *testing.T) {
	fs := newMemFS(1)
	j := mustOpen(t, testConfig(), fs)
	r := j.Reader(0)
	began, open := make(chan struct{}), make(chan struct{})
	var once sync.Once
	fs.SetGate(func(string) { once.Do(func() { close(began); <-open }) })
	e := &durable.Entry{Data: []byte("written, not synced")}
	require.NoError(t, j.Enqueue(e))
	<-began
	_, _, ok, err := r.TryNext(nil)
	require.NoError(t, err)
	require.False(t, ok)
	_, next := j.Bounds()
	require.EqualValues(t, 1, next)
	close(open)
	require.NoError(t, e.Wait())
	_, _, ok, err = r.TryNext(nil)
	require.NoError(t, err)
	require.True(t, ok)
	require.NoError(t, j.Close())
}

// TestAcknowledgedFrameIsReadable checks that readers see a frame before its Wait returns. An
// outcome that was not waited for blocks the writer in Settle.
func TestAcknowledgedFrameIsReadable(t *testing.T) {
	j := mustOpen(t, testConfig(), newMemFS(1))
	e := &durable.Entry{Data: []byte("frame")}
	e.Open()
	e.Settle(nil)
	require.NoError(t, j.Enqueue(e))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, frame, err := j.Reader(0).Next(ctx, nil)
	require.NoError(t, err)
	require.Equal(t, "frame", string(frame))
	require.NoError(t, e.Wait())
	require.NoError(t, e.Wait())
	require.NoError(t, j.Close())
}

func TestReaderOfDeletedFrames(t *testing.T) {
	j := mustOpen(t, testConfig(), newMemFS(1), "a")
	for i := range 20 {
		add(t, j, payload(uint64(i+1), 4000))
	}
	r := j.Reader(1)
	_, _, ok, err := r.TryNext(nil)
	require.NoError(t, err)
	require.True(t, ok)
	require.NoError(t, j.Cursor("a").Save(20, nil))
	oldest, _ := j.Bounds()
	require.Greater(t, oldest, uint64(2))
	seq, frame, ok, err := r.TryNext(nil)
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, oldest, seq)
	require.Equal(t, oldest, idOf(frame))
	require.NoError(t, j.Close())
}

package pipeline

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"trafficd/pipeline/batch"
)

// gatedStore delivers as many blocks as it is allowed to.
type gatedStore struct {
	fakeStore
	allowed chan struct{}
}

func (s *gatedStore) Plan(_ context.Context, _ []byte, rows batch.Block) (int, []byte, error) {
	return min(25, rows.Rows()), []byte("plan"), nil
}

func (s *gatedStore) Deliver(ctx context.Context, _ []byte, _ batch.Block) ([]byte, error) {
	select {
	case <-s.allowed:
		return nil, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (s *gatedStore) Probe(context.Context) error { return nil }

// TestRowsWaiting counts the undelivered rows of a store that takes 25 at a time, before and after
// a restart in the middle of a frame, and while others arrive.
func TestRowsWaiting(t *testing.T) {
	h := open(t, t.TempDir())
	defer h.close()
	store := &gatedStore{allowed: make(chan struct{})}
	f := func(steps func(waits func(rows int64))) {
		t.Helper()
		d, err := NewDelivery("sink", quick, Local(h.journal, "sink"), store, NewDeadLetters(filepath.Join(h.dir, "d")), zerolog.Nop())
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error)
		go func() { ended <- d.Run(ctx, ctx) }()
		steps(func(rows int64) {
			t.Helper()
			require.Eventually(t, func() bool { return d.Status().Waiting == rows }, time.Minute, time.Millisecond, "%d rows wait", rows)
		})
		cancel()
		require.NoError(t, <-ended)
	}
	h.add(t, 3)
	f(func(waits func(int64)) {
		waits(3 * rowsOfFrame)
		store.allowed <- struct{}{}
		waits(35)
	})
	h.add(t, 2)
	f(func(waits func(int64)) {
		waits(75)
		h.add(t, 1)
		waits(95)
		for range 4 {
			store.allowed <- struct{}{}
		}
		waits(0)
	})
}

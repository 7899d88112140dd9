package pipeline

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"trafficd/pipeline/batch"
)

// gatedStore is a store that accepts one block for each value received from allowed.
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

// TestRowsWaiting checks the number of undelivered rows of a store that takes 25 at a time, before
// and after a restart in the middle of a frame, and while more rows arrive.
func TestRowsWaiting(t *testing.T) {
	h := open(t, t.TempDir())
	defer h.close()
	store := &gatedStore{allowed: make(chan struct{})}
	f := func(steps func(waits func(rows int64))) {
		t.Helper()
		d := h.delivery(t, quick, store)
		defer run(t, d)()
		steps(func(rows int64) {
			t.Helper()
			require.Eventually(t, func() bool { return d.Status().Waiting == rows }, time.Minute, time.Millisecond, "%d rows wait", rows)
		})
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

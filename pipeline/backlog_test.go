package pipeline

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"trafficd/pipeline/batch"
	"trafficd/pipeline/journal"
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

// TestRowsWaitingAreNeverZeroIfUnknown checks that the number of undelivered rows is an estimate,
// not 0, if no frame can be read, and that the error says what to do.
func TestRowsWaitingAreNeverZeroIfUnknown(t *testing.T) {
	dir := t.TempDir()
	h := open(t, dir)
	h.add(t, 3)
	_, seq := h.journal.Bounds()
	h.close()
	h = open(t, dir) // the rows were there at startup
	defer h.close()
	h.stopCopying()
	segments, err := filepath.Glob(filepath.Join(dir, "journal", "*.seg"))
	require.NoError(t, err)
	require.Len(t, segments, 1)
	text, err := os.ReadFile(segments[0])
	require.NoError(t, err)
	at := bytes.Index(text, fmt.Appendf(nil, "%d-%d", seq-3, rowsOfFrame/2)) // in the first frame
	require.Positive(t, at)
	file, err := os.OpenFile(segments[0], os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = file.WriteAt([]byte{^text[at]}, int64(at))
	require.NoError(t, errors.Join(err, file.Close()))

	d := h.delivery(t, quick, newFakeStore(1))
	defer run(t, d)()
	damaged := func() bool { return errors.As(d.Status().Trouble, new(*journal.CorruptError)) }
	require.Eventually(t, damaged, time.Minute, time.Millisecond)
	require.ErrorContains(t, d.Status().Trouble, "trafficctl journal verify")
	require.False(t, d.Status().Counted)
	require.Positive(t, d.Status().Waiting)
}

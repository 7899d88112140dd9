package filelock_test

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"trafficd/cmd/devstores/internal/filelock"
)

func TestLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	unlock, err := filelock.Try(path)
	require.NoError(t, err)
	_, err = filelock.Try(path)
	require.ErrorIs(t, err, filelock.ErrHeld)

	waits := 0
	unlock2, err := filelock.Take(t.Context(), path, func() { waits++; unlock() })
	require.NoError(t, err)
	require.Equal(t, 1, waits)

	ctx, cancel := context.WithCancel(t.Context())
	_, err = filelock.Take(ctx, path, cancel)
	require.ErrorIs(t, err, context.Canceled)
	unlock2()
	_, err = filelock.Try(filepath.Join(path, "below", "a file"))
	require.Error(t, err)
	require.NotErrorIs(t, err, filelock.ErrHeld)
}

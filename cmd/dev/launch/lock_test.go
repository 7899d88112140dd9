package launch_test

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"trafficd/cmd/dev/launch"
)

func TestLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	unlock, err := launch.TryLock(path)
	require.NoError(t, err)
	_, err = launch.TryLock(path)
	require.ErrorIs(t, err, launch.ErrLocked)

	waits := 0
	unlock2, err := launch.Lock(t.Context(), path, func() { waits++; unlock() })
	require.NoError(t, err)
	require.Equal(t, 1, waits)

	ctx, cancel := context.WithCancel(t.Context())
	_, err = launch.Lock(ctx, path, cancel)
	require.ErrorIs(t, err, context.Canceled)
	unlock2()
	_, err = launch.TryLock(filepath.Join(path, "below", "a file"))
	require.Error(t, err)
	require.NotErrorIs(t, err, launch.ErrLocked)
}

package cache_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"trafficd/cmd/dev/devstores/internal/cache"
	"trafficd/cmd/dev/launch"
)

func TestEntryIsFilledOnce(t *testing.T) {
	root := t.TempDir()
	t.Setenv(cache.Env, root)
	var fills atomic.Int32
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			dir, err := cache.Entry(t.Context(), "entry", io.Discard, func(dir string) error {
				fills.Add(1)
				return os.WriteFile(filepath.Join(dir, "file"), []byte("whole"), 0o644)
			})
			if err != nil || dir != filepath.Join(root, "entry") {
				t.Errorf("Entry() = %q, %v, want the directory of the entry", dir, err)
				return
			}
			if text, err := os.ReadFile(filepath.Join(dir, "file")); err != nil || string(text) != "whole" {
				t.Errorf("%q, %v", text, err)
			}
		})
	}
	all.Wait()
	require.EqualValues(t, 1, fills.Load())
}

func TestFailedEntryLeavesNothing(t *testing.T) {
	root := t.TempDir()
	t.Setenv(cache.Env, root)
	broken := errors.New("broken")
	_, err := cache.Entry(t.Context(), "entry", io.Discard, func(dir string) error {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "half"), nil, 0o644))
		return broken
	})
	require.ErrorIs(t, err, broken)
	require.Empty(t, directories(t, root))
}

// TestEntryRemovesUnfinishedDirectory checks that leftovers of a killed run do not end up in the
// entry.
func TestEntryRemovesUnfinishedDirectory(t *testing.T) {
	root := t.TempDir()
	t.Setenv(cache.Env, root)
	require.NoError(t, os.MkdirAll(filepath.Join(root, "entry.unfinished", "half"), 0o755))
	dir, err := cache.Entry(t.Context(), "entry", io.Discard, func(dir string) error {
		require.Empty(t, directories(t, dir))
		return nil
	})
	require.NoError(t, err)
	require.Empty(t, directories(t, dir))
	require.Equal(t, []string{"entry"}, directories(t, root))
}

func directories(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names
}

func TestDir(t *testing.T) {
	t.Setenv(cache.Env, "")
	dir, err := cache.Dir()
	require.NoError(t, err)
	root, err := launch.ModuleRoot()
	require.NoError(t, err)
	require.Equal(t, filepath.Join(root, ".cache", "devstores"), dir)

	t.Chdir(t.TempDir()) // outside the module
	t.Setenv("XDG_CACHE_HOME", "/the/cache")
	dir, err = cache.Dir()
	require.NoError(t, err)
	require.Equal(t, "/the/cache/trafficd/devstores", dir)
	_, err = launch.ModuleRoot()
	require.ErrorContains(t, err, "run inside its tree")
	require.True(t, strings.HasPrefix(err.Error(), "cannot find the root of module trafficd"))
}

package watch

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDirsTo(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	for _, name := range []string{"data/..v1", "etc", "loop"} {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, name), 0o755))
	}
	link := func(target, name string) { require.NoError(t, os.Symlink(target, filepath.Join(dir, name))) }
	require.NoError(t, os.WriteFile(filepath.Join(dir, "data/..v1/list.csv"), nil, 0o644))
	link("..v1", "data/..data")
	link("..data/list.csv", "data/list.csv")
	link(filepath.Join(dir, "data"), "etc/data")
	link("../loop/a", "loop/b")
	link("b", "loop/a")

	f := func(path string, want ...string) {
		t.Helper()
		for i := range want {
			want[i] = filepath.Join(dir, want[i])
		}
		require.Equal(t, want, dirsTo(filepath.Join(dir, path)))
	}
	f("data/..v1/list.csv", "data/..v1")
	f("data/list.csv", "data", "data/..v1")
	f("etc/data/list.csv", "data", "data/..v1", "etc")
	f("etc/missing.csv", "etc")
	f("loop/a", "loop")
}

// TestOldDirsAreNotWatched checks that the directory of an earlier version of a list is no longer
// watched, even if it still exists.
func TestOldDirsAreNotWatched(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	f := NewFile(filepath.Join(dir, "current", "list.csv"), 0, 0)
	defer f.Close()
	for i := range 5 {
		version := fmt.Sprint("v", i)
		require.NoError(t, os.Mkdir(filepath.Join(dir, version), 0o755))
		require.NoError(t, os.Symlink(version, filepath.Join(dir, "next")))
		require.NoError(t, os.Rename(filepath.Join(dir, "next"), filepath.Join(dir, "current")))
		f.follow()
		require.ElementsMatch(t, []string{dir, filepath.Join(dir, version)}, f.watcher.WatchList())
	}
}

// TestOtherFiles checks that changes of the other files are reported, although they are in
// directories of their own.
func TestOtherFiles(t *testing.T) {
	path, other := filepath.Join(t.TempDir(), "tls.crt"), filepath.Join(t.TempDir(), "tls.key")
	file := NewFile(path, 0, 1<<20, other)
	defer file.Close()
	file.follow()
	require.NoError(t, os.WriteFile(other, nil, 0o600))
	<-file.Changes()
}

package watch

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFoldersTo(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	for _, folder := range []string{"data/..v1", "etc", "loop"} {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, folder), 0o755))
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
		require.Equal(t, want, foldersTo(filepath.Join(dir, path)))
	}
	f("data/..v1/list.csv", "data/..v1")
	f("data/list.csv", "data", "data/..v1")
	f("etc/data/list.csv", "data", "data/..v1", "etc")
	f("etc/missing.csv", "etc")
	f("loop/a", "loop")
}

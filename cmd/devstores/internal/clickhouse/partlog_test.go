package clickhouse

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// A directory is removed with its content; a symbolic link and its target are kept.
func TestForgetPartLog(t *testing.T) {
	h, err := makeHome(t.TempDir())
	require.NoError(t, err)
	require.NoError(t, h.removePartLog(), "no log before the first start")

	system := h.path("data/data/system")
	log, other := filepath.Join(system, "part_log"), filepath.Join(system, "query_log")
	require.NoError(t, os.MkdirAll(filepath.Join(log, "all_1_1_0"), 0o755))
	require.NoError(t, os.MkdirAll(other, 0o755))
	require.NoError(t, h.removePartLog())
	require.NoDirExists(t, log)
	require.DirExists(t, other)

	require.NoError(t, os.Symlink(other, log))
	require.NoError(t, h.removePartLog())
	_, err = os.Readlink(log)
	require.NoError(t, err)
	require.DirExists(t, other)
}

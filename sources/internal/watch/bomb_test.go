package watch

import (
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestTooLongTakesNoMemory: a 2 GB file and a gzip bomb are refused without reading them into memory.
func TestTooLongTakesNoMemory(t *testing.T) {
	const maxBytes = 64 << 20
	path := filepath.Join(t.TempDir(), "f")
	refused := func() {
		t.Helper()
		old := time.Now().Add(-time.Hour)
		require.NoError(t, os.Chtimes(path, old, old))
		file := NewFile(path, time.Millisecond, maxBytes)
		defer file.Close()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, _, err := file.Read()
		runtime.ReadMemStats(&after)
		require.ErrorIs(t, err, ErrTooLong)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(4<<20))
	}
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	require.NoError(t, os.Truncate(path, 2<<30)) // sparse
	refused()

	var bomb bytes.Buffer
	w := gzip.NewWriter(&bomb)
	for range maxBytes>>20 + 1 {
		_, err := w.Write(make([]byte, 1<<20))
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	require.NoError(t, os.WriteFile(path, bomb.Bytes(), 0o600))
	refused()
}

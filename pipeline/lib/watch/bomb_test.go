package watch

import (
	"bytes"
	"compress/gzip"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestOversizedFilesTakeNoMemory checks that a 2 GB file, a gzip bomb, and a large gzip file with
// content slightly over the limit are rejected with ErrTooLong and are not read into memory.
func TestOversizedFilesTakeNoMemory(t *testing.T) {
	const maxBytes = 16 << 20
	path := filepath.Join(t.TempDir(), "f")
	requireTooLong := func() {
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
	requireTooLong()

	var bomb bytes.Buffer
	w := gzip.NewWriter(&bomb)
	for range maxBytes>>20 + 1 {
		_, err := w.Write(make([]byte, 1<<20))
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	require.NoError(t, os.WriteFile(path, bomb.Bytes(), 0o600))
	requireTooLong()

	file, err := os.Create(path)
	require.NoError(t, err)
	w, err = gzip.NewWriterLevel(file, gzip.BestSpeed)
	require.NoError(t, err)
	noise := make([]byte, 1<<20)
	_, _ = rand.NewChaCha8([32]byte{}).Read(noise) // never fails
	for i := range maxBytes>>20 + 1 {
		if i == maxBytes>>20-8 { // the remaining content compresses well, so that the file itself is not too long
			clear(noise)
		}
		_, err := w.Write(noise)
		require.NoError(t, err)
	}
	require.NoError(t, errors.Join(w.Close(), file.Close()))
	requireTooLong()
}

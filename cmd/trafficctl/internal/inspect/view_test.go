package inspect

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestReadTruncatedFile checks that a file that is truncated after its size was read returns zeros
// up to that size.
func TestReadTruncatedFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "1.seg")
	require.NoError(t, os.WriteFile(path, append([]byte("frames"), make([]byte, 10)...), 0o600))
	f, err := new(view).Open(path, os.O_RDONLY)
	require.NoError(t, err)
	defer f.Close()
	size, err := f.Size()
	require.NoError(t, err)
	require.EqualValues(t, 16, size)
	require.NoError(t, os.Truncate(path, 6))
	p := []byte("xxxxxxxx")
	n, err := f.ReadAt(p, 4)
	require.NoError(t, err)
	require.Equal(t, "es\x00\x00\x00\x00\x00\x00", string(p[:n]))
	n, err = f.ReadAt(p, 12)
	require.ErrorIs(t, err, io.EOF)
	require.Equal(t, "\x00\x00\x00\x00", string(p[:n]))
	_, err = f.ReadAt(p, 16)
	require.ErrorIs(t, err, io.EOF)
}

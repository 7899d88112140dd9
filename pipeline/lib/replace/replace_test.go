package replace

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestFile(t *testing.T) {
	dir := t.TempDir()
	file, link, dangling := filepath.Join(dir, "file"), filepath.Join(dir, "link"), filepath.Join(dir, "dangling")
	require.NoError(t, os.Symlink("file", link))
	require.NoError(t, os.Symlink("missing", dangling))
	errWrite := errors.New("cannot write")
	f := func(path, content string, writeErr, want error) {
		t.Helper()
		err := File(path, 0o600, func(w io.Writer) error {
			_, err := io.WriteString(w, content)
			return errors.Join(err, writeErr)
		})
		require.ErrorIs(t, err, want)
	}
	f(file, "first", nil, nil)
	require.NoError(t, os.Chmod(file, 0o640))
	f(link, "second", nil, nil)
	f(file, "third", errWrite, errWrite)
	f(dangling, "fourth", nil, fs.ErrNotExist)

	content, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, "second", string(content))
	info, err := os.Stat(file)
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o640), info.Mode(), "the mode of the old file")
	var names []string
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		names = append(names, e.Name()+" "+e.Type().String())
	}
	require.Equal(t, []string{"dangling L---------", "file ----------", "link L---------"}, names)
}

// TestNotARegularFile checks that a device or a pipe is not replaced by a file.
func TestNotARegularFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	require.NoError(t, unix.Mkfifo(path, 0o600))
	require.ErrorContains(t, File(path, 0o600, func(io.Writer) error { return nil }), "pipe is not a regular file")
	info, err := os.Lstat(path)
	require.NoError(t, err)
	require.Equal(t, fs.ModeNamedPipe, info.Mode().Type())
}

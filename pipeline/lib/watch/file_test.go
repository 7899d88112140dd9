package watch

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"trafficd/pipeline/lib/gunzip/compress"
)

// TestUnsettledFile checks that a file that changed recently is not read. A modification time in
// the future does not count as recent.
func TestUnsettledFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "list.csv")
	file := NewFile(path, time.Minute, 1<<20)
	defer file.Close()
	f := func(age time.Duration, want error) {
		t.Helper()
		stamp := time.Now().Add(-age)
		require.NoError(t, os.WriteFile(path, []byte("content"), 0o644))
		require.NoError(t, os.Chtimes(path, stamp, stamp))
		content, modified, err := file.Read()
		require.ErrorIs(t, err, want)
		require.WithinDuration(t, stamp, modified, time.Second)
		require.Equal(t, want == nil, string(content) == "content")
	}
	f(time.Second, ErrUnsettled)
	f(2*time.Minute, nil)
	f(2*time.Minute, nil) // Keep was not called
	f(-time.Hour, nil)
	file.Keep()
	stamp := time.Now().Add(time.Hour)
	_, modified, err := file.Read()
	require.ErrorIs(t, err, ErrUnchanged)
	require.WithinDuration(t, stamp, modified, time.Minute)
	f(time.Second, ErrUnsettled)
	f(3*time.Minute, nil)
}

// TestRejectedFile checks that a rejected version is not read again.
func TestRejectedFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "list.csv")
	file := NewFile(path, 0, 10)
	defer file.Close()
	stamp := time.Now().Add(-time.Hour)
	put := func(content string) {
		t.Helper()
		stamp = stamp.Add(time.Second)
		require.NoError(t, os.WriteFile(path, []byte(content), 0o644))
		require.NoError(t, os.Chtimes(path, stamp, stamp))
	}
	reason := errors.New("invalid list")
	put("bad")
	content, _, err := file.Read()
	require.NoError(t, err)
	require.Equal(t, "bad", string(content))
	file.Reject(reason)
	for range 2 {
		content, modified, err := file.Read()
		require.Equal(t, reason, err)
		require.Nil(t, content)
		require.WithinDuration(t, stamp, modified, time.Millisecond)
	}
	put("good")
	content, _, err = file.Read()
	require.NoError(t, err)
	require.Equal(t, "good", string(content))
	file.Reject(reason)
	stamp = stamp.Add(-time.Second)
	put("better") // the same modification time, as with a coarse clock
	content, _, err = file.Read()
	require.NoError(t, err)
	require.Equal(t, "better", string(content))
}

func TestUnreadableFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "list.csv")
	file := NewFile(path, 0, 10)
	defer file.Close()
	f := func(want string) {
		t.Helper()
		_, _, err := file.Read()
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, path)
	}
	f("no such file")
	require.NoError(t, os.Mkdir(path, 0o755))
	f("is not a regular file")
	require.NoError(t, os.Remove(path))
	require.NoError(t, os.WriteFile(path, bytes.Repeat([]byte("a"), 11), 0o644))
	f("max_bytes")
}

func TestReadAll(t *testing.T) {
	f := func(content, want, wantError string) {
		t.Helper()
		got, err := ReadAll(strings.NewReader(content), 100)
		if wantError != "" {
			require.ErrorContains(t, err, wantError)
			return
		}
		require.NoError(t, err)
		require.Equal(t, want, string(got))
	}
	long := strings.Repeat("a", 100)
	f("", "", "")
	f(long, long, "")
	f(long+"a", "", "max_bytes")
	f(string(compress.Gzip(long)), long, "")
	f(string(compress.Gzip(long+"a")), "", "max_bytes")
	f(string(compress.Gzip("a"))+string(compress.Gzip("b")), "ab", "")
	f("\xef\xbb\xbfa", "a", "")
	f(string(compress.Gzip("\xef\xbb\xbfa")), "a", "")
	f(string(compress.Gzip("a"))+"x", "", "cannot decompress")
	whole := string(compress.Gzip("abc"))
	for n := 2; n < len(whole); n++ {
		f(whole[:n], "", "cannot decompress")
	}
}

// TestPipe checks that a pipe, such as the shell's <(…), is rejected with a clear error.
func TestPipe(t *testing.T) {
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()
	require.NoError(t, w.Close())
	_, err = ReadAll(r, 100)
	require.ErrorContains(t, err, "it is a pipe or a device, must be a regular file")
}

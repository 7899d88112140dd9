package registry

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestFileForms(t *testing.T) {
	f := func(name, content string, cfg FileConfig, want ...string) {
		t.Helper()
		cfg.Path = inFolder(t, name)
		feed := newTestFeed(t, FeedConfig{File: &cfg})
		write(t, cfg.Path, content)
		feed.check(t.Context())
		require.Empty(t, feed.status(time.Now()).Error)
		require.Equal(t, want, codesOf(feed.current.Load()))
	}
	csv := "\xef\xbb\xbfid;detectorCode\r\n1;A\r\n2;B\r\n"
	f("a.csv", csv, FileConfig{}, "A", "B")
	f("a.csv", csv, FileConfig{Column: "id"}, "1", "2")
	f("a.csv", csv, FileConfig{Separator: ";"}, "A", "B")
	f("a.csv.gz", zipped(t, csv), FileConfig{}, "A", "B")
	f("packed", zipped(t, csv)+zipped(t, "3;C\r\n"), FileConfig{}, "A", "B", "C")
	f("a.tsv", "detectorCode\tx\nA\t1\n", FileConfig{Separator: "tab"}, "A")
	f("a.json", "\xef\xbb\xbf[\"A\"]", FileConfig{}, "A")
	f("A.JSON.GZ", zipped(t, `[{"id":"A"}]`), FileConfig{Column: "id"}, "A")
	f("a.txt", `{"detectors":["A"]}`, FileConfig{Format: FormatJSON}, "A")
	f("a.json", "detectorCode\nA\n", FileConfig{Format: FormatCSV}, "A")
}

func TestFileRefused(t *testing.T) {
	f := func(content, want string) {
		t.Helper()
		path := inFolder(t, "list.csv")
		feed := newTestFeed(t, FeedConfig{File: &FileConfig{Path: path}})
		feed.source.(*fileSource).maxBytes = 100
		write(t, path, content)
		feed.check(t.Context())
		require.Contains(t, feed.status(time.Now()).Error, want)
		require.Contains(t, feed.status(time.Now()).Error, path)
	}
	f("detectorCode\n"+strings.Repeat("A", 100), "max_bytes")
	f(zipped(t, "detectorCode\n"+strings.Repeat("A", 100)), "max_bytes")
	whole := zipped(t, "detectorCode\nA\n")
	for n := 2; n < len(whole); n++ {
		f(whole[:n], "cannot read")
	}
	f(whole+"x", "cannot decompress")
}

// TestFileIsReadWhenItHasSettled: a file whose last change is younger than the
// setting is left alone, a time stamp in the future is no reason to wait.
func TestFileIsReadWhenItHasSettled(t *testing.T) {
	path := inFolder(t, "list.csv")
	s := newFileSource(FileConfig{Path: path, Column: "detectorCode"}, time.Minute, 1<<20)
	defer s.close()
	f := func(age time.Duration, want error) {
		t.Helper()
		stamp := time.Now().Add(-age)
		require.NoError(t, os.WriteFile(path, []byte("detectorCode\nA\n"), 0o644))
		require.NoError(t, os.Chtimes(path, stamp, stamp))
		_, err := s.read(t.Context())
		require.ErrorIs(t, err, want)
	}
	f(time.Second, errUnsettled)
	f(2*time.Minute, nil)
	f(-time.Hour, nil)
	s.keep()
	_, err := s.read(t.Context())
	require.ErrorIs(t, err, errUnchanged)
}

func TestFoldersTo(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	for _, folder := range []string{"data/..v1", "etc", "loop"} {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, folder), 0o755))
	}
	link := func(target, name string) { require.NoError(t, os.Symlink(target, filepath.Join(dir, name))) }
	write(t, filepath.Join(dir, "data/..v1/list.csv"), "")
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

package registry

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"trafficd/pipeline/lib/gunzip/compress"
)

func TestFileFormats(t *testing.T) {
	f := func(name, content string, cfg FileConfig, want ...string) {
		t.Helper()
		cfg.Path = tempPath(t, name)
		feed := newTestFeed(t, FeedConfig{File: &cfg})
		write(t, cfg.Path, content)
		feed.check(t.Context())
		require.Empty(t, feed.onlyList().status(time.Now()).Error)
		require.Equal(t, want, codesOf(feed.onlyList().current.Load()))
	}
	csv := "\xef\xbb\xbfid;detectorCode\r\n1;A\r\n2;B\r\n"
	f("a.csv", csv, FileConfig{}, "A", "B")
	f("a.csv", csv, FileConfig{Column: "id"}, "1", "2")
	f("a.csv", csv, FileConfig{Separator: ";"}, "A", "B")
	f("a.csv.gz", string(compress.Gzip(csv)), FileConfig{}, "A", "B")
	f("packed", string(compress.Gzip(csv))+string(compress.Gzip("3;C\r\n")), FileConfig{}, "A", "B", "C")
	f("a.tsv", "detectorCode\tx\nA\t1\n", FileConfig{Separator: "tab"}, "A")
	f("a.json", "\xef\xbb\xbf[\"A\"]", FileConfig{}, "A")
	f("A.JSON.GZ", string(compress.Gzip(`[{"id":"A"}]`)), FileConfig{Column: "id"}, "A")
	f("a.txt", `{"detectors":["A"]}`, FileConfig{Format: FormatJSON}, "A")
	f("a.json", "detectorCode\nA\n", FileConfig{Format: FormatCSV}, "A")
}

// TestBadFileIsReadOnce checks that a rejected file is read again only when its size or
// modification time changes.
func TestBadFileIsReadOnce(t *testing.T) {
	path := tempPath(t, "list.csv")
	feed := newTestFeed(t, FeedConfig{File: &FileConfig{Path: path}})
	mtime := time.Now().Add(-time.Hour)
	f := func(content, wantError string) {
		t.Helper()
		require.NoError(t, os.WriteFile(path, []byte(content), 0o644))
		require.NoError(t, os.Chtimes(path, mtime, mtime))
		feed.check(t.Context())
		require.Contains(t, feed.onlyList().status(time.Now()).Error, wantError)
		require.Equal(t, wantError == "", feed.onlyList().current.Load() != nil)
	}
	f("detectorCodeX\nA\n", "no column")
	f("\ndetectorCode\nA\n", "no column") // same size and modification time: not read again
	mtime = mtime.Add(time.Second)
	f("\ndetectorCode\nA\n", "")
}

func TestFileErrors(t *testing.T) {
	f := func(content, want string) {
		t.Helper()
		path := tempPath(t, "list.csv")
		feed := newTestFeed(t, FeedConfig{File: &FileConfig{Path: path}})
		feed.source = newFileSource(FileConfig{Path: path, Column: DefaultColumn}, "", 0, 100)
		write(t, path, content)
		feed.check(t.Context())
		require.Contains(t, feed.onlyList().status(time.Now()).Error, want)
		require.Contains(t, feed.onlyList().status(time.Now()).Error, path)
	}
	f("detectorCode\n"+strings.Repeat("A", 100), "max_bytes")
	f(string(compress.Gzip("detectorCode\n"+strings.Repeat("A", 100))), "max_bytes")
	whole := string(compress.Gzip("detectorCode\nA\n"))
	for n := 2; n < len(whole); n++ {
		f(whole[:n], "cannot read")
	}
	f(whole+"x", "cannot decompress")
}

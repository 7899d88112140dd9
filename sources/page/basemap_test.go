package page

import (
	"encoding/binary"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"
)

// archive returns the header of an archive with tiles that end at byte 200, padded to size.
func archive(size int) []byte {
	b := make([]byte, size)
	copy(b, "PMTiles\x03")
	for i, part := range [][2]uint64{{127, 20}, {147, 10}, {157, 0}, {157, 43}} {
		binary.LittleEndian.PutUint64(b[8+16*i:], part[0])
		binary.LittleEndian.PutUint64(b[16+16*i:], part[1])
	}
	b[99] = 1
	return b
}

func TestCheckBasemap(t *testing.T) {
	f := func(want string, change func(b []byte) []byte) {
		t.Helper()
		path := filepath.Join(t.TempDir(), "city.pmtiles")
		require.NoError(t, os.WriteFile(path, change(archive(200)), 0o600))
		err := Config{Basemap: path}.Check()
		if want == "" {
			require.NoError(t, err)
			return
		}
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, path)
	}
	f("", func(b []byte) []byte { return b })
	f("not a PMTiles archive", func([]byte) []byte { return nil })
	f("not a PMTiles archive", func(b []byte) []byte { return append([]byte("SQLite format 3"), b...) })
	f("unsupported PMTiles version 2, must be 3", func(b []byte) []byte { b[7] = 2; return b })
	f("the file is 199 bytes long, but the tiles should end at byte 200; copy the file again", func(b []byte) []byte { return b[:199] })
	f("but the leaf directories should end at", func(b []byte) []byte { b[47] = 255; return b })
	f("tile type 0", func(b []byte) []byte { b[99] = 0; return b })
	require.ErrorContains(t, Config{Basemap: "none.pmtiles"}.Check(), "basemap: open none.pmtiles: no such file")
	require.NoError(t, Config{}.Check())
}

// TestServeBasemap requests a range, and then the whole file after it was replaced.
func TestServeBasemap(t *testing.T) {
	path := filepath.Join(t.TempDir(), "city.pmtiles")
	require.NoError(t, os.WriteFile(path, archive(200), 0o600))
	p := New(Config{Basemap: path}, Settings{}, "map.html")
	require.Contains(t, string(get(t, p, "settings.json").Body()), `"basemap":true`)
	part := get(t, p, basemapName, "Range", "bytes=0-6")
	require.Equal(t, http.StatusPartialContent, part.StatusCode())
	require.Equal(t, "PMTiles", string(part.Body()))
	require.Equal(t, "application/vnd.pmtiles", header(part, "Content-Type"))
	require.Equal(t, "nosniff", header(part, "X-Content-Type-Options"))
	require.Equal(t, "public, no-cache", header(part, "Cache-Control"))
	etag := header(part, "ETag")
	require.Equal(t, http.StatusNotModified, get(t, p, basemapName, "If-None-Match", etag).StatusCode())
	require.NoError(t, os.WriteFile(path+".new", archive(300), 0o600))
	require.NoError(t, os.Rename(path+".new", path))
	whole := get(t, p, basemapName, "Range", "bytes=0-6", "If-Range", etag)
	require.Equal(t, http.StatusOK, whole.StatusCode())
	require.Len(t, whole.Body(), 300)
	require.NoError(t, os.Remove(path))
	require.ErrorContains(t, p[basemapName](&fasthttp.RequestCtx{}), "cannot open the basemap (ui.basemap): open "+path)
}

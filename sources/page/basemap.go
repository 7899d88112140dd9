package page

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"
)

// BasemapName is the path of the basemap relative to the page. The page uses Range requests to read
// the header and the directories of the archive, and then the tiles that it shows.
const BasemapName = "basemap.pmtiles"

// Basemap is an open PMTiles archive. The caller must close Reader.
type Basemap struct {
	Reader *os.File
	Size   int64
	Header [][2]string // names and values, including ETag
	ETag   string
	time   time.Time // modification time of the file
}

// OpenBasemap opens the archive. The file may be replaced between two calls.
func (c Config) OpenBasemap() (*Basemap, error) {
	f, err := os.Open(c.Basemap)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, err
	}
	b := &Basemap{Reader: f, Size: info.Size(), ETag: fmt.Sprintf(`"%x-%x"`, info.ModTime().UnixNano(), info.Size()), time: info.ModTime()}
	b.Header = [][2]string{
		{"Content-Type", "application/vnd.pmtiles"},
		{"X-Content-Type-Options", "nosniff"},
		{"Cache-Control", revalidate},
		{"ETag", b.ETag},
	}
	return b, nil
}

// ServeBasemap serves the archive, or only the requested ranges.
func (c Config) ServeBasemap(w http.ResponseWriter, r *http.Request) {
	b, err := c.OpenBasemap()
	if err != nil {
		http.Error(w, "cannot open the basemap (ui.basemap): "+err.Error(), http.StatusInternalServerError)
		return
	}
	defer b.Reader.Close()
	for _, h := range b.Header {
		w.Header().Set(h[0], h[1])
	}
	http.ServeContent(w, r, "", b.time, b.Reader)
}

const (
	pmtilesHeaderSize = 127
	pmtilesVersion    = 3
)

// Check returns an error if a basemap is configured but cannot be served.
func (c Config) Check() error {
	if c.Basemap == "" {
		return nil
	}
	b, err := c.OpenBasemap()
	if err != nil {
		return fmt.Errorf("basemap: %w", err)
	}
	defer b.Reader.Close()
	if err := checkPMTiles(b.Reader, b.Size); err != nil {
		return fmt.Errorf("basemap: %s: %w", c.Basemap, err)
	}
	return nil
}

// checkPMTiles checks the header of an archive. It detects other file formats, other versions and
// incomplete copies.
func checkPMTiles(f io.Reader, size int64) error {
	h := make([]byte, pmtilesHeaderSize)
	if _, err := io.ReadFull(f, h); err != nil || !bytes.HasPrefix(h, []byte("PMTiles")) {
		return errors.New("not a PMTiles archive; `pmtiles convert` creates one from MBTiles")
	}
	if h[7] != pmtilesVersion {
		return fmt.Errorf("PMTiles version %d, want %d; `pmtiles convert` upgrades an archive", h[7], pmtilesVersion)
	}
	for i, part := range []string{"root directory", "metadata", "leaf directories", "tiles"} {
		at, length := binary.LittleEndian.Uint64(h[8+16*i:]), binary.LittleEndian.Uint64(h[16+16*i:])
		if end := at + length; end < at || end > uint64(size) {
			return fmt.Errorf("the file has %d bytes, but the end of the %s is at byte %d; copy the file again", size, part, end)
		}
	}
	if kind := h[99]; kind < 1 || kind > 4 {
		return fmt.Errorf("tile type %d, want 1 (vector), 2 (PNG), 3 (JPEG) or 4 (WebP)", kind)
	}
	return nil
}

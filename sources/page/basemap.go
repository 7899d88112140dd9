package page

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/valyala/fasthttp"

	"trafficd/pipeline/lib/negotiate"
)

// basemapName is the path of the basemap relative to the page. The page uses Range requests to read
// the header and the directories of the archive, and then the tiles that it shows.
const basemapName = "basemap.pmtiles"

// serveBasemap implements Handler. It serves the archive or one range of it, without reading it
// into memory. The file may be replaced between two requests.
func (c Config) serveBasemap(ctx *fasthttp.RequestCtx) error {
	f, info, err := c.openBasemap()
	if err != nil {
		return fmt.Errorf("cannot open the basemap (ui.basemap): %w", err)
	}
	size, etag := int(info.Size()), fmt.Sprintf(`"%x-%x"`, info.ModTime().UnixNano(), info.Size())
	h := &ctx.Response.Header
	h.SetContentType("application/vnd.pmtiles")
	h.Set(fasthttp.HeaderXContentTypeOptions, "nosniff")
	h.Set(fasthttp.HeaderCacheControl, revalidate)
	h.Set(fasthttp.HeaderAcceptRanges, "bytes")
	if negotiate.SetETag(ctx, etag) {
		f.Close()
		return nil
	}
	part := negotiate.RangeOf(&ctx.Request.Header, []byte(etag), size)
	if part.Whole {
		part.To = size
	} else {
		h.SetBytesV(fasthttp.HeaderContentRange, part.AppendContentRange(nil, size))
		ctx.SetStatusCode(fasthttp.StatusPartialContent)
	}
	if part.Unsatisfiable {
		f.Close()
		ctx.SetStatusCode(fasthttp.StatusRequestedRangeNotSatisfiable)
		return nil
	}
	length := part.To - part.From
	body := struct {
		io.Reader
		io.Closer
	}{io.NewSectionReader(f, int64(part.From), int64(length)), f}
	ctx.SetBodyStream(body, length) // closes body
	return nil
}

// openBasemap opens the archive. The caller must close it.
func (c Config) openBasemap() (*os.File, os.FileInfo, error) {
	f, err := os.Open(c.Basemap)
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, info, nil
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
	f, info, err := c.openBasemap()
	if err != nil {
		return fmt.Errorf("basemap: %w", err)
	}
	defer f.Close()
	if err := checkPMTiles(f, info.Size()); err != nil {
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
		return fmt.Errorf("unsupported PMTiles version %d, must be %d; `pmtiles convert` upgrades an archive", h[7], pmtilesVersion)
	}
	for i, part := range []string{"root directory", "metadata", "leaf directories", "tiles"} {
		at, length := binary.LittleEndian.Uint64(h[8+16*i:]), binary.LittleEndian.Uint64(h[16+16*i:])
		if end := at + length; end < at || end > uint64(size) {
			return fmt.Errorf("the file is %d bytes long, but the %s should end at byte %d; copy the file again", size, part, end)
		}
	}
	if kind := h[99]; kind < 1 || kind > 4 {
		return fmt.Errorf("unsupported tile type %d, must be 1 (vector), 2 (PNG), 3 (JPEG) or 4 (WebP)", kind)
	}
	return nil
}

// Package czlib replaces the binding of zlib that the reader of OpenStreetMap uses if cgo is
// enabled: building trafficctl must not need the headers of zlib.
package czlib

import (
	"io"

	"github.com/klauspost/compress/zlib"
)

// NewReader returns a reader of the decompressed data of r.
func NewReader(r io.Reader) (io.ReadCloser, error) { return zlib.NewReader(r) }

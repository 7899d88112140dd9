// Package compress compresses what tests and development tools send.
package compress

import (
	"bytes"

	"github.com/klauspost/compress/gzip"
)

// Gzip returns text compressed with gzip at the default level.
func Gzip[T string | []byte](text T) []byte {
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, _ = w.Write([]byte(text)) // writing to memory cannot fail
	_ = w.Close()
	return packed.Bytes()
}

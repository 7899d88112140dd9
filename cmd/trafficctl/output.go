package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"trafficd/cmd/trafficctl/internal/feed"
	"trafficd/cmd/trafficctl/internal/interrupt"
	"trafficd/pipeline/lib/replace"
)

const stdio = feed.Stdin // the file name that selects standard input or standard output

// writeOutput calls write with a buffered writer to stdout if path is "-", or else to the file,
// which it compresses if path ends in .gz or .zst. It replaces a regular file atomically once write
// has succeeded: a daemon may be watching the file, and the old content must survive a failure. The
// writer fails once ctx is done.
func writeOutput(ctx context.Context, path string, stdout io.Writer, write func(io.Writer) error) error {
	buffered := func(w io.Writer) error {
		out := bufio.NewWriterSize(interrupt.Writer{Ctx: ctx, Out: w}, 64<<10)
		err := write(out)
		return cmp.Or(err, out.Flush()) // Flush would repeat a write error
	}
	if path == stdio {
		return buffered(stdout)
	}
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() { // a device or a pipe cannot be replaced
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		return errors.Join(buffered(f), f.Close())
	}
	extension := filepath.Ext(path)
	if extension == ".xz" {
		return errors.New("xz is only supported for input; use .gz or .zst")
	}
	return replace.File(path, 0o666, func(w io.Writer) error {
		var z io.WriteCloser
		switch extension { // the constructors fail only for invalid options
		case ".gz":
			z, _ = gzip.NewWriterLevel(w, gzip.BestSpeed)
		case ".zst":
			z, _ = zstd.NewWriter(w, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1))
		default:
			return buffered(w)
		}
		return errors.Join(buffered(z), z.Close())
	})
}

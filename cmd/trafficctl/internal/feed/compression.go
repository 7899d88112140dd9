package feed

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"
)

// Compression of a file.
type Compression string

// The compressions. Sniff detects them by the first bytes.
const (
	Sniff Compression = "auto"
	None  Compression = "none"
	Gzip  Compression = "gzip"
	XZ    Compression = "xz"
	Zstd  Compression = "zstd"
)

var magics = map[Compression]string{Gzip: "\x1f\x8b", XZ: "\xfd7zXZ\x00", Zstd: "\x28\xb5\x2f\xfd"}

// zstdWindow bounds the memory of a frame, as the zstd program does by default.
const zstdWindow = 128 << 20

// Decompress returns the decompressed content of raw. The caller closes it. ctx stops a helper program.
func Decompress(ctx context.Context, raw io.Reader, kind Compression) (io.ReadCloser, error) {
	r := bufio.NewReaderSize(raw, 64<<10)
	if kind == Sniff {
		kind = None
		for k, magic := range magics {
			if start, _ := r.Peek(len(magic)); string(start) == magic {
				kind = k
			}
		}
	}
	switch kind {
	case Gzip:
		z, err := gzip.NewReader(r)
		if err != nil {
			return nil, err // not z: a nil *Reader in an interface is not nil
		}
		return z, nil
	case Zstd:
		d, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(zstdWindow))
		if err != nil {
			return nil, err
		}
		return d.IOReadCloser(), nil
	case XZ:
		return decompressXZ(ctx, r)
	}
	return io.NopCloser(r), nil
}

// xzProgram is the output of an xz process.
type xzProgram struct {
	*io.PipeReader
	stop context.CancelFunc
	done chan struct{} // closed when the process has exited
}

// decompressXZ uses the xz program if it is installed: it takes a fraction of the library's CPU time
// (BenchmarkDecompressXZ), and on another core.
func decompressXZ(ctx context.Context, r io.Reader) (io.ReadCloser, error) {
	path, err := exec.LookPath("xz")
	if err != nil {
		d, err := xz.NewReader(r)
		return io.NopCloser(d), err
	}
	ctx, stop := context.WithCancel(ctx)
	cmd := exec.CommandContext(ctx, path, "--decompress", "--stdout")
	var stderr bytes.Buffer
	out, in := io.Pipe()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = r, in, &stderr
	cmd.WaitDelay = time.Second // the input may be a pipe without a writer
	p := &xzProgram{out, stop, make(chan struct{})}
	go func() {
		defer close(p.done)
		err := cmd.Run()
		if err != nil { // including a truncated file
			err = fmt.Errorf("%s: %w: %s", path, err, strings.TrimSpace(stderr.String()))
		}
		in.CloseWithError(err)
	}()
	return p, nil
}

func (p *xzProgram) Close() error {
	p.stop()
	err := p.PipeReader.Close()
	<-p.done
	return err
}

package feed

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"
)

// Compression is how a file is packed.
type Compression string

// The compressions. Sniff goes by the first bytes, which do not lie as names do.
const (
	Sniff Compression = "auto"
	None  Compression = "none"
	Gzip  Compression = "gzip"
	XZ    Compression = "xz"
	Zstd  Compression = "zstd"
)

var magics = []struct {
	start string
	kind  Compression
}{
	{"\x1f\x8b", Gzip},
	{"\xfd7zXZ\x00", XZ},
	{"\x28\xb5\x2f\xfd", Zstd},
}

// zstdWindow bounds the memory that a frame may ask for; zstd's own programs
// go as far without being told.
const zstdWindow = 128 << 20

func unpack(ctx context.Context, raw io.Reader, kind Compression) (io.ReadCloser, error) {
	r := bufio.NewReaderSize(raw, 64<<10)
	if kind == Sniff {
		kind = sniffCompression(r)
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
		return unpackXZ(ctx, r)
	}
	return io.NopCloser(r), nil
}

func sniffCompression(r *bufio.Reader) Compression {
	for _, m := range magics {
		if start, _ := r.Peek(len(m.start)); string(start) == m.start {
			return m.kind
		}
	}
	return None
}

// unpackXZ goes through the xz program where there is one: it takes a fraction
// of the library's CPU time (BenchmarkUnpackXZ), and on another core.
func unpackXZ(ctx context.Context, r io.Reader) (io.ReadCloser, error) {
	program, err := exec.LookPath("xz")
	if err != nil {
		d, err := xz.NewReader(r)
		return io.NopCloser(d), err
	}
	return startProgram(ctx, r, program, "--decompress", "--stdout")
}

// program is the output of a helper program as a stream. The program is
// started by startProgram and waited for by the Read that meets its end, or
// by Close.
type program struct {
	cmd    *exec.Cmd
	out    io.ReadCloser
	stderr bytes.Buffer
	stop   context.CancelFunc
	end    error // what Read gives once the program has been waited for
}

func startProgram(ctx context.Context, in io.Reader, name string, args ...string) (io.ReadCloser, error) {
	ctx, stop := context.WithCancel(ctx)
	p := &program{cmd: exec.CommandContext(ctx, name, args...), stop: stop}
	p.cmd.Stdin, p.cmd.Stderr = in, &p.stderr
	p.cmd.WaitDelay = time.Second // the input may be a pipe on which nobody writes any more
	var err error
	if p.out, err = p.cmd.StdoutPipe(); err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		stop()
		return nil, fmt.Errorf("cannot start %s: %w", name, err)
	}
	return p, nil
}

// Read turns a failed exit into an error: a truncated file must not look like
// a short one.
func (p *program) Read(b []byte) (int, error) {
	if p.end != nil {
		return 0, p.end
	}
	n, err := p.out.Read(b)
	if err != nil {
		p.end = p.wait(err)
		err = p.end
	}
	return n, err
}

func (p *program) wait(readErr error) error {
	if err := p.cmd.Wait(); err != nil {
		return fmt.Errorf("%s: %w: %s", p.cmd.Path, err, strings.TrimSpace(p.stderr.String()))
	}
	return readErr
}

// Close ends the program if it still runs.
func (p *program) Close() error {
	p.stop()
	if p.end == nil {
		p.end = errors.New("closed")
		_ = p.cmd.Wait() // killed by us: its exit says nothing
	}
	return nil
}

func ignoreEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

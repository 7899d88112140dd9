package ingest

import (
	"errors"
	"io"
	"sync"

	"trafficd/schemas/contract"
	"trafficd/sources/internal/admission"
)

// blockSize is large enough for one read to take all available data of a socket, and small enough
// for a body of a few items to waste little.
const blockSize = 64 << 10

type block [blockSize]byte

// blocks is a body or a response in pooled blocks that count towards a client's quota. It is first
// written, then read to its end, and then closed, by one goroutine at a time. It implements
// upload.Buffer for bodies.
type blocks struct {
	memory        *admission.Quotas
	client        string
	checkMagic    bool // there is no Content-Encoding: gzip
	list          []*block
	written, read int
	end           error // what Read returns at the end
}

// newBlocks returns empty blocks, which take no memory before the first byte.
func newBlocks(memory *admission.Quotas, client string) *blocks {
	b := blocksPool.Get().(*blocks)
	b.memory, b.client, b.end = memory, client, io.EOF
	return b
}

// Space implements upload.Buffer.
func (b *blocks) Space() ([]byte, error) {
	if b.written == len(b.list)*blockSize {
		if apiErr := b.memory.Take(b.client, blockSize); apiErr != nil {
			return nil, apiErr
		}
		b.add()
	}
	return b.list[len(b.list)-1][b.written%blockSize:], nil
}

// Wrote implements upload.Buffer.
func (b *blocks) Wrote(n int) error {
	b.written += n
	if b.checkMagic && (b.written > 0 && b.list[0][0] != 0x1f || b.written > 1 && b.list[0][1] != 0x8b) {
		return errNoGzip
	}
	return nil
}

// End implements upload.Buffer. If the body exceeded a limit, the error follows the received bytes,
// because an error earlier in the stream takes precedence (contract 1.1).
func (b *blocks) End(err error) error {
	var apiErr *contract.APIError
	switch {
	case err == io.EOF && b.checkMagic && b.written < 2:
		return errNoGzip
	case err == io.EOF:
		return nil
	case errors.As(err, &apiErr) && (apiErr.Code == contract.BodyTooLarge || apiErr.Code == contract.RequestTimeout):
		b.end = apiErr
		return nil
	}
	return err
}

var errNoGzip = gzipRequired("the body must be compressed with gzip")

// Write appends to a response. It never fails, because a response may exceed the quota.
func (b *blocks) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		if b.written == len(b.list)*blockSize {
			b.memory.Exceed(b.client, blockSize)
			b.add()
		}
		n := copy(b.list[len(b.list)-1][b.written%blockSize:], rest)
		b.written += n
		rest = rest[n:]
	}
	return len(p), nil
}

func (b *blocks) add() { b.list = append(b.list, blockPool.Get().(*block)) }

// Read implements io.Reader. Its last error is end.
//
// It does not start to read a body while unread responses exceed the memory limit, because the body
// would cause one more.
func (b *blocks) Read(p []byte) (int, error) {
	if b.read == 0 && b.memory.Exceeded() {
		return 0, contract.Unavailable(b.memory.Full, retryAfter)
	}
	if b.read == b.written {
		return 0, b.end
	}
	n := copy(p, b.unread())
	b.read += n
	return n, nil
}

// WriteTo implements io.WriterTo, so that a response is written to the connection without another
// copy.
func (b *blocks) WriteTo(w io.Writer) (total int64, err error) {
	for b.read < b.written && err == nil {
		var n int
		n, err = w.Write(b.unread())
		b.read += n
		total += int64(n)
	}
	return total, err
}

func (b *blocks) unread() []byte {
	from := b.read % blockSize
	return b.list[b.read/blockSize][from:min(blockSize, from+b.written-b.read)]
}

// Close implements io.Closer. It frees all memory, b itself included.
func (b *blocks) Close() error {
	b.memory.Release(b.client, int64(len(b.list))*blockSize)
	for i, x := range b.list {
		poison(x)
		blockPool.Put(x)
		b.list[i] = nil
	}
	*b = blocks{list: b.list[:0]}
	blocksPool.Put(b)
	return nil
}

var (
	blockPool  = sync.Pool{New: func() any { return new(block) }}
	blocksPool = sync.Pool{New: func() any { return new(blocks) }}
)

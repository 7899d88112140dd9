package ingest

import (
	"errors"
	"io"
	"sync"

	"trafficd/schemas/contract"
	"trafficd/sources/internal/admission"
)

// blockSize is large enough that one read takes what the socket has, and small enough that a body
// of a few items wastes little.
const blockSize = 64 << 10

type block [blockSize]byte

// blocks is a body or an answer in pooled blocks that count as a client's memory. It is written
// first, then read to its end, then closed, by one goroutine at a time. It is the upload.Buffer of
// a body.
type blocks struct {
	memory        *admission.Quotas
	client        string
	checkMagic    bool // no Content-Encoding says that the body is gzip
	list          []*block
	written, read int
	end           error // what Read returns at the end
}

// newBlocks returns an empty one, which takes no memory before its first byte.
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

// End implements upload.Buffer. If the body stopped at a limit, the error follows the bytes that
// were received, because an error earlier in the stream comes first (contract 1.1).
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

// Write appends to an answer. It never fails: an answer may exceed the quota.
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
// A body is not begun while answers that clients do not read exceed the memory: its own answer
// would be one more.
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

// WriteTo implements io.WriterTo: an answer goes to the connection without another copy.
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
	b.memory.Give(b.client, int64(len(b.list))*blockSize)
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

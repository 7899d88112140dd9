package ingest

import (
	"errors"
	"io"
	"sync"

	"trafficd/pipeline/lib/admission"
	"trafficd/schemas/contract"
)

// blockSize is large enough to empty a socket with one read, and small enough to waste little on a
// body of a few items.
const blockSize = 64 << 10

type block [blockSize]byte

// blocks holds a request body or a response in pooled blocks that count against the client's quota.
// It is first written, then read, and then closed, by one goroutine at a time. It implements
// upload.Buffer for request bodies.
type blocks struct {
	memory        *admission.Quotas
	client        string
	checkMagic    bool // reject a body that does not begin with gzip's magic number
	response      bool // the blocks were charged by Write, not acquired by Space
	list          []*block
	written, read int
	end           error // returned by Read after the last byte
}

func newBlocks(memory *admission.Quotas, client string) *blocks {
	b := blocksPool.Get().(*blocks)
	b.memory, b.client, b.end = memory, client, io.EOF
	return b
}

func (b *blocks) Space() ([]byte, error) {
	if b.written == len(b.list)*blockSize {
		if apiErr := b.memory.Acquire(b.client, blockSize); apiErr != nil {
			return nil, apiErr
		}
		b.grow()
	}
	return b.list[len(b.list)-1][b.written%blockSize:], nil
}

func (b *blocks) Wrote(n int) error {
	b.written += n
	if b.checkMagic && (b.written > 0 && b.list[0][0] != 0x1f || b.written > 1 && b.list[0][1] != 0x8b) {
		return errNotGzip
	}
	return nil
}

// End implements upload.Buffer. If the body exceeded a limit, Read returns the error after the
// received bytes, because an error earlier in the stream takes precedence (contract 1.1).
func (b *blocks) End(err error) error {
	var apiErr *contract.APIError
	switch {
	case err == io.EOF && b.checkMagic && b.written < 2:
		return errNotGzip
	case err == io.EOF:
		return nil
	case errors.As(err, &apiErr) && (apiErr.Code == contract.BodyTooLarge || apiErr.Code == contract.RequestTimeout):
		b.end = apiErr
		return nil
	}
	return err
}

var errNotGzip = gzipRequired("the body must be compressed with gzip")

// Write appends to a response. It never fails, because a response may exceed the quota.
func (b *blocks) Write(p []byte) (int, error) {
	b.response = true
	for rest := p; len(rest) > 0; {
		if b.written == len(b.list)*blockSize {
			b.memory.Charge(b.client, blockSize)
			b.grow()
		}
		n := copy(b.list[len(b.list)-1][b.written%blockSize:], rest)
		b.written += n
		rest = rest[n:]
	}
	return len(p), nil
}

func (b *blocks) grow() { b.list = append(b.list, blockPool.Get().(*block)) }

// Read implements io.Reader. Before the first byte, it returns a 503 if the client's unread
// responses exceed its quota, or if all clients together exceed the memory limit, because
// processing the body produces another response.
func (b *blocks) Read(p []byte) (int, error) {
	if b.read == 0 {
		if apiErr := b.memory.CheckCharged(b.client); apiErr != nil {
			return 0, apiErr
		}
	}
	if b.read == b.written {
		return 0, b.end
	}
	n := copy(p, b.unread())
	b.read += n
	return n, nil
}

// WriteTo implements io.WriterTo, so that a response is written without a copy.
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

// Close implements io.Closer. It recycles the blocks and b, which must not be used afterwards.
func (b *blocks) Close() error {
	free := b.memory.Release
	if b.response {
		free = b.memory.Discharge
	}
	free(b.client, int64(len(b.list))*blockSize)
	for i, x := range b.list {
		if raceEnabled { // so that tests detect a use after free
			for j := range x {
				x[j] = 0xdb
			}
		}
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

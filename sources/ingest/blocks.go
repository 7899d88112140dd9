package ingest

import (
	"io"
	"sync"
)

// blockSize is large enough that a read of the socket takes what is there, and
// small enough that a body of a few items wastes little.
const blockSize = 64 << 10

type block [blockSize]byte

// blocks is a body or an answer in pooled blocks. It is written first, then read
// to its end, then closed; one goroutine at a time.
type blocks struct {
	admission     *admission
	list          []*block
	written, read int
	end           error // what Read gives at the end
}

// newBlocks gives an empty one, which takes no memory before its first byte.
func newBlocks(a *admission) *blocks {
	b := blocksPool.Get().(*blocks)
	b.admission, b.end = a, io.EOF
	return b
}

// space is where the next bytes of a body go; wrote tells how many they were. It
// is empty where the admission has no memory.
func (b *blocks) space() []byte {
	at := b.written % blockSize
	if b.written == len(b.list)*blockSize {
		if !b.admission.hold(blockSize) {
			return nil
		}
		b.add()
	}
	return b.list[len(b.list)-1][at:]
}

func (b *blocks) wrote(n int) { b.written += n }

// Write appends to an answer. It never fails.
func (b *blocks) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		if b.written == len(b.list)*blockSize {
			b.admission.exceed(blockSize)
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
// A body that waited for its turn is not begun where by then the answers of others, that
// their clients do not read, have used up the memory: its own would be one more.
func (b *blocks) Read(p []byte) (int, error) {
	if b.read == 0 && b.admission.exceeded() {
		return 0, memoryFull()
	}
	if b.read == b.written {
		return 0, b.end
	}
	n := copy(p, b.rest())
	b.read += n
	return n, nil
}

// WriteTo implements io.WriterTo: an answer goes to the connection without
// another copy.
func (b *blocks) WriteTo(w io.Writer) (int64, error) {
	total := int64(0)
	for b.read < b.written {
		n, err := w.Write(b.rest())
		b.read += n
		total += int64(n)
		if err != nil {
			return total, err
		}
	}
	return total, nil
}

// rest is what is unread of the block that is being read.
func (b *blocks) rest() []byte {
	from := b.read % blockSize
	to := min(blockSize, from+b.written-b.read)
	return b.list[b.read/blockSize][from:to]
}

// starts tells whether the first two bytes are these, as far as they are there.
func (b *blocks) starts(first, second byte) bool {
	return (b.written < 1 || b.list[0][0] == first) && (b.written < 2 || b.list[0][1] == second)
}

// Close implements io.Closer: an answer is closed when it is written.
func (b *blocks) Close() error {
	b.free()
	return nil
}

// free gives all memory back, b's own included: it is not to be used again.
func (b *blocks) free() {
	b.admission.release(int64(len(b.list)) * blockSize)
	for i, x := range b.list {
		poison(x)
		blockPool.Put(x)
		b.list[i] = nil
	}
	*b = blocks{list: b.list[:0]}
	blocksPool.Put(b)
}

var (
	blockPool  = sync.Pool{New: func() any { return new(block) }}
	blocksPool = sync.Pool{New: func() any { return new(blocks) }}
)

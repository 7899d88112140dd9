package routing

import (
	"io"

	"trafficd/schemas/contract"
)

// firstBytes is how much of a body is received into at first: most requests are
// smaller. Nothing is taken for a length that is only declared.
const firstBytes = 4 << 10

// body is a request's body as far as it was received.
type body struct {
	memory *shares
	client string
	bytes  []byte
}

// space gives room for more, at most up to a limit that is not reached yet.
func (b *body) space(limit int64) ([]byte, *contract.APIError) {
	if len(b.bytes) == cap(b.bytes) {
		size := int(min(max(firstBytes, 2*int64(cap(b.bytes))), limit))
		if apiErr := b.memory.take(b.client, int64(size)); apiErr != nil {
			return nil, apiErr
		}
		larger := append(make([]byte, 0, size), b.bytes...)[:len(b.bytes)]
		b.memory.give(b.client, int64(cap(b.bytes)))
		b.bytes = larger
	}
	return b.bytes[len(b.bytes):cap(b.bytes)], nil
}

func (b *body) wrote(n int) { b.bytes = b.bytes[:len(b.bytes)+n] }

func (b *body) free() {
	b.memory.give(b.client, int64(cap(b.bytes)))
	b.bytes = nil
}

// answer is a finished answer on its way to the client. Its memory counts until
// the server closes it.
type answer struct {
	memory *shares
	client string
	bytes  []byte
	at     int
}

func newAnswer(memory *shares, client string, bytes []byte) *answer {
	memory.exceed(client, int64(cap(bytes)))
	return &answer{memory: memory, client: client, bytes: bytes}
}

// Read implements io.Reader.
func (a *answer) Read(p []byte) (int, error) {
	if a.at == len(a.bytes) {
		return 0, io.EOF
	}
	n := copy(p, a.bytes[a.at:])
	a.at += n
	return n, nil
}

// Close implements io.Closer.
func (a *answer) Close() error {
	a.memory.give(a.client, int64(cap(a.bytes)))
	a.bytes, a.at = nil, 0
	return nil
}

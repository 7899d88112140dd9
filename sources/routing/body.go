package routing

import (
	"bytes"
	"io"

	"trafficd/pipeline/lib/admission"
)

// firstBytes is the initial size of the buffer for a body. Most requests are smaller. A declared
// Content-Length alone allocates nothing.
const firstBytes = 4 << 10

// body is the part of a request body received so far. It implements upload.Buffer.
type body struct {
	memory *admission.Quotas
	client string
	limit  int64
	bytes  []byte
}

// Space implements upload.Buffer. It copies a full buffer to a larger one.
func (b *body) Space() ([]byte, error) {
	if len(b.bytes) == cap(b.bytes) {
		size := int(min(max(firstBytes, 2*int64(cap(b.bytes))), b.limit))
		if apiErr := b.memory.Acquire(b.client, int64(size)); apiErr != nil {
			return nil, apiErr
		}
		larger := append(make([]byte, 0, size), b.bytes...)
		b.memory.Release(b.client, int64(cap(b.bytes)))
		b.bytes = larger
	}
	return b.bytes[len(b.bytes):cap(b.bytes)], nil
}

func (b *body) Wrote(n int) error {
	b.bytes = b.bytes[:len(b.bytes)+n]
	return nil
}

func (b *body) End(err error) error {
	if err == io.EOF {
		return nil
	}
	return err
}

func (b *body) free() {
	b.memory.Release(b.client, int64(cap(b.bytes)))
	b.bytes = nil
}

// responseBody is the body of a response. Its memory is charged to the client's quota until the
// server has written and closed it.
type responseBody struct {
	bytes.Reader
	memory *admission.Quotas
	client string
	size   int64
}

func newResponseBody(memory *admission.Quotas, client string, text []byte) *responseBody {
	r := &responseBody{memory: memory, client: client, size: int64(cap(text))}
	r.Reset(text)
	memory.Charge(client, r.size)
	return r
}

func (r *responseBody) Close() error {
	r.memory.Discharge(r.client, r.size)
	r.Reset(nil)
	r.size = 0
	return nil
}

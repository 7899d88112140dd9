package pipeline

import (
	"bufio"
	"errors"
	"fmt"
	"io"

	"github.com/cespare/xxhash/v2"
	"github.com/klauspost/compress/gzip"

	"trafficd/schemas/contract"
)

// body decompresses a request body through a fixed buffer, limits its decompressed size and, for requests with an
// Idempotency-Key, hashes it.
type body struct {
	max    int64
	in     *bufio.Reader
	gz     *gzip.Reader
	opened bool
	left   int64
	hash   xxhash.Digest
	hashed bool
	err    error
}

func newBody(maxBytes int64) body {
	return body{max: maxBytes, in: bufio.NewReaderSize(nil, 32<<10), gz: new(gzip.Reader)}
}

func (b *body) reset(compressed io.Reader, hashed bool) {
	b.in.Reset(compressed)
	b.left, b.hashed, b.opened, b.err = b.max, hashed, false, nil
	b.hash.Reset()
}

// Read implements io.Reader. It returns io.EOF only after the checksum of the last gzip member was verified.
func (b *body) Read(p []byte) (n int, err error) {
	if b.err == nil && !b.opened {
		b.opened = true
		if b.err = b.gz.Reset(b.in); b.err == io.EOF {
			b.err = io.ErrUnexpectedEOF // an empty body is not a complete one
		}
	}
	if b.err != nil {
		return 0, b.err
	}
	n, b.err = b.gz.Read(p)
	if int64(n) > b.left {
		n = int(b.left)
		b.err = contract.NewError(contract.BodyTooLarge,
			fmt.Sprintf("the decompressed body exceeds %d bytes; send fewer measurements per request", b.max))
	}
	b.left -= int64(n)
	if b.hashed {
		b.hash.Write(p[:n])
	}
	return n, b.err
}

// sum returns the hash of everything read, 0 if the body is not hashed.
func (b *body) sum() uint64 {
	if !b.hashed {
		return 0
	}
	return b.hash.Sum64()
}

// bodyError converts an error of decoding to an API error: all others came from gzip.
func bodyError(err error) error {
	var apiErr *contract.APIError
	if errors.As(err, &apiErr) {
		return apiErr
	}
	return contract.NewError(contract.InvalidGzip, "invalid gzip: "+err.Error())
}

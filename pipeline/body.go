package pipeline

import (
	"errors"
	"fmt"
	"io"
	"runtime"

	"github.com/cespare/xxhash/v2"

	"trafficd/schemas/contract"
	"trafficd/schemas/gunzip"
)

// body decompresses a request body through a fixed buffer, limits its decompressed size and, for requests with an
// Idempotency-Key, hashes it.
type body struct {
	max    int64
	gz     gunzip.Reader
	left   int64
	hash   xxhash.Digest
	hashed bool
	err    error
}

func newBody(maxBytes int64) body {
	return body{max: maxBytes}
}

func (b *body) reset(compressed io.Reader, hashed bool) {
	b.gz.Reset(compressed)
	b.left, b.hashed, b.err = b.max, hashed, nil
	b.hash.Reset()
}

// Read implements io.Reader. It returns io.EOF only after the checksum of the last gzip member was verified.
func (b *body) Read(p []byte) (n int, err error) {
	if b.err != nil {
		return 0, b.err
	}
	runtime.Gosched() // a long body would keep short ones waiting for 10 ms wherever they change goroutines
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

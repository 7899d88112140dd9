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

// body is the decompressed side of a request's body: gunzip through a fixed block, a limit on what comes out of it, and
// its hash where the request has an Idempotency-Key. It is never held whole.
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

// compressedBlock is how much of a compressed body gunzip sees at a time.
const compressedBlock = 32 << 10

func (b *body) init(maxBytes int64) {
	b.max = maxBytes
	b.in = bufio.NewReaderSize(nil, compressedBlock)
	b.gz = new(gzip.Reader)
}

func (b *body) reset(compressed io.Reader, hashed bool) {
	b.in.Reset(compressed)
	b.left, b.hashed, b.opened, b.err = b.max, hashed, false, nil
	b.hash.Reset()
}

// Read implements io.Reader. io.EOF comes only after the checksum of the last gzip member was checked.
func (b *body) Read(p []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	if !b.opened {
		b.opened = true
		if b.err = b.gz.Reset(b.in); b.err != nil {
			b.err = cutShort(b.err)
			return 0, b.err
		}
	}
	var n int
	n, b.err = b.gz.Read(p)
	if int64(n) > b.left {
		n = int(b.left)
		b.err = b.tooLarge()
	}
	b.left -= int64(n)
	if b.hashed {
		b.hash.Write(p[:n])
	}
	return n, b.err
}

// sum is the hash of all that was read, 0 where none was wanted.
func (b *body) sum() uint64 {
	if !b.hashed {
		return 0
	}
	return b.hash.Sum64()
}

func (b *body) tooLarge() error {
	return contract.NewError(contract.BodyTooLarge, fmt.Sprintf("the decompressed body is larger than %d bytes; send fewer measurements at a time", b.max))
}

// refusal turns an error of decoding into what the client is told: a refusal as it is, all else came from gunzip.
func (b *body) apiErr(err error) error {
	var r *contract.APIError
	if errors.As(err, &r) {
		return r
	}
	return contract.NewError(contract.InvalidGzip, "the body is no valid gzip: "+err.Error())
}

// cutShort keeps the end of an empty body from looking like the end of a complete one.
func cutShort(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

package send

import (
	"bytes"
	"math"

	"github.com/google/uuid"
	"github.com/klauspost/compress/gzip"

	"trafficd/cmd/trafficctl/internal/measurement"
)

const (
	bodyStart = `{"measurements":[`
	bodyEnd   = `]}`

	// maxBody closes a batch of unusually long items early: well under what the
	// daemon takes, packed (16 MiB) or not (64 MiB).
	maxBody = 12 << 20
)

// batch is one request in the making, on its way, or free to be used again.
type batch struct {
	key    string // Idempotency-Key, the same over all attempts
	body   []byte // JSON, without bodyEnd until it is sealed
	ends   []int  // where each item ends in body
	places []measurement.Place
	packed bytes.Buffer
}

func (b *batch) reset() {
	b.key = uuid.NewString()
	b.body = append(b.body[:0], bodyStart...)
	b.ends, b.places = b.ends[:0], b.places[:0]
	b.packed.Reset()
}

func (b *batch) len() int { return len(b.ends) }

func (b *batch) add(item measurement.Item) {
	if b.len() > 0 {
		b.body = append(b.body, ',')
	}
	b.body = append(b.body, item.JSON...)
	b.ends = append(b.ends, len(b.body))
	b.places = append(b.places, item.Place)
}

// full tells whether the next item, unless it is a giant, belongs elsewhere.
func (b *batch) full(limit int) bool { return b.len() >= limit || len(b.body) >= maxBody }

// item gives the JSON of the i-th item.
func (b *batch) item(i int) []byte {
	start := len(bodyStart)
	if i > 0 {
		start = b.ends[i-1] + 1
	}
	return b.body[start:b.ends[i]]
}

// firstRow is the row of the input that the batch begins with; a very large
// number for an empty batch.
func (b *batch) firstRow() int64 {
	if b.len() == 0 {
		return math.MaxInt64
	}
	return b.places[0].Row
}

// pack makes the request's bytes. It is done once for all attempts: a retry
// sends the same.
func (b *batch) pack(z *gzip.Writer) error {
	z.Reset(&b.packed)
	if _, err := z.Write(append(b.body, bodyEnd...)); err != nil {
		return err
	}
	return z.Close()
}

package batch

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"

	"go.opentelemetry.io/otel/trace"
)

// ID is a batch's UUID, used in the Batch-Id header, in the archive and on every forwarded record
// (contract 1.3). It is a random UUIDv7, or a UUIDv8 from DerivedID.
type ID [16]byte

// DerivedID returns the ID of a batch with an Idempotency-Key, a hash of client
// (contract.Client.Owner), key and body (contract 1.5). A batch that is accepted twice, by two
// replicas or after the idempotency window, has the same ID both times.
func DerivedID(client, key string, bodyHash uint64) (id ID) {
	b := make([]byte, 0, 256)
	for _, text := range [...]string{client, key} {
		b = AppendCounted(b, text)
	}
	sum := sha256.Sum256(binary.LittleEndian.AppendUint64(b, bodyHash))
	copy(id[:], sum[:])
	id[6], id[8] = id[6]&0x0f|0x80, id[8]&0x3f|0x80 // version 8, variant of RFC 9562
	return id
}

// Derived reports whether the ID is from DerivedID. Several batches may have such an ID.
func (id ID) Derived() bool { return id[6]>>4 == 8 }

// String returns the canonical form of 36 characters.
func (id ID) String() string {
	var b [36]byte
	hex.Encode(b[0:8], id[0:4])
	hex.Encode(b[9:13], id[4:6])
	hex.Encode(b[14:18], id[6:8])
	hex.Encode(b[19:23], id[8:10])
	hex.Encode(b[24:36], id[10:16])
	b[8], b[13], b[18], b[23] = '-', '-', '-', '-'
	return string(b[:])
}

// Batch holds the accepted rows of one request, which are archived and forwarded (contract 4).
type Batch struct {
	ID              ID
	ProductInstance string
	ReceivedAt      int64             // nanoseconds since 1970 UTC; strictly increasing on a replica
	Trace           trace.SpanContext // of the request, if it is sampled; otherwise the zero value
	Columns
	Index []uint32 // row → position in the request's measurements, ascending
}

// Reset empties the batch and keeps its memory.
func (b *Batch) Reset() {
	b.ID, b.ProductInstance, b.ReceivedAt, b.Trace = ID{}, "", 0, trace.SpanContext{}
	b.Columns.Reset()
	b.Index = b.Index[:0]
}

// Accept moves the rows of it that were not rejected into b. It swaps their columns, so it must be
// reset before reuse.
func (b *Batch) Accept(it *Items, r *Rejections) {
	b.Columns, it.Columns = it.Columns, b.Columns
	b.Index = b.Index[:0]
	n, next := 0, 0
	for row := range b.Rows() {
		if next < len(r.List) && r.List[next].Index == uint32(row) {
			next++
			continue
		}
		if n != row {
			b.move(n, row)
		}
		b.Index = append(b.Index, uint32(row))
		n++
	}
	b.Truncate(n)
}

// Submission is one request body on its way through the pipeline, with its outcome. It belongs to
// the pipeline during a call of Submit and to the caller otherwise.
type Submission struct {
	ProductInstance string
	Client          string // contract.Client.Owner, whose share of the idempotency store the answer takes
	IdempotencyKey  string // may be empty
	Trace           trace.SpanContext

	// Body is the compressed body. It was received completely: reading it never waits for the
	// client.
	Body io.Reader

	Result Result // after an error only Items is valid: how many were decoded
}

// Reset empties the submission and keeps its memory.
func (s *Submission) Reset() {
	rejections := s.Result.Rejections
	rejections.Reset()
	*s = Submission{Result: Result{Rejections: rejections}}
}

// Result is the outcome of a submission that is answered with 207 (contract 5.2).
type Result struct {
	ID         ID
	Items      int // accepted + rejected
	Accepted   int
	Duplicates int        // accepted items that replace an earlier one of the batch in the archive
	Replay     bool       // the first result of the same Idempotency-Key, repeated
	Detectors  *Detectors // that the items were validated against; nil for a replay
	Rejections
}

// Rejected returns the number of rejected items.
func (r *Result) Rejected() int { return r.Items - r.Accepted }

// ErrNoResponse is returned when the outcome of a batch is unknown. The connection must be closed
// without a response; a retry with the same Idempotency-Key reveals it (contract 1.1).
var ErrNoResponse = errors.New("the outcome of the batch is unknown")

// PermanentError is returned by a sink when no retry of the same block can succeed. The delivery
// loop then splits the block until it finds the rejected row. All other errors are retried.
type PermanentError struct{ Err error }

// Error implements error.
func (e *PermanentError) Error() string { return "permanently rejected: " + e.Err.Error() }

// Unwrap returns the store's error.
func (e *PermanentError) Unwrap() error { return e.Err }

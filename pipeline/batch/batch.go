package batch

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"

	"go.opentelemetry.io/otel/trace"

	"trafficd/schemas/contract"
)

// ID is the UUID of a batch: a random UUIDv7, or a UUIDv8 from DerivedID. It is in the Batch-Id
// header, in the archive and on every forwarded record (contract 1.3).
type ID [16]byte

// DerivedID returns the ID of a batch sent with an Idempotency-Key: a hash of client
// (contract.Client.Owner), key and bodyHash (contract 1.5). A batch that is accepted twice, by two
// replicas or after the idempotency window, gets the same ID both times.
func DerivedID(client, key string, bodyHash uint64) (id ID) {
	b := make([]byte, 0, 256)
	for _, text := range [...]string{client, key} {
		b = AppendCounted(b, text)
	}
	sum := sha256.Sum256(binary.LittleEndian.AppendUint64(b, bodyHash))
	copy(id[:], sum[:])
	id[6], id[8] = id[6]&0x0f|0x80, id[8]&0x3f|0x80 // version 8, RFC 9562 variant
	return id
}

// Derived reports whether id was created by DerivedID. More than one frame may have such an ID.
func (id ID) Derived() bool { return id[6]>>4 == 8 }

// String returns the canonical 36-character form.
func (id ID) String() string { return string(id.Append(make([]byte, 0, 36))) }

// Append appends the canonical form to dst.
func (id ID) Append(dst []byte) []byte {
	dst = append(hex.AppendEncode(dst, id[0:4]), '-')
	dst = append(hex.AppendEncode(dst, id[4:6]), '-')
	dst = append(hex.AppendEncode(dst, id[6:8]), '-')
	dst = append(hex.AppendEncode(dst, id[8:10]), '-')
	return hex.AppendEncode(dst, id[10:16])
}

// Batch holds the accepted rows of one request, which are archived and forwarded (contract 4).
type Batch struct {
	ID              ID
	ProductInstance string
	Client          string            // contract.Client.Owner
	ReceivedAt      int64             // nanoseconds since the Unix epoch; strictly increasing on a replica
	Trace           trace.SpanContext // the request's; the zero value if it is not sampled
	Columns
	Index []uint32 // row → position in the request's measurements, ascending
}

// Reset empties the batch. It keeps the memory used by the columns for reuse.
func (b *Batch) Reset() {
	b.ID, b.ProductInstance, b.Client, b.ReceivedAt, b.Trace = ID{}, "", "", 0, trace.SpanContext{}
	b.Columns.Reset()
	b.Index = b.Index[:0]
}

// Accept sets the rows of b to the rows of items that r does not reject. It swaps the columns of b
// and items, so items must be reset before it is used again.
func (b *Batch) Accept(items *Items, r *Rejections) {
	b.Columns, items.Columns = items.Columns, b.Columns
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

// Submission is a request body together with the result of processing it. The pipeline owns it
// during a call to Submit; at all other times, the caller does.
type Submission struct {
	ProductInstance string
	Client          string // contract.Client.Owner
	IdempotencyKey  string // empty if the request has none
	ValidateOnly    bool   // nothing is stored, and the result has no ID; IdempotencyKey must be empty
	AllErrors       bool   // with ValidateOnly: the result may have several rejections of an item
	Trace           trace.SpanContext

	// Body is the compressed body, already received in full: reading never waits for the client.
	Body io.Reader
	Peer Peer // nil if unknown

	Result Result // after an error, only Items is valid: the number of items decoded
}

// Peer is the client's end of the connection on which a request arrived.
type Peer interface {
	// Gone reports whether the client has closed at least its sending side. It does not read from the
	// connection.
	Gone() bool
}

// Reset empties the submission. It keeps the memory used by the rejections for reuse.
func (s *Submission) Reset() {
	rejections := s.Result.Rejections
	rejections.Reset()
	*s = Submission{Result: Result{Rejections: rejections}}
}

// Result is the content of a 207 response (contract 5.2).
type Result struct {
	ID         ID
	Items      int // accepted + rejected
	Accepted   int
	Duplicates int              // accepted items that, in the archive, replace an earlier item of the same batch
	Newest     int64            // end of the newest accepted interval, Unix time in nanoseconds; 0: none, a replay or a dry run
	Replay     bool             // the result is from an earlier request with the same Idempotency-Key
	Detectors  *Detectors       // the snapshot that the items were validated against; nil for a replay
	Allowed    contract.Allowed // for the descriptions of the rejections
	Rejections
}

// Rejected returns the number of rejected items.
func (r *Result) Rejected() int { return r.Items - r.Accepted }

// ErrNoResponse is returned when the outcome of a batch is unknown. The connection must then be
// closed without a response; a retry with the same Idempotency-Key reveals the outcome (contract
// 1.1).
var ErrNoResponse = errors.New("the outcome of the batch is unknown")

// PermanentError is an error that a store would return again for every retry of the same block.
type PermanentError struct {
	Err      error
	Rejected []RejectedRows // if the store has all other rows of the block; nil if it rejected the block as a whole
}

// RejectedRows are rows that a store permanently rejected.
type RejectedRows struct {
	Rows   Block
	Reason error
}

// Error implements error.
func (e *PermanentError) Error() string { return "permanently rejected: " + e.Err.Error() }

// Unwrap returns the store's error.
func (e *PermanentError) Unwrap() error { return e.Err }

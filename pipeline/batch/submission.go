package batch

import "io"

// Submission is one request body on its way through the pipeline, and its
// outcome. Whoever makes it owns it; between the call of the pipeline and its
// return it belongs to the pipeline.
type Submission struct {
	ProductInstance string
	IdempotencyKey  string // empty: a new batch in any case

	// Body yields the compressed body and must never wait for the client: the
	// body was received before. Its last error tells how it ended: io.EOF for a
	// complete body, a *Refusal (BODY_TOO_LARGE, REQUEST_TIMEOUT) where receiving
	// stopped; the first error met in the stream is the one that is answered.
	Body io.Reader

	Result Result
}

// Result is the outcome of a submission that gets its 207 (
// contract 5.2). Its memory is the submission's.
type Result struct {
	ID       ID
	Items    int // accepted + rejected
	Accepted int
	Replay   bool // the first answer to the same Idempotency-Key, given again
	Rejections
}

// Rejected is the number of rejected items.
func (r *Result) Rejected() int { return r.Items - r.Accepted }

// Reset empties the submission and keeps its memory.
func (s *Submission) Reset() {
	rejections := s.Result.Rejections
	rejections.Reset()
	*s = Submission{Result: Result{Rejections: rejections}}
}

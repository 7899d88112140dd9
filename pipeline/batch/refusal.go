package batch

import (
	"errors"
	"time"
)

// EchoLimit is how many bytes of a client's input an answer or a log repeats
// (decisions.md 1.1).
const EchoLimit = 64

// Refusal is an answer other than 207: the whole request is turned down and
// nothing of it was or will be archived or forwarded (decisions.md 1.1).
type Refusal struct {
	Code        Code
	Description string        // for a person: what, where and what to do
	Parameter   string        // the header or JSON path at fault; may be empty
	RetryAfter  time.Duration // > 0: sent as Retry-After
}

// Error implements error.
func (r *Refusal) Error() string { return r.Code.String() + ": " + r.Description }

// Refuse makes a refusal without a parameter.
func Refuse(code Code, description string) *Refusal {
	return &Refusal{Code: code, Description: description}
}

// Unavailable makes the 503 that asks the client to come again.
func Unavailable(description string, after time.Duration) *Refusal {
	return &Refusal{Code: ServiceUnavailable, Description: description, RetryAfter: after}
}

// ErrNoAnswer says that the fate of a batch is unknown: the connection has to
// be closed without an answer, and the client's Idempotency-Key settles it
// (decisions.md 1.1).
var ErrNoAnswer = errors.New("the batch's fate is unknown: close the connection without an answer")

// RefusedError is a store's definite no to a block: no repeat of the same block
// can succeed. Sinks wrap the store's error in it; the deliver loop then splits the
// block down to the row at fault. Every other error is retried.
type RefusedError struct{ Err error }

// Error implements error.
func (e *RefusedError) Error() string { return "refused for good: " + e.Err.Error() }

// Unwrap gives the store's own error.
func (e *RefusedError) Unwrap() error { return e.Err }

package batch

import "errors"

// ErrNoAnswer says that the fate of a batch is unknown: the connection has to
// be closed without an answer, and the client's Idempotency-Key settles it
// (decisions.md 1.1).
var ErrNoAnswer = errors.New("the batch's fate is unknown: close the connection without an answer")

// PermanentError is a store's definite no to a block: no repeat of the same block
// can succeed. Sinks wrap the store's error in it; the deliver loop then splits the
// block down to the row at fault. Every other error is retried.
type PermanentError struct{ Err error }

// Error implements error.
func (e *PermanentError) Error() string { return "permanently rejected: " + e.Err.Error() }

// Unwrap gives the store's own error.
func (e *PermanentError) Unwrap() error { return e.Err }

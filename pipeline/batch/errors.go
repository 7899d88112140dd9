package batch

import "errors"

// ErrNoAnswer is returned when the outcome of a batch is unknown. The connection must be closed without a response; a
// retry with the same Idempotency-Key settles it (contract 1.1).
var ErrNoAnswer = errors.New("the outcome of the batch is unknown")

// PermanentError is returned by a sink when no retry of the same block can succeed. The delivery loop then splits the
// block until it finds the rejected row. All other errors are retried.
type PermanentError struct{ Err error }

// Error implements error.
func (e *PermanentError) Error() string { return "permanently rejected: " + e.Err.Error() }

// Unwrap returns the store's error.
func (e *PermanentError) Unwrap() error { return e.Err }

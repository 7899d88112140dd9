package contract

import "time"

// EchoLimit is how many bytes of a client's input an answer or a log repeats
// (decisions.md 1.1).
const EchoLimit = 64

// APIError is an answer other than 207: the whole request is turned down and
// nothing of it was or will be archived or forwarded (decisions.md 1.1).
type APIError struct {
	Code        Code
	Description string        // for a person: what, where and what to do
	Parameter   string        // the header or JSON path at fault; may be empty
	RetryAfter  time.Duration // > 0: sent as Retry-After
}

// Error implements error.
func (e *APIError) Error() string { return e.Code.String() + ": " + e.Description }

// NewError returns an APIError without a parameter.
func NewError(code Code, description string) *APIError {
	return &APIError{Code: code, Description: description}
}

// Unavailable returns the 503 that asks the client to retry after the given time.
func Unavailable(description string, after time.Duration) *APIError {
	return &APIError{Code: ServiceUnavailable, Description: description, RetryAfter: after}
}

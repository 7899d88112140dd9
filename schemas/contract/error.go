package contract

import "time"

// EchoLimit is the maximum number of bytes of client input that a response or a log line quotes
// (contract 6.4).
const EchoLimit = 64

// APIError is the error response to a whole request. No part of the request was or will be archived
// or forwarded (contract 1.1).
type APIError struct {
	Code        Code
	Description string        // for humans: what is wrong, where, and what to do about it
	Parameter   string        // the invalid header or JSON path; may be empty
	RetryAfter  time.Duration // sent as Retry-After if positive
}

// Error implements error.
func (e *APIError) Error() string { return e.Code.String() + ": " + e.Description }

// NewError returns an APIError without Parameter and RetryAfter.
func NewError(code Code, description string) *APIError {
	return &APIError{Code: code, Description: description}
}

// NewParameterError returns an APIError about a header or a JSON path.
func NewParameterError(code Code, parameter, description string) *APIError {
	return &APIError{Code: code, Description: description, Parameter: parameter}
}

// Unavailable returns an APIError with status 503 that asks the client to retry after the given
// time.
func Unavailable(description string, after time.Duration) *APIError {
	return &APIError{Code: ServiceUnavailable, Description: description, RetryAfter: after}
}

// NoRegistry returns the error for a client whose product instance has no detectors: a 503 if they
// are not loaded yet, a 403 if no registry feed is configured for it (contract 1.1).
func NoRegistry(productInstance string, hasFeed bool) *APIError {
	if !hasFeed {
		return NewError(Forbidden,
			"the key's product instance "+productInstance+" has no detector registry; the operator must add it to registry.feeds")
	}
	return Unavailable("the detector registry of product instance "+productInstance+" is not loaded yet; retry", 5*time.Second)
}

// Package must shortens functions that return at the first error: a function that begins with
// `defer must.Return(&err)` returns the error of the first failed call to Do or Get, in that
// function or in one that it calls. Deferred calls run as usual. Do and Get must be called in the
// goroutine of that function.
package must

import (
	"errors"
	"fmt"
	"slices"
)

type failure struct {
	error
	what []string // precedes the error
}

// Do ends the function that deferred Return if err is not nil. If what is set, such as "cannot
// write the plot", it precedes the error.
func Do(err error, what ...string) {
	if err != nil {
		panic(failure{err, what})
	}
}

// Get returns v, or ends that function if err is not nil.
func Get[T any](v T, err error) T {
	Do(err)
	return v
}

// Return sets err to the error that ended the function, joined with the errors of deferred calls.
// If what is set, it precedes the error. Return must be deferred.
func Return(err *error, what ...string) {
	switch r := recover().(type) {
	case nil:
	case failure:
		cause, others := r.error, *err // others are the errors of deferred calls
		if errors.Is(others, cause) {  // err was assigned before Do
			cause, others = others, nil
		}
		for _, w := range slices.Concat(r.what, what) {
			cause = fmt.Errorf("%s: %w", w, cause)
		}
		if others != nil {
			cause = errors.Join(cause, others)
		}
		*err = cause
	default:
		panic(r)
	}
}

// Package must is for programs that cannot continue after any error, such as benchmarks: a function
// that begins with `defer must.Return(&err)` returns the error of the first call that fails. Deferred
// calls run as after any other return. The error must be of the same goroutine.
package must

// failure is the value of the panic.
type failure struct{ error }

// Do ends the function if err is not nil.
func Do(err error) {
	if err != nil {
		panic(failure{err})
	}
}

// Get returns v, or ends the function if err is not nil.
func Get[T any](v T, err error) T {
	Do(err)
	return v
}

// Return sets err to the error that ended the function. It must be deferred.
func Return(err *error) {
	switch r := recover().(type) {
	case nil:
	case failure:
		*err = r.error
	default:
		panic(r)
	}
}

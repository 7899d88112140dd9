// Package interrupt ends calls that cannot be cancelled once a context is done.
package interrupt

import (
	"context"
	"fmt"
	"io"
)

// Error returns the error of a command whose context is done.
func Error(ctx context.Context) error { return fmt.Errorf("interrupted (%w)", context.Cause(ctx)) }

// Call returns the results of read. Once ctx is done, it returns Error and abandons the call, whose
// results are lost.
func Call[T any](ctx context.Context, read func() (T, error)) (T, error) {
	type results struct {
		value T
		err   error
	}
	done := make(chan results, 1)
	go func() {
		value, err := read()
		done <- results{value, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		var none T
		return none, Error(ctx)
	}
}

// Reader is an io.Reader that fails once Ctx is done, even while In blocks.
type Reader struct {
	Ctx context.Context
	In  io.Reader
}

// Read implements io.Reader.
func (r Reader) Read(p []byte) (int, error) {
	data := make([]byte, min(len(p), 64<<10)) // not p, which the caller may reuse after an interrupt
	read, err := Call(r.Ctx, func() ([]byte, error) {
		n, err := r.In.Read(data)
		return data[:n], err
	})
	return copy(p, read), err
}

// Writer is an io.Writer that fails once Ctx is done.
type Writer struct {
	Ctx context.Context
	Out io.Writer
}

// Write implements io.Writer.
func (w Writer) Write(p []byte) (int, error) {
	if w.Ctx.Err() != nil {
		return 0, Error(w.Ctx)
	}
	return w.Out.Write(p)
}

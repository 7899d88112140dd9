// Package interrupt abandons blocking calls, which cannot be cancelled, once a context is done.
package interrupt

import (
	"context"
	"fmt"
	"io"
)

// Error returns the error for a command that stops because ctx is done.
func Error(ctx context.Context) error { return fmt.Errorf("interrupted (%w)", context.Cause(ctx)) }

// Call calls read and returns its results. If ctx is done first, Call returns Error(ctx), and the
// results of read are lost.
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
	data := make([]byte, min(len(p), 64<<10)) // not p, which the caller may reuse while an abandoned Read continues
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

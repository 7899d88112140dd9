package main

import (
	"context"
	"fmt"
	"io"
)

// interruptibleReader is an io.Reader that fails once ctx is done, even while in blocks. A read of
// in that has not returned by then is abandoned, with its data.
type interruptibleReader struct {
	ctx context.Context
	in  io.Reader
}

func (r interruptibleReader) Read(p []byte) (int, error) {
	type result struct {
		data []byte
		err  error
	}
	done := make(chan result, 1)
	go func() {
		data := make([]byte, min(len(p), 64<<10)) // not p, which the caller may reuse after an interrupt
		n, err := r.in.Read(data)
		done <- result{data[:n], err}
	}()
	select {
	case read := <-done:
		return copy(p, read.data), read.err
	case <-r.ctx.Done():
		return 0, interrupted(r.ctx)
	}
}

// interruptibleWriter is an io.Writer that fails once ctx is done.
type interruptibleWriter struct {
	ctx context.Context
	out io.Writer
}

func (w interruptibleWriter) Write(p []byte) (int, error) {
	if w.ctx.Err() != nil {
		return 0, interrupted(w.ctx)
	}
	return w.out.Write(p)
}

// untilInterrupted calls read, and abandons it once ctx is done. It is for commands that only read.
func untilInterrupted(ctx context.Context, read func() error) error {
	done := make(chan error, 1)
	go func() { done <- read() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return interrupted(ctx)
	}
}

// interrupted returns the error of a command whose context is done.
func interrupted(ctx context.Context) error {
	return fmt.Errorf("interrupted (%w)", context.Cause(ctx))
}

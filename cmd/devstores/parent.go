package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// errParentGone ends a run whose parent has exited; it is not a failure.
var errParentGone = errors.New("the parent is gone")

// endWithParent makes this process exit when its parent dies, and calls gone when standard input closes if that is a pipe
// or a socket. The goroutine blocks in a read and ends with the process.
func endWithParent(gone func()) error {
	if err := dieWithParent(); err != nil {
		return fmt.Errorf("cannot request a signal at the parent's death: %w", err)
	}
	info, err := os.Stdin.Stat()
	if err != nil || info.Mode()&(fs.ModeNamedPipe|fs.ModeSocket) == 0 {
		return nil
	}
	go func() {
		io.Copy(io.Discard, os.Stdin)
		gone()
	}()
	return nil
}

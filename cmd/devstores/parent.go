package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// errParentGone ends a run whose parent has ended; it is no failure.
var errParentGone = errors.New("the parent is gone")

// endWithParent ends us when the parent dies, and calls gone when standard input closes, where that is a pipe or a socket: a terminal
// or /dev/null says nothing about a parent. The goroutine waits in a read and ends with the process.
func endWithParent(gone func()) error {
	if err := dieWithParent(); err != nil {
		return fmt.Errorf("cannot ask for a signal at the parent's death: %w", err)
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

// dieWithParent has the kernel send SIGTERM at the parent's death. A parent that has asked for a signal itself knows better: SIGKILL
// also ends a paused process. It wants the main thread.
func dieWithParent() error {
	var asked int32
	if err := unix.Prctl(unix.PR_GET_PDEATHSIG, uintptr(unsafe.Pointer(&asked)), 0, 0, 0); err != nil {
		return err
	}
	if asked != 0 {
		return nil
	}
	return unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGTERM), 0, 0, 0)
}

package main

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// dieWithParent has the kernel send SIGTERM when the parent dies, unless the parent has already chosen a signal: SIGKILL
// also ends a paused process. It must run on the main thread.
func dieWithParent() error {
	var chosen int32
	if err := unix.Prctl(unix.PR_GET_PDEATHSIG, uintptr(unsafe.Pointer(&chosen)), 0, 0, 0); err != nil {
		return err
	}
	if chosen != 0 {
		return nil
	}
	return unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGTERM), 0, 0, 0)
}

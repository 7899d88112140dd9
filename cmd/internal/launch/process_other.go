//go:build !linux

package launch

import "golang.org/x/sys/unix"

// setDeathSignal does nothing: only Linux signals the children of a process that dies.
func setDeathSignal(*unix.SysProcAttr, unix.Signal) {}

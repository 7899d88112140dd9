//go:build !linux

package launch

import "golang.org/x/sys/unix"

// setDeathSignal does nothing, because only Linux can signal the children of a process that dies.
func setDeathSignal(*unix.SysProcAttr, unix.Signal) {}

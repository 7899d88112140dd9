package launch

import "golang.org/x/sys/unix"

func setDeathSignal(attr *unix.SysProcAttr, sig unix.Signal) { attr.Pdeathsig = sig }

package rig

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"trafficd/cmd/dev/must"
)

// newDisk creates a disk. Without permission to mount, the error wraps os.ErrPermission.
func newDisk(bytes int) (d *Disk, err error) {
	defer must.Return(&err, "cannot create a small disk")
	fs := must.Get(unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC))
	defer func() { _ = unix.Close(fs) }()
	must.Do(unix.FsconfigSetString(fs, "size", fmt.Sprint(bytes)))
	must.Do(unix.FsconfigCreate(fs))
	fd := must.Get(unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, 0))
	return &Disk{fd: fd, Dir: fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), fd)}, nil
}

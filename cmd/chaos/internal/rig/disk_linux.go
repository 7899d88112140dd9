package rig

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// newDisk requires permission to mount; without it, the error wraps os.ErrPermission.
func newDisk(bytes int) (*Disk, error) {
	fs, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("cannot create a small disk: %w", err)
	}
	defer func() { _ = unix.Close(fs) }()
	if err := errors.Join(unix.FsconfigSetString(fs, "size", fmt.Sprint(bytes)), unix.FsconfigCreate(fs)); err != nil {
		return nil, fmt.Errorf("cannot create a small disk: %w", err)
	}
	fd, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot create a small disk: %w", err)
	}
	return &Disk{fd: fd, Dir: fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), fd)}, nil
}

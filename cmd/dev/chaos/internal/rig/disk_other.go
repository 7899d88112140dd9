//go:build !linux

package rig

import (
	"fmt"
	"os"
)

func newDisk(int) (*Disk, error) {
	return nil, fmt.Errorf("cannot create an in-memory file system on this platform: %w", os.ErrPermission)
}

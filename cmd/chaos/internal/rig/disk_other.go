//go:build !linux

package rig

import (
	"fmt"
	"os"
)

func newDisk(int) (*Disk, error) {
	return nil, fmt.Errorf("cannot create a small disk on this platform: %w", os.ErrPermission)
}

package rig

import (
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Disk is an in-memory file system for the journal, small enough to be filled. It has no mount
// point: it is accessible through a descriptor of this process, and disappears when that is closed.
type Disk struct {
	fd  int
	Dir string
}

func (d *Disk) ballast() string { return filepath.Join(d.Dir, "ballast") }

// Fill fills the disk to the last byte.
func (d *Disk) Fill() error {
	f, err := os.Create(d.ballast())
	if err != nil {
		return err
	}
	defer f.Close()
	block := make([]byte, 64<<10)
	for len(block) > 0 {
		if _, err := f.Write(block); errors.Is(err, unix.ENOSPC) {
			block = block[:len(block)/2]
		} else if err != nil {
			return err
		}
	}
	return nil
}

// Free undoes Fill.
func (d *Disk) Free() error { return os.Remove(d.ballast()) }

func (d *Disk) close() error { return unix.Close(d.fd) }

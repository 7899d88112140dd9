package journal

import (
	"fmt"
	"io"

	"trafficd/cmd/dev/crashfs"
)

// memFS is a file system in memory that can crash.
type memFS struct{ *crashfs.FS }

func newMemFS(seed uint64) *memFS { return &memFS{crashfs.New(seed)} }

func (fs *memFS) Open(path string, flag int) (File, error) {
	f, err := fs.FS.Open(path, flag)
	if err != nil {
		return nil, err
	}
	return f, nil
}

func (fs *memFS) Lock(path string) (io.Closer, error) {
	lock, err := fs.FS.Lock(path)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrLocked, err)
	}
	return lock, nil
}

func (fs *memFS) crash(powerLost bool) *memFS { return &memFS{fs.Crash(powerLost)} }
func (fs *memFS) clone() *memFS               { return &memFS{fs.Clone()} }

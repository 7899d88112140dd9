package journal

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"trafficd/pipeline/lib/replace"
)

// FS is the file system of a journal. The tests use an implementation that simulates crashes.
type FS interface {
	// MkdirAll creates a directory and its parents durably.
	MkdirAll(dir string) error
	// Lock acquires a lock, which the Closer releases. The error wraps ErrLocked if it is held.
	Lock(path string) (io.Closer, error)
	// List returns the names in a directory, sorted.
	List(dir string) ([]string, error)
	// Open opens a file with the flags of os.OpenFile.
	Open(path string, flag int) (File, error)
	Rename(from, to string) error
	Remove(path string) error
	// SyncDir makes the names in a directory durable.
	SyncDir(dir string) error
}

// File is an open file. One writer and any number of readers may use it concurrently.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	Size() (int64, error)
	Truncate(size int64) error
	// Reserve allocates disk space for the first size bytes without changing the size of the file.
	Reserve(size int64) error
	// Sync makes the contents and all metadata durable.
	Sync() error
	// Datasync makes the contents durable, and the metadata that is needed to read them.
	Datasync() error
	// Free returns the disk space that is available to this process, in bytes.
	Free() (int64, error)
}

// osFS is the file system of the operating system.
type osFS struct{}

func (osFS) MkdirAll(dir string) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	parent := filepath.Dir(dir)
	if parent != dir {
		if err := (osFS{}).MkdirAll(parent); err != nil {
			return err
		}
	}
	if err := os.Mkdir(dir, 0o750); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return osFS{}.SyncDir(parent)
}

func (osFS) Lock(path string) (io.Closer, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o640)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		pid := make([]byte, 32)
		n, _ := file.ReadAt(pid, 0) // only for the error message
		err = fmt.Errorf("%w by process %s", ErrLocked, cmp.Or(strings.TrimSpace(string(pid[:n])), "with unknown id"))
	}
	if err == nil {
		err = file.Truncate(0)
	}
	if err == nil {
		_, err = fmt.Fprintf(file, "%d\n", os.Getpid())
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

func (osFS) List(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, err
}

func (osFS) Open(path string, flag int) (File, error) {
	f, err := os.OpenFile(path, flag, 0o640)
	if err != nil {
		return nil, err
	}
	return osFile{File: f, fd: int(f.Fd())}, nil
}

func (osFS) Rename(from, to string) error { return os.Rename(from, to) }
func (osFS) Remove(path string) error     { return os.Remove(path) }

func (osFS) SyncDir(dir string) error { return replace.SyncDir(dir) }

// osFile keeps the file descriptor, because (*os.File).Fd takes a lock.
type osFile struct {
	*os.File
	fd int
}

func (f osFile) Size() (int64, error) {
	st, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return st.Size(), nil
}

func (f osFile) Free() (int64, error) {
	var st unix.Statfs_t
	if err := unix.Fstatfs(f.fd, &st); err != nil {
		return 0, err
	}
	return freeOf(&st), nil
}

func freeOf(st *unix.Statfs_t) int64 { return int64(st.Bavail * uint64(st.Bsize)) }

// CheckSpace returns an error if the disk has less than MinFreeBytes or, before the journal exists,
// has no room for its first segment besides. It creates nothing.
func (c Config) CheckSpace() error {
	dir, need := c.Dir, c.MinFreeBytes
	var st unix.Statfs_t
	err := unix.Statfs(dir, &st)
	for err == unix.ENOENT && filepath.Dir(dir) != dir { // the journal creates its directory
		dir, need = filepath.Dir(dir), c.MinFreeBytes+c.segmentBytes()
		err = unix.Statfs(dir, &st)
	}
	if err != nil || c.MinFreeBytes == 0 || freeOf(&st) >= need {
		return nil // a directory that cannot be used is another error
	}
	return lowError(dir, freeOf(&st), c)
}

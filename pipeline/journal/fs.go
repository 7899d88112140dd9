package journal

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// FS is the few calls that the journal makes of a file system. The tests have one that crashes.
type FS interface {
	// MkdirAll creates a folder and its parents; each one that it creates is durable on return.
	MkdirAll(dir string) error
	// Lock takes an exclusive lock for as long as the returned Closer is open, or fails with ErrLocked.
	Lock(path string) (io.Closer, error)
	// List returns the names in a folder, sorted.
	List(dir string) ([]string, error)
	// Open opens a file with the flags of os.OpenFile.
	Open(path string, flag int) (File, error)
	Rename(from, to string) error
	Remove(path string) error
	// SyncDir makes the names in a folder durable.
	SyncDir(dir string) error
	// Free is the space that is left for this process on the folder's disk.
	Free(dir string) (int64, error)
}

// File is an open file. ReadAt may be called from several goroutines, beside one writer.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	Size() (int64, error)
	Truncate(size int64) error
	// Reserve takes disk space for the first size bytes, and leaves size and contents as they are.
	Reserve(size int64) error
	// Sync makes the contents and all metadata durable.
	Sync() error
	// Datasync makes the contents durable, and the metadata without which they cannot be read.
	Datasync() error
}

// osFS is the file system of the operating system (Linux).
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
		err = fmt.Errorf("%w by process %s", ErrLocked, holder(file))
	}
	if err == nil {
		err = sign(file)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// holder reads the process id that the lock's owner wrote.
func holder(file *os.File) string {
	b := make([]byte, 32)
	n, _ := file.ReadAt(b, 0) // what cannot be read is not known; the lock itself is
	if pid := strings.TrimSpace(string(b[:n])); pid != "" {
		return pid
	}
	return "of unknown id"
}

func sign(file *os.File) error {
	if err := file.Truncate(0); err != nil {
		return err
	}
	_, err := fmt.Fprintf(file, "%d\n", os.Getpid())
	return err
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

func (osFS) Remove(path string) error { return os.Remove(path) }

func (osFS) SyncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// osFile keeps the descriptor beside the file: asking for it anew would cost each commit a lock.
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

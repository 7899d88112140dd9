package inspect

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"trafficd/pipeline/journal"
)

var errReadOnly = errors.New("the folder is only read")

// view shows package journal some files of a folder. Everything that would
// change one is an error.
type view struct {
	names []string
	open  func(path string) (journal.File, error)
}

// view shows the segments, except those that are hidden.
func (f *Folder) view(hidden map[string]error) *view {
	v := &view{open: f.openKept}
	for _, s := range f.segments {
		if hidden[s.name] == nil {
			v.names = append(v.names, s.name)
		}
	}
	return v
}

// openKept gives a segment that is open already; closing it does nothing.
func (f *Folder) openKept(path string) (journal.File, error) {
	for _, s := range f.segments {
		if s.name == filepath.Base(path) {
			return &file{kept: s.file, meter: f.OnRead}, s.err
		}
	}
	return nil, fs.ErrNotExist
}

func openFile(path string) (journal.File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	return &file{kept: f, closes: true}, nil
}

func (v *view) List(string) ([]string, error)                 { return v.names, nil }
func (v *view) Open(path string, _ int) (journal.File, error) { return v.open(path) }
func (*view) MkdirAll(string) error                           { return errReadOnly }
func (*view) Lock(string) (io.Closer, error)                  { return nil, errReadOnly }
func (*view) Rename(string, string) error                     { return errReadOnly }
func (*view) Remove(string) error                             { return errReadOnly }
func (*view) SyncDir(string) error                            { return errReadOnly }
func (*view) Free(string) (int64, error)                      { return 0, errReadOnly }

// file is a file that is only read. It tells its meter how far reading has come.
// A daemon that ends a segment cuts off the blank block at its end: what was
// told to be there once goes on to read as zeros.
type file struct {
	kept   *os.File
	closes bool
	meter  func(n int64)
	far    int64
	told   int64 // the size that was told
}

func (f *file) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.kept.ReadAt(p, off)
	if blank := min(int64(len(p)), f.told-off); err == io.EOF && int64(n) < blank {
		clear(p[n:blank])
		if n = int(blank); n == len(p) {
			err = nil
		}
	}
	if end := off + int64(n); f.meter != nil && end > f.far {
		f.meter(end - f.far)
		f.far = end
	}
	return n, err
}

func (f *file) Size() (int64, error) {
	info, err := f.kept.Stat()
	if err != nil {
		return 0, err
	}
	f.told = info.Size()
	return f.told, nil
}

func (f *file) Close() error {
	if f.closes {
		return f.kept.Close()
	}
	return nil
}

func (*file) WriteAt([]byte, int64) (int, error) { return 0, errReadOnly }
func (*file) Truncate(int64) error               { return errReadOnly }
func (*file) Reserve(int64) error                { return errReadOnly }
func (*file) Sync() error                        { return errReadOnly }
func (*file) Datasync() error                    { return errReadOnly }

// Package replace replaces files atomically and durably.
package replace

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// File calls write with a new file, syncs it, renames it to path and syncs the directory. Readers
// see either the old content or the new content. After an error, the old content remains, unless
// only the last step failed. File keeps the mode and the owner of an existing file; a new file gets
// mode. If path is a symbolic link, its target is replaced; the target must exist. Only a regular
// file can be replaced.
func File(path string, mode os.FileMode, write func(io.Writer) error) error {
	if _, err := os.Lstat(path); err == nil {
		if path, err = filepath.EvalSymlinks(path); err != nil {
			return err
		}
	}
	old, err := os.Stat(path)
	switch {
	case err == nil && !old.Mode().IsRegular(): // the rename would replace a device such as /dev/null by a file
		return fmt.Errorf("%s is not a regular file", path)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	}
	f, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // does nothing after the rename
	if old != nil {
		owner, ok := old.Sys().(*syscall.Stat_t)
		if ok && (int(owner.Uid) != os.Geteuid() || int(owner.Gid) != os.Getegid()) {
			if err = f.Chown(int(owner.Uid), int(owner.Gid)); err != nil {
				err = fmt.Errorf("cannot keep the file's owner: %w; run as that user", err)
			}
		}
		err = errors.Join(err, f.Chmod(old.Mode().Perm()))
	}
	if err == nil {
		err = write(f)
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err = os.Rename(f.Name(), path); err != nil {
		return err
	}
	return SyncDir(filepath.Dir(path))
}

// SyncDir makes the names in a directory durable.
func SyncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

package main

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// writeInPlace puts the file in its place in one step, when it is whole: a daemon
// may watch it, and what stood there before is worth more than a part.
func writeInPlace(path string, write func(io.Writer) error) error {
	path, permissions, direct := placeOf(path)
	if direct { // a device or a pipe
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		return errors.Join(write(f), f.Close())
	}
	f, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, permissions)
	if err != nil {
		return err
	}
	if err = errors.Join(write(f), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}

// placeOf follows links, so that they stay. A file that exists keeps its permissions.
func placeOf(path string) (place string, permissions fs.FileMode, direct bool) {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return path, 0o666, false
	case info.Mode().IsRegular():
		return path, info.Mode().Perm(), false
	}
	return path, 0, true
}

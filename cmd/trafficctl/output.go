package main

import (
	"bufio"
	"errors"
	"io"
	"os"
	"path/filepath"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// stdio is the path of standard input or output.
const stdio = "-"

// writeOutput calls write with a buffered writer for stdout if path is "-", otherwise for the file. It
// compresses .gz and .zst files. The file is replaced in one step once it is complete: a daemon may
// be watching it, and a failure keeps the old content.
func writeOutput(path string, stdout io.Writer, write func(io.Writer) error) error {
	if path == stdio {
		return writeBuffered(stdout, write)
	}
	name := path
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target // a link stays a link
	}
	mode := os.FileMode(0o666)
	if info, err := os.Stat(path); err == nil {
		if !info.Mode().IsRegular() { // a device or a pipe cannot be replaced
			f, err := os.OpenFile(path, os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			return errors.Join(writeBuffered(f, write), f.Close())
		}
		mode = info.Mode().Perm()
	}
	f, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	if err = errors.Join(writeCompressed(f, name, write), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}

func writeCompressed(w io.Writer, name string, write func(io.Writer) error) error {
	var z io.WriteCloser
	var err error
	switch filepath.Ext(name) {
	case ".gz":
		z, err = gzip.NewWriterLevel(w, gzip.BestSpeed)
	case ".zst":
		z, err = zstd.NewWriter(w, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1))
	default:
		return writeBuffered(w, write)
	}
	if err != nil {
		return err
	}
	return errors.Join(writeBuffered(z, write), z.Close())
}

func writeBuffered(w io.Writer, write func(io.Writer) error) error {
	out := bufio.NewWriterSize(w, 64<<10)
	return errors.Join(write(out), out.Flush())
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"

	"github.com/klauspost/compress/gzip"

	"trafficd/cmd/trafficctl/internal/forecast"
	pb "trafficd/schemas/proto/trafficd/v1"
	"trafficd/sources/forecasts"
)

// writeForecasts writes to a file, packed as its name says, or to standard output.
func writeForecasts(ctx context.Context, std streams, path, format string, all iter.Seq[*pb.StreetForecast]) error {
	if format == "" {
		format = forecasts.FormatNDJSON
		if path != forecast.Stdin {
			format = forecasts.FormatOf(path)
		}
	}
	write := func(w io.Writer) (n int, err error) {
		n, err = forecast.Write(w, format, until(ctx, all))
		return n, errors.Join(err, ctx.Err())
	}
	put := func() (int, error) { return write(std.out) }
	if path != forecast.Stdin {
		put = func() (int, error) { return writeInPlace(path, write) }
	}
	n, err := put()
	if err != nil {
		return fmt.Errorf("cannot write forecasts to %s: %w", path, err)
	}
	fmt.Fprintf(std.err, "trafficctl: forecasts of %s streets as %s\n", grouped(int64(n)), format)
	return nil
}

// until gives all of them, or those that come before ctx ends.
func until(ctx context.Context, all iter.Seq[*pb.StreetForecast]) iter.Seq[*pb.StreetForecast] {
	return func(yield func(*pb.StreetForecast) bool) {
		for f := range all {
			if ctx.Err() != nil || !yield(f) {
				return
			}
		}
	}
}

// writeInPlace puts the file in its place in one step, when it is whole: a daemon
// may watch it, and what stood there before is worth more than a part.
func writeInPlace(path string, write func(io.Writer) (int, error)) (n int, err error) {
	path, permissions, direct := placeOf(path)
	if direct { // a device or a pipe
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return 0, err
		}
		n, err = packed(f, path, write)
		return n, errors.Join(err, f.Close())
	}
	f, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, permissions)
	if err != nil {
		return 0, err
	}
	n, err = packed(f, path, write)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return n, err
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

func packed(f *os.File, name string, write func(io.Writer) (int, error)) (n int, err error) {
	if filepath.Ext(name) != ".gz" {
		return write(f)
	}
	z := gzip.NewWriter(f)
	n, err = write(z)
	return n, errors.Join(err, z.Close())
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
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
		put = func() (n int, err error) {
			err = writeInPlace(path, func(w io.Writer) (err error) {
				n, err = packed(w, path, write)
				return err
			})
			return n, err
		}
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

func packed(w io.Writer, name string, write func(io.Writer) (int, error)) (n int, err error) {
	if filepath.Ext(name) != ".gz" {
		return write(w)
	}
	z := gzip.NewWriter(w)
	n, err = write(z)
	return n, errors.Join(err, z.Close())
}

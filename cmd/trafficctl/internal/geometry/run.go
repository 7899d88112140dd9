// Package geometry converts a stream of geometries between encodings and coordinate formats.
//
// A record is one geometry: a line, a placemark, or a whole file of WKB. A record that cannot be converted
// is reported with its place and skipped. Memory is bounded by the largest record and a batch. A
// Converter converts the coordinates: Offline, or the client of the routing service.
package geometry

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/twpayne/go-geom"

	"trafficd/schemas/geo"
)

// Config describes the input and the output.
type Config struct {
	From, To Encoding
	Limits   geo.Limits
	MaxBytes int // per record
}

// DefaultConfig is for trusted files.
func DefaultConfig() Config {
	return Config{
		From:     WKT,
		To:       WKT,
		Limits:   geo.Limits{Points: 10_000_000, Depth: geo.DefaultLimits().Depth},
		MaxBytes: 256 << 20,
	}
}

// Validate returns an error for the first invalid setting.
func (c Config) Validate() error {
	if err := checkEncodings(c.From, c.To); err != nil {
		return err
	}
	if c.MaxBytes < 1 {
		return fmt.Errorf("--max-bytes %d must be at least 1", c.MaxBytes)
	}
	return c.Limits.Validate()
}

// Converter converts the coordinates of geometries. It returns a result for each, in order, and may
// change them in place. An error ends the run.
type Converter interface {
	Convert(ctx context.Context, batch []geom.T) ([]Result, error)
}

// Result is a converted geometry or the reason why it could not be converted.
type Result struct {
	Geometry geom.T
	Err      error
}

// Offline converts without the service.
type Offline struct{ geo.Conversion }

// Convert implements Converter.
func (o Offline) Convert(_ context.Context, batch []geom.T) ([]Result, error) {
	results := make([]Result, len(batch))
	for i, g := range batch {
		results[i] = Result{g, o.Apply(g)}
	}
	return results, nil
}

// Tally counts records.
type Tally struct{ Converted, Refused int64 }

// A batch is converted when it has this many geometries or bytes of input.
const (
	batchGeometries = 500
	batchBytes      = 1 << 20
)

// Run converts all records. It calls refused for each that it skips.
func Run(ctx context.Context, in io.Reader, out io.Writer, cfg Config, by Converter, refused func(place string, err error)) (Tally, error) {
	r := &run{cfg: cfg, by: by, out: out, refused: refused, frame: cfg.To.frame()}
	err := r.all(ctx, in)
	if err != nil && !r.begun {
		return r.tally, err // no frame to close
	}
	return r.tally, errors.Join(err, r.finish())
}

type run struct {
	cfg     Config
	by      Converter
	out     io.Writer
	refused func(string, error)
	frame   frame
	tally   Tally

	batch  []geom.T
	places []string
	bytes  int // of the batch in the input
	text   []byte
	begun  bool // the frame is open
}

func (r *run) all(ctx context.Context, in io.Reader) error {
	for record, err := range records(in, r.cfg.From, r.cfg.MaxBytes) {
		if err != nil {
			return errors.Join(r.flush(ctx), err)
		}
		if ctx.Err() != nil {
			return fmt.Errorf("interrupted (%w)", context.Cause(ctx))
		}
		g, err := r.cfg.From.parse(r.cfg.Limits, record.data)
		if err != nil {
			r.refuse(record.place, err)
			continue
		}
		r.batch, r.places, r.bytes = append(r.batch, g), append(r.places, record.place), r.bytes+len(record.data)
		if len(r.batch) < batchGeometries && r.bytes < batchBytes {
			continue
		}
		if err := r.flush(ctx); err != nil {
			return err
		}
	}
	return r.flush(ctx)
}

func (r *run) refuse(place string, err error) {
	r.tally.Refused++
	r.refused(place, err)
}

// flush converts and writes the batch.
func (r *run) flush(ctx context.Context) error {
	if len(r.batch) == 0 {
		return nil
	}
	results, err := r.by.Convert(ctx, r.batch)
	if err != nil {
		return fmt.Errorf("cannot convert the geometries from %s on: %w", r.places[0], err)
	}
	for i, result := range results {
		if err := r.write(r.places[i], result); err != nil {
			return err
		}
	}
	r.batch, r.places, r.bytes = r.batch[:0], r.places[:0], 0
	return nil
}

func (r *run) write(place string, result Result) error {
	err := result.Err
	if err == nil {
		r.text, err = r.cfg.To.appendRecord(r.text[:0], result.Geometry)
	}
	if err != nil {
		r.refuse(place, err)
		return nil
	}
	if r.cfg.To == WKB && r.tally.Converted > 0 {
		return fmt.Errorf("%s: a WKB file holds one geometry; use hex or base64 for several", place)
	}
	lead := r.frame.between
	if !r.begun {
		lead, r.begun = r.frame.head, true
	}
	if _, err := io.WriteString(r.out, lead); err != nil {
		return writeError(err)
	}
	if _, err := r.out.Write(r.text); err != nil {
		return writeError(err)
	}
	r.tally.Converted++
	return nil
}

// finish closes the frame. A file without geometries has an empty frame.
func (r *run) finish() error {
	text := r.frame.tail
	if !r.begun {
		if text = r.frame.head; text == "" {
			return nil
		}
		text += r.frame.tail[1:] // without its line break, which head ends with
	}
	_, err := io.WriteString(r.out, text)
	return writeError(err)
}

func writeError(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("cannot write the output: %w", err)
}

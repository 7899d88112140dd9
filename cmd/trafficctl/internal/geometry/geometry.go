// Package geometry converts a stream of geometries between encodings and coordinate formats.
//
// A record is one geometry: a line, a placemark, or a whole file of WKB. A record that cannot be
// converted is reported with its position and omitted. Memory use is limited to the largest record.
package geometry

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"trafficd/cmd/trafficctl/internal/interrupt"
	"trafficd/schemas/geo"
)

// Config describes the input and the output.
type Config struct {
	From, To Encoding
	MaxBytes int // per record
}

// DefaultMaxBytes is the default value of Config.MaxBytes.
const DefaultMaxBytes = 256 << 20

// limits apply to each geometry. They are high, because files are trusted.
var limits = geo.Limits{Points: 10_000_000, Depth: geo.DefaultLimits().Depth}

// Validate returns an error for the first invalid setting.
func (c Config) Validate() error {
	switch {
	case !slices.Contains(readable, c.From):
		return fmt.Errorf("--from %q must be one of %v", c.From, readable)
	case !slices.Contains(writable, c.To):
		return fmt.Errorf("--to %q must be one of %v", c.To, writable)
	case c.MaxBytes < 1:
		return fmt.Errorf("--max-bytes %d must be at least 1", c.MaxBytes)
	}
	return nil
}

// Tally counts records.
type Tally struct{ Converted, Omitted int64 }

// Run converts all records. It calls omit for each record that cannot be converted.
func Run(
	ctx context.Context, in io.Reader, out io.Writer, cfg Config, c geo.Conversion, omit func(position string, err error),
) (Tally, error) {
	r := &run{cfg: cfg, conversion: c, out: out, omit: omit, frame: cfg.To.frame()}
	err := r.convert(ctx, in)
	text := r.frame.tail
	if r.tally.Converted == 0 {
		if err != nil || r.frame.head == "" {
			return r.tally, err // no frame to close
		}
		text = r.frame.head + r.frame.tail[1:] // the frame of a file without geometries needs only one line break
	}
	return r.tally, errors.Join(err, r.write([]byte(text)))
}

type run struct {
	cfg        Config
	conversion geo.Conversion
	out        io.Writer
	omit       func(string, error)
	frame      frame
	tally      Tally
	text       []byte
}

func (r *run) convert(ctx context.Context, in io.Reader) error {
	for record, err := range records(in, r.cfg.From, r.cfg.MaxBytes) {
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return interrupt.Error(ctx)
		}
		separator := r.frame.between
		if r.tally.Converted == 0 {
			separator = r.frame.head
		}
		r.text = append(r.text[:0], separator...)
		g, err := r.cfg.From.parse(record.data)
		if err == nil {
			err = r.conversion.Apply(g)
		}
		if err == nil {
			r.text, err = r.cfg.To.appendRecord(r.text, g)
		}
		if err != nil {
			r.tally.Omitted++
			r.omit(record.position, err)
			continue
		}
		if r.cfg.To == WKB && r.tally.Converted > 0 {
			return fmt.Errorf("%s: a WKB file holds one geometry; use hex or base64 for several", record.position)
		}
		if err := r.write(r.text); err != nil {
			return err
		}
		r.tally.Converted++
	}
	return nil
}

func (r *run) write(text []byte) error {
	if _, err := r.out.Write(text); err != nil {
		return fmt.Errorf("cannot write the output: %w", err)
	}
	return nil
}

// Encoding is the encoding of the geometries in a file.
type Encoding string

// The encodings. A file has one geometry per line in WKT, Hex and Base64, and a single one in WKB.
const (
	WKT     Encoding = "wkt"
	WKB     Encoding = "wkb"
	Hex     Encoding = "hex"    // of WKB
	Base64  Encoding = "base64" // of WKB
	KML     Encoding = "kml"
	GeoJSON Encoding = "geojson" // output only
)

var (
	readable = []Encoding{WKT, WKB, Hex, Base64, KML}
	writable = append(slices.Clone(readable), GeoJSON)
)

func (e Encoding) parse(record []byte) (_ *geo.Geometry, err error) {
	switch e {
	case WKT:
		return limits.ParseWKT(string(record), geo.Any)
	case KML:
		return limits.ParseKML(geo.Any, string(record))
	case Hex:
		for _, prefix := range []string{`\x`, "0x", "0X"} { // written by PostgreSQL and other programs
			record = bytes.TrimPrefix(record, []byte(prefix))
		}
		record, err = hex.AppendDecode(nil, record)
	case Base64:
		record, err = base64.StdEncoding.AppendDecode(nil, record)
	}
	if err != nil {
		return nil, fmt.Errorf("invalid %s: %w", e, err)
	}
	return limits.ParseWKB(record, geo.Any)
}

// appendRecord appends the encoding of g to dst, without separators.
func (e Encoding) appendRecord(dst []byte, g *geo.Geometry) ([]byte, error) {
	switch e {
	case WKT:
		return geo.AppendWKT(dst, g), nil
	case KML:
		return geo.AppendPlacemark(dst, g), nil
	case Hex:
		return hex.AppendEncode(dst, geo.AppendWKB(nil, g, binary.LittleEndian)), nil
	case Base64:
		return base64.StdEncoding.AppendEncode(dst, geo.AppendWKB(nil, g, binary.LittleEndian)), nil
	case GeoJSON:
		dst, err := geo.AppendGeoJSON(append(dst, `{"type":"Feature","geometry":`...), g)
		if err != nil {
			return dst, fmt.Errorf("cannot write GeoJSON: %w", err)
		}
		return append(dst, `,"properties":{}}`...), nil
	}
	return geo.AppendWKB(dst, g, binary.LittleEndian), nil
}

// frame is the text around the records of a file.
type frame struct{ head, between, tail string }

func (e Encoding) frame() frame {
	switch e {
	case WKB:
		return frame{}
	case KML:
		return frame{
			`<?xml version="1.0" encoding="UTF-8"?>` + "\n" + `<kml xmlns="http://www.opengis.net/kml/2.2"><Document>` + "\n",
			"\n", "\n</Document></kml>\n",
		}
	case GeoJSON:
		return frame{`{"type":"FeatureCollection","features":[` + "\n", ",\n", "\n]}\n"}
	}
	return frame{"", "\n", "\n"}
}

// EncodingOf returns the encoding that flag names or, if flag is empty, that the file extension
// implies. The default is WKT.
func EncodingOf(flag, file string) Encoding {
	e := Encoding(strings.ToLower(cmp.Or(flag, strings.TrimPrefix(filepath.Ext(file), "."))))
	switch {
	case flag != "" || slices.Contains(writable, e):
		return e
	case e == "json":
		return GeoJSON
	}
	return WKT
}

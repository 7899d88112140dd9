package feed

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// Stdin is the path that stands for standard input.
const Stdin = "-"

// Format is how rows are written.
type Format string

// The formats. Auto goes by the file's name, then by its first bytes.
const (
	Auto   Format = "auto"
	CSV    Format = "csv"
	JSON   Format = "json"   // {"measurements":[…]} or […]
	NDJSON Format = "ndjson" // one object a line
)

// Formats and Compressions are the values that a flag may have.
var (
	Formats      = []Format{Auto, CSV, JSON, NDJSON}
	Compressions = []Compression{Sniff, None, Gzip, XZ, Zstd}
)

// Config says what to read and how.
type Config struct {
	Path        string
	Format      Format
	Compression Compression
	Separator   rune     // between the cells of a CSV row
	Columns     []string // names of the CSV columns; empty: the first row is the header
	Mapping     *Mapping // nil: JSON is passed on as it is, CSV has DefaultMapping
	Member      string   // where it is set, each JSON object holds its measurement under this name
	SkipRows    int64    // so many rows at the start are not given out
}

// DefaultConfig reads standard input and finds out the rest.
func DefaultConfig() Config {
	return Config{Path: Stdin, Format: Auto, Compression: Sniff, Separator: ','}
}

// Validate gives the first setting that cannot be.
func (c Config) Validate() error {
	switch {
	case c.Path == "":
		return errors.New("no input: name a file, or - for standard input")
	case !slices.Contains(Formats, c.Format):
		return fmt.Errorf("--format %q is none of %v", c.Format, Formats)
	case !slices.Contains(Compressions, c.Compression):
		return fmt.Errorf("--compression %q is none of %v", c.Compression, Compressions)
	case c.Separator == '"' || c.Separator == '\r' || c.Separator == '\n' || c.Separator == 0:
		return fmt.Errorf("--separator %q cannot separate cells: it already means something in CSV", c.Separator)
	case c.SkipRows < 0:
		return fmt.Errorf("--skip-rows %d is negative: rows are counted from the start", c.SkipRows)
	}
	if c.Mapping != nil {
		return c.Mapping.Validate()
	}
	return nil
}

func (c Config) name() string {
	if c.Path == Stdin {
		return "standard input"
	}
	return c.Path
}

// formatOf decides by flag, then by name, then by the first bytes.
func (c Config) formatOf(r *bufio.Reader) (Format, error) {
	if c.Format != Auto {
		return c.Format, nil
	}
	name := strings.ToLower(c.Path)
	for _, packed := range []string{".gz", ".xz", ".zst"} {
		name = strings.TrimSuffix(name, packed)
	}
	switch filepath.Ext(name) {
	case ".csv", ".tsv":
		return CSV, nil
	case ".json":
		return JSON, nil
	case ".ndjson", ".jsonl":
		return NDJSON, nil
	}
	start, err := r.Peek(512)
	if len(start) == 0 && err != nil {
		return CSV, ignoreEOF(err)
	}
	return sniffFormat(start), nil
}

// sniffFormat: an array is JSON; an object is JSON where "measurements" is its
// first member, else the first of many lines; everything else is CSV.
func sniffFormat(start []byte) Format {
	start = bytes.TrimLeft(start, " \t\r\n")
	if bytes.HasPrefix(start, []byte("[")) {
		return JSON
	}
	rest, isObject := bytes.CutPrefix(start, []byte("{"))
	if !isObject {
		return CSV
	}
	if bytes.HasPrefix(bytes.TrimLeft(rest, " \t\r\n"), []byte(`"measurements"`)) {
		return JSON
	}
	return NDJSON
}

// Package feed reads measurements from CSV, JSON and NDJSON files or pipes, and from publications
// of traffic authorities, optionally compressed with gzip, xz or zstd.
//
//	file ─▶ meter ─▶ decompress ─▶ rowLimiter ─▶ csv | json | ndjson ─▶ assembler ─▶ items
//	        bytes read              row ≤ 1 MiB   cells of a row         mapping, clock, numbers
//
// encoding/csv, jx, time.Parse and the compression libraries do the parsing. This package adds what
// they lack: errors for local times that do not exist or occur twice and for lone surrogates (which
// jx accepts and the daemon rejects), decimal commas, and a bound on the length of a row, so that
// memory use does not depend on the input.
//
// Without a mapping, JSON and NDJSON items are passed on unchanged, so that the daemon validates
// what the integrator wrote. With a mapping, and for CSV, items are built from cells.
package feed

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/mikelolasagasti/xz"

	"trafficd/cmd/trafficctl/internal/interrupt"
	"trafficd/cmd/trafficctl/internal/measurement"
	"trafficd/schemas/feeds"
)

// MaxRow is the maximum length of a row of input, in bytes. A measurement is about 150 bytes long,
// so a row over 1 MiB indicates a wrong format or a missing closing quote.
const MaxRow = 1 << 20

// Stdin is the path of standard input.
const Stdin = "-"

// Format is the format of the rows.
type Format string

// The formats. Auto detects the format from the file name or, failing that, from the first bytes.
const (
	Auto   Format = "auto"
	CSV    Format = "csv"
	JSON   Format = "json"   // {"measurements":[…]} or […]
	NDJSON Format = "ndjson" // one object per line
)

// Config describes the input.
type Config struct {
	Path      string
	Format    Format   // or the name of that of Publication
	Separator rune     // of CSV cells; 0: detected from the first line
	Columns   []string // names of the CSV columns; empty: the first row is the header
	Mapping   *Mapping // nil: JSON is passed on unchanged, CSV uses DefaultMapping
	Member    string   // if set, name of the member that holds the measurement in each JSON object
	SkipRows  int64    // number of rows, or of measurements of Publication, to skip at the start

	Publication *Publication // nil: rows
}

// Publication says how to read a publication of a traffic authority.
type Publication struct {
	Format  feeds.Format
	Options feeds.Options
}

// DefaultConfig returns the settings for reading standard input and detecting its format.
func DefaultConfig() Config {
	return Config{Path: Stdin, Format: Auto}
}

// Validate returns an error for the first invalid setting.
func (c Config) Validate() error {
	formats := []Format{Auto, CSV, JSON, NDJSON}
	switch {
	case c.Path == "":
		return errors.New("missing input: specify a file, or - for standard input")
	case !slices.Contains(formats, c.Format) && c.Publication == nil:
		return fmt.Errorf("--format %q must be one of %v", c.Format, formats)
	case c.Separator == '"' || c.Separator == '\r' || c.Separator == '\n':
		return fmt.Errorf("--separator %q is reserved in CSV; use a different character", c.Separator)
	case c.SkipRows < 0:
		return fmt.Errorf("--skip-rows %d must not be negative", c.SkipRows)
	}
	if c.Mapping != nil {
		return c.Mapping.Validate()
	}
	return nil
}

// csvFlag returns a flag that is set but has no effect without CSV, or "" if there is none.
func (c Config) csvFlag() string {
	switch {
	case c.Mapping != nil && c.Mapping.Wide:
		return "--detectors-from-header"
	case len(c.Columns) > 0:
		return "--columns"
	case c.Separator != 0:
		return "--separator"
	}
	return ""
}

func (c Config) name() string {
	if c.Path == Stdin {
		return "standard input"
	}
	return c.Path
}

// formatOf returns the configured format, or detects it from the file name, or else from the first
// bytes of r: an array is JSON, an object is JSON if its first member is "measurements" and NDJSON
// otherwise, and anything else is CSV.
func (c Config) formatOf(r *bufio.Reader) (Format, error) {
	if c.Format != Auto {
		return c.Format, nil
	}
	if format, ok := extensions[strings.ToLower(filepath.Ext(TrimCompression(c.Path)))]; ok {
		return format, nil
	}
	start, err := r.Peek(512)
	if len(start) == 0 && err != nil {
		return CSV, ignoreEOF(err)
	}
	start = bytes.TrimLeft(start, " \t\r\n")
	members, isObject := bytes.CutPrefix(start, []byte("{"))
	switch {
	case bytes.HasPrefix(start, []byte("[")), isObject && bytes.HasPrefix(bytes.TrimLeft(members, " \t\r\n"), []byte(`"measurements"`)):
		return JSON, nil
	case isObject:
		return NDJSON, nil
	}
	return CSV, nil
}

var extensions = map[string]Format{".csv": CSV, ".tsv": CSV, ".json": JSON, ".ndjson": NDJSON, ".jsonl": NDJSON}

// File is an open input whose content is decompressed. Only BytesRead is safe for concurrent use.
type File struct {
	Size int64 // of the (compressed) input; 0: unknown

	io.ReadCloser          // the decompressed content
	file          *os.File // nil: standard input, which is not closed
	meter         Meter
}

// OpenFile opens path, or uses stdin for "-". The caller closes the file. Bytes that are appended
// to a regular file afterwards are not read. Once ctx is done, opening and reading a file fail,
// even if it is a named pipe without a writer.
func OpenFile(ctx context.Context, path string, stdin io.Reader) (f *File, err error) {
	f = &File{meter: Meter{R: stdin}}
	if path != Stdin {
		if f.file, err = interrupt.Call(ctx, func() (*os.File, error) { return os.Open(path) }); err != nil {
			return nil, err
		}
		f.meter.R = interrupt.Reader{Ctx: ctx, In: f.file}
		if info, err := f.file.Stat(); err == nil && info.Mode().IsRegular() && info.Size() > 0 { // 0 in /proc
			f.Size = info.Size()
			f.meter.R = io.LimitReader(f.meter.R, f.Size)
		}
	}
	if f.ReadCloser, err = Decompress(&f.meter); err != nil {
		_ = f.file.Close()
		return nil, err
	}
	return f, nil
}

// BytesRead returns the number of bytes read from the (compressed) input.
func (f *File) BytesRead() int64 { return f.meter.N.Load() }

// OnRead sets a function that is called with the number of bytes of each read, to show progress.
func (f *File) OnRead(count func(n int64)) { f.meter.onRead = count }

// Close closes the file.
func (f *File) Close() error {
	err := f.ReadCloser.Close()
	if f.file != nil {
		err = errors.Join(err, f.file.Close())
	}
	return err
}

// Counts counts what the rows of a table lack.
type Counts struct {
	Empty int64 `json:"empty"`        // measurements omitted because their cells were empty
	Blank int64 `json:"blank_rows"`   // rows without any text, and the line sep=; of a spreadsheet
	AsUTC int64 `json:"taken_as_utc"` // times that have no UTC offset, while no zone is set
}

// Source is an open input of measurements.
type Source struct {
	*File
	Counts
	Values feeds.Summary // of a publication, after it was read

	cfg    Config
	row    *rowLimiter
	text   *bufio.Reader
	format Format
}

// Open opens cfg.Path, or uses stdin for "-", and detects compression and format. The caller closes
// the source.
func Open(ctx context.Context, cfg Config, stdin io.Reader) (*Source, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	file, err := OpenFile(ctx, cfg.Path, stdin)
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", cfg.name(), err)
	}
	s := &Source{File: file, cfg: cfg, row: &rowLimiter{r: file, left: MaxRow}}
	s.text = bufio.NewReaderSize(s.row, 64<<10)
	if mark, _ := s.text.Peek(3); string(mark) == "\xef\xbb\xbf" { // a byte order mark is not part of the first column's name
		_, _ = s.text.Discard(len(mark)) // buffered
	}
	s.format, err = cfg.formatOf(s.text)
	if flag := cfg.csvFlag(); err == nil && flag != "" && s.format != CSV {
		err = fmt.Errorf("%s requires CSV, not %s (see --format)", flag, s.format)
	}
	if err != nil {
		_ = s.Close()
		return nil, fmt.Errorf("cannot read %s: %w", cfg.name(), err)
	}
	return s, nil
}

// Items returns the measurements in input order. The sequence can be iterated once. After a
// *measurement.RowError, it continues with the next row; any other error ends the sequence.
func (s *Source) Items() iter.Seq2[measurement.Item, error] {
	return func(yield func(measurement.Item, error) bool) {
		each := s.eachElement
		switch {
		case s.cfg.Publication != nil:
			each = s.eachValue
		case s.format == CSV:
			each = s.eachRecord
		case s.format == NDJSON:
			each = s.eachLine
		}
		if err := each(yield); err != nil && !errors.Is(err, errStopped) {
			yield(measurement.Item{}, fmt.Errorf("cannot read %s: %w", s.cfg.name(), err))
		}
	}
}

// eachValue reads a publication: its measurements and, as the feeder sends them, the totals of
// carriageways.
func (s *Source) eachValue(yield yieldFunc) (err error) {
	s.row.left = math.MaxInt // the format has bounds of its own
	p := s.cfg.Publication
	position := measurement.Position{}
	var body []byte
	emit := func(rows []feeds.Row) error {
		for i := range rows {
			if rows[i].Outcome != feeds.Measured {
				continue
			}
			if position.Row++; position.Row <= s.cfg.SkipRows {
				continue
			}
			m := rows[i].Measurement()
			body = m.AppendJSON(body[:0])
			if !yield(measurement.Item{JSON: body, Detector: rows[i].Site, Position: position}, nil) {
				return errStopped
			}
		}
		return nil
	}
	s.Values, err = p.Format.Parse(s.text, p.Options, feeds.Sink{Rows: func(rows []feeds.Row) error {
		if err := emit(rows); err != nil {
			return err
		}
		return emit(p.Options.Table.Totals(rows))
	}})
	return err
}

// yieldFunc receives items. It returns false to stop.
type yieldFunc = func(measurement.Item, error) bool

// errStopped ends the decoders' callbacks after yield has returned false.
var errStopped = errors.New("iteration stopped")

// yieldRowError yields a row's error. It returns errStopped if yield returns false.
func yieldRowError(yield yieldFunc, position measurement.Position, err error) error {
	if !yield(measurement.Item{}, &measurement.RowError{Position: position, Err: err}) {
		return errStopped
	}
	return nil
}

// Meter counts the bytes read from R.
type Meter struct {
	R      io.Reader
	N      atomic.Int64
	onRead func(n int64) // may be nil
}

// Read implements io.Reader.
func (m *Meter) Read(p []byte) (int, error) {
	n, err := m.R.Read(p)
	m.N.Add(int64(n))
	if m.onRead != nil {
		m.onRead(int64(n))
	}
	return n, err
}

// rowLimiter is a reader that limits the length of a row. left is reset to MaxRow before each row,
// so that a decoder reads at most MaxRow bytes plus one buffer per row.
type rowLimiter struct {
	r    io.Reader
	left int
}

var errRowTooLong = fmt.Errorf("a row exceeds %d bytes; check for a missing closing quote, and --format", MaxRow)

func (l *rowLimiter) Read(p []byte) (int, error) {
	if l.left <= 0 {
		return 0, errRowTooLong
	}
	n, err := l.r.Read(p)
	l.left -= n
	return n, err
}

func ignoreEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// TrimCompression returns path without the extension .gz, .xz or .zst.
func TrimCompression(path string) string {
	switch extension := filepath.Ext(path); strings.ToLower(extension) {
	case ".gz", ".xz", ".zst":
		return strings.TrimSuffix(path, extension)
	}
	return path
}

// The first bytes of compressed data.
const (
	magicGzip = "\x1f\x8b"
	magicXZ   = "\xfd7zXZ\x00"
	magicZstd = "\x28\xb5\x2f\xfd"
	magicZIP  = "PK\x03\x04"
)

// zstdWindow is the maximum window size of a frame. The zstd program has the same default.
const zstdWindow = 128 << 20

// Decompress returns a reader of the content of raw, decompressed if it starts like gzip, xz or
// zstd. The caller closes it.
func Decompress(raw io.Reader) (io.ReadCloser, error) {
	r := bufio.NewReaderSize(raw, 64<<10)
	startsWith := func(magic string) bool {
		start, _ := r.Peek(len(magic))
		return string(start) == magic
	}
	switch {
	case startsWith(magicGzip):
		z, err := gzip.NewReader(r)
		if err != nil {
			return nil, err // not z: a nil *Reader in an interface is not nil
		}
		return z, nil
	case startsWith(magicZstd):
		d, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(zstdWindow))
		if err != nil {
			return nil, err
		}
		return d.IOReadCloser(), nil
	case startsWith(magicXZ):
		d, err := xz.NewReader(r, xz.DefaultDictMax) // 64 MiB, as in xz -9; a truncated file is an error
		return io.NopCloser(d), err
	}
	if err := foreign(r); err != nil {
		return nil, err
	}
	return io.NopCloser(r), nil
}

// foreign returns an error, with advice, if r starts like a file of another program.
func foreign(r *bufio.Reader) error {
	startsWith := func(magic string) bool {
		start, _ := r.Peek(len(magic))
		return string(start) == magic
	}
	switch {
	case startsWith("\xff\xfe"), startsWith("\xfe\xff"):
		return errors.New("the input is UTF-16: convert it first, with iconv -f utf-16 -t utf-8, or save it as CSV UTF-8")
	case startsWith("\xd0\xcf\x11\xe0"):
		return errors.New("the input is a workbook of an old Excel (.xls): open it there and save the sheet as CSV UTF-8")
	case !startsWith(magicZIP):
		return nil
	}
	start, _ := r.Peek(512) // contains the name of the first file
	has := func(name string) bool { return bytes.Contains(start, []byte(name)) }
	switch {
	case has("[Content_Types].xml"), has("_rels/"), has("docProps/"), has("xl/"), has("opendocument.spreadsheet"):
		return errors.New("the input is a spreadsheet (.xlsx or .ods): open it there and save the sheet as CSV UTF-8")
	case has(".kml"):
		return errors.New("the input is KMZ: extract the KML in it first, with unzip -p places.kmz '*.kml' >places.kml")
	}
	return errors.New("the input is a ZIP archive, such as KMZ or XLSX: extract the file in it first; of a KMZ, for example, with " +
		"unzip -p places.kmz '*.kml' >places.kml")
}

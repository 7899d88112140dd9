package feed

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"sync/atomic"

	"trafficd/cmd/trafficctl/internal/measurement"
)

// MaxRow is the longest row of input, in bytes. A measurement takes about 150;
// what is longer is another kind of file, or a quote that is never closed.
const MaxRow = 1 << 20

// Source is an open input. It serves one goroutine; BytesRead may be asked
// from others.
type Source struct {
	cfg    Config
	file   *os.File // nil: standard input, which is not ours to close
	meter  *meter
	packed io.ReadCloser
	row    *allowance
	text   *bufio.Reader
	format Format
	size   int64
	empty  int64
}

// Open opens cfg.Path, or takes stdin for "-", and finds out packing and
// format. The caller closes the source. ctx ends a helper program that unpacks.
func Open(ctx context.Context, cfg Config, stdin io.Reader) (*Source, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	s := &Source{cfg: cfg, size: -1}
	if err := s.open(ctx, stdin); err != nil {
		_ = s.Close()
		return nil, fmt.Errorf("cannot read %s: %w", cfg.name(), err)
	}
	return s, nil
}

func (s *Source) open(ctx context.Context, stdin io.Reader) (err error) {
	raw := stdin
	if s.cfg.Path != Stdin {
		if s.file, err = os.Open(s.cfg.Path); err != nil {
			return err
		}
		raw, s.size = s.file, sizeOf(s.file)
	}
	s.meter = &meter{r: raw}
	if s.packed, err = unpack(ctx, s.meter, s.cfg.Compression); err != nil {
		return err
	}
	s.row = &allowance{r: s.packed, left: MaxRow}
	s.text = bufio.NewReaderSize(s.row, 64<<10)
	skipMark(s.text)
	s.format, err = s.cfg.formatOf(s.text)
	return err
}

// Items gives the measurements in the order of the input. It may be ranged
// over once. An error that is a *measurement.RowError concerns that row only
// and reading goes on if the caller does; any other error is the end.
func (s *Source) Items() iter.Seq2[measurement.Item, error] {
	return func(yield func(measurement.Item, error) bool) {
		if err := s.each(yield); err != nil && !errors.Is(err, errStopped) {
			yield(measurement.Item{}, fmt.Errorf("cannot read %s: %w", s.cfg.name(), err))
		}
	}
}

func (s *Source) each(yield yieldFunc) error {
	switch s.format {
	case CSV:
		return s.eachCSV(yield)
	case NDJSON:
		return s.eachLine(yield)
	default:
		return s.eachElement(yield)
	}
}

// BytesRead is how much of the input, as it lies in the file, has been read.
func (s *Source) BytesRead() int64 { return s.meter.n.Load() }

// Size is the length of the input as it lies in the file; -1: not known.
func (s *Source) Size() int64 { return s.size }

// Empty is how many measurements were left out because their cell is empty.
func (s *Source) Empty() int64 { return s.empty }

// Close gives back the file and ends a helper program.
func (s *Source) Close() error {
	var errs []error
	if s.packed != nil {
		errs = append(errs, s.packed.Close())
	}
	if s.file != nil {
		errs = append(errs, s.file.Close())
	}
	return errors.Join(errs...)
}

func sizeOf(f *os.File) int64 {
	if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
		return info.Size()
	}
	return -1
}

// yieldFunc receives items; false means that the caller wants no more.
type yieldFunc = func(measurement.Item, error) bool

// errStopped carries that false up through the decoders' callbacks.
var errStopped = errors.New("the caller wants no more items")

// yieldRowError passes on what is wrong with one row.
func yieldRowError(yield yieldFunc, place measurement.Place, err error) error {
	if !yield(measurement.Item{}, &measurement.RowError{Place: place, Err: err}) {
		return errStopped
	}
	return nil
}

// meter counts the bytes read, for the progress bar.
type meter struct {
	r io.Reader
	n atomic.Int64
}

func (m *meter) Read(p []byte) (int, error) {
	n, err := m.r.Read(p)
	m.n.Add(int64(n))
	return n, err
}

// allowance bounds a row: it is renewed before each one, and no decoder can be
// made to read more than MaxRow and a buffer for it.
type allowance struct {
	r    io.Reader
	left int
}

var errRowTooLong = fmt.Errorf("a row is longer than %d bytes: is a quote not closed, or the format another one (--format)?", MaxRow)

func (a *allowance) renew() { a.left = MaxRow }

func (a *allowance) Read(p []byte) (int, error) {
	if a.left <= 0 {
		return 0, errRowTooLong
	}
	n, err := a.r.Read(p)
	a.left -= n
	return n, err
}

// skipMark passes over a byte order mark, which would otherwise become part of
// the first column's name.
func skipMark(r *bufio.Reader) {
	if mark, _ := r.Peek(3); bytes.Equal(mark, []byte("\xef\xbb\xbf")) {
		_, _ = r.Discard(len(mark)) // they are buffered
	}
}

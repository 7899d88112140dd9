// Package deadletter reads the file of measurements that a store refuses for
// ever (package pipeline writes it).
package deadletter

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"

	"github.com/google/uuid"

	"trafficd/cmd/trafficctl/internal/measurement"
	"trafficd/pipeline"
)

// maxLine is the longest line that is read: a store's reason is a part of it.
const maxLine = 1 << 20

// Letter is one measurement that a store refuses, with its place in the file.
type Letter struct {
	pipeline.DeadLetter
	Place measurement.Place
}

// TornError says that a line is not whole: a crash cut it off while it was
// written. The delivery writes the same measurement again after the restart.
type TornError struct{ Place measurement.Place }

// Error implements error.
func (e *TornError) Error() string {
	return e.Place.String() + " is cut off: its measurement stands again in a later line once the daemon has delivered on"
}

// key is what makes a letter one: a crash may repeat its line.
type key struct {
	sink  string
	batch uuid.UUID
	index uint32
}

// Letters gives the letters of a file in its order, each once. An error that
// is a *TornError concerns that line only and reading goes on if the caller
// does; any other error is the end.
func Letters(path string) iter.Seq2[Letter, error] {
	return func(yield func(Letter, error) bool) {
		file, err := os.Open(path)
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%w; a daemon makes its file (setting dead_letters) with the first one, so there may be none", err)
		}
		if err != nil {
			yield(Letter{}, fmt.Errorf("cannot read the dead letters: %w", err))
			return
		}
		defer file.Close()
		each(bufio.NewReaderSize(file, 64<<10), path, yield)
	}
}

func each(r *bufio.Reader, path string, yield func(Letter, error) bool) {
	seen := map[key]struct{}{}
	for n := int64(1); ; n++ {
		line, err := readLine(r)
		if err == io.EOF {
			return
		}
		if err != nil {
			yield(Letter{}, fmt.Errorf("cannot read %s at line %d: %w", path, n, err))
			return
		}
		if len(line) == 0 {
			continue
		}
		letter, id, err := parse(line, measurement.Place{Row: n, Line: n})
		var torn *TornError
		if err != nil && !errors.As(err, &torn) {
			yield(Letter{}, fmt.Errorf("cannot read %s: %w", path, err))
			return
		}
		if _, again := seen[id]; err == nil && again {
			continue
		}
		if err == nil {
			seen[id] = struct{}{}
		}
		if !yield(letter, err) {
			return
		}
	}
}

// parse reads a line. What begins like a letter and is no JSON was cut off; all
// else that is no letter comes from another file.
func parse(line []byte, at measurement.Place) (l Letter, id key, err error) {
	l.Place = at
	if !json.Valid(line) && looksTorn(line) {
		return l, id, &TornError{Place: at}
	}
	if err := json.Unmarshal(line, &l.DeadLetter); err != nil {
		return l, id, fmt.Errorf("%s is no dead letter: %w", at, err)
	}
	if l.Sink == "" || l.Item.DetectorCode == "" {
		return l, id, fmt.Errorf("%s is no dead letter: it has no sink or no item; is this a file of rejected items (trafficctl resubmit)?", at)
	}
	batch, err := uuid.Parse(l.BatchID)
	if err != nil {
		return l, id, fmt.Errorf("%s is no dead letter: batchId: %w", at, err)
	}
	return l, key{l.Sink, batch, l.Index}, nil
}

// looksTorn tells whether a line may be a part of a letter: its start, or bytes
// of which the disk had only the number when the machine stopped.
func looksTorn(line []byte) bool {
	start := []byte(`{"sink":"`)
	n := min(len(line), len(start))
	return bytes.Equal(line[:n], start[:n]) || bytes.IndexByte(line, 0) >= 0
}

// readLine gives the next line, trimmed, valid until the next call. The error
// is io.EOF behind the last one.
func readLine(r *bufio.Reader) ([]byte, error) {
	line, err := r.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		long := bytes.Clone(line)
		for errors.Is(err, bufio.ErrBufferFull) && len(long) <= maxLine {
			line, err = r.ReadSlice('\n')
			long = append(long, line...)
		}
		line = long
	}
	if len(line) > maxLine {
		return nil, fmt.Errorf("the line is longer than %d bytes: this is no file of dead letters", maxLine)
	}
	if errors.Is(err, io.EOF) && len(line) > 0 {
		err = nil
	}
	return bytes.TrimSpace(line), err
}

// Package deadletter reads the file of measurements that a store rejects permanently, which package
// pipeline writes.
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
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/google/uuid"

	"trafficd/cmd/trafficctl/internal/feed"
	"trafficd/cmd/trafficctl/internal/measurement"
	"trafficd/pipeline"
)

// maxLine bounds a line, which includes the store's reason.
const maxLine = 1 << 20

// Letter is one rejected measurement and its place in the file.
type Letter struct {
	pipeline.DeadLetter
	Place measurement.Place
}

// key identifies a letter: a crash may duplicate its line.
type key struct {
	sink  string
	batch uuid.UUID
	index uint32
}

// Letters returns the distinct letters of a file in order. It calls torn with a message for each line that
// a crash has truncated: the delivery writes the measurement again after the restart. An error is the last.
func Letters(path string, torn func(text string)) iter.Seq2[Letter, error] {
	return func(yield func(Letter, error) bool) {
		file, err := os.Open(path)
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%w; the daemon creates the file (setting dead_letters) with the first dead letter, so there may be none", err)
		}
		if err != nil {
			yield(Letter{}, fmt.Errorf("cannot read the dead letters: %w", err))
			return
		}
		defer file.Close()
		r := bufio.NewReaderSize(file, 64<<10)
		seen := map[key]struct{}{}
		for n := int64(1); ; n++ {
			line, err := feed.ReadLine(r, maxLine)
			if err == io.EOF {
				return
			}
			if err != nil {
				yield(Letter{}, fmt.Errorf("cannot read %s at line %d: %w", path, n, err))
				return
			}
			place := measurement.Place{Row: n, Line: n}
			if len(line) > 0 && !json.Valid(line) && looksTorn(line) {
				torn(place.String() + " is truncated; the daemon writes the measurement again in a later line")
				continue
			}
			if len(line) == 0 {
				continue
			}
			letter, id, err := parse(line)
			if err != nil {
				yield(Letter{}, fmt.Errorf("cannot read %s: %s is not a dead letter: %w", path, place, err))
				return
			}
			letter.Place = place
			if _, again := seen[id]; !again && !yield(letter, nil) {
				return
			}
			seen[id] = struct{}{}
		}
	}
}

func parse(line []byte) (l Letter, id key, err error) {
	if err := json.Unmarshal(line, &l.DeadLetter); err != nil {
		return l, id, err
	}
	if l.Sink == "" || l.Item.DetectorCode == "" {
		return l, id, errors.New("missing sink or item; for a file of rejected items use trafficctl resubmit")
	}
	batch, err := uuid.Parse(l.BatchID)
	if err != nil {
		return l, id, fmt.Errorf("batchId: %w", err)
	}
	return l, key{l.Sink, batch, l.Index}, nil
}

// looksTorn reports whether a line may be part of a letter: its start, or zeros that a file system leaves
// after a power failure.
func looksTorn(line []byte) bool {
	start := []byte(`{"sink":"`)
	n := min(len(line), len(start))
	return bytes.Equal(line[:n], start[:n]) || bytes.IndexByte(line, 0) >= 0
}

// Selection selects letters to resend.
type Selection struct {
	ProductInstance string // empty: all
	Sink            string // empty: all
	Skip            int64  // number of selected measurements to skip
}

// Instance returns the product instance of the selected letters. Several are an error: a key belongs to
// one.
func (s Selection) Instance(path string) (string, error) {
	found := map[string]int{}
	for letter, err := range Letters(path, func(string) {}) {
		if err != nil {
			return "", err
		}
		if s.takes(letter) {
			found[letter.ProductInstance]++
		}
	}
	names := slices.Sorted(maps.Keys(found))
	switch len(names) {
	case 0:
		filters := ""
		if s.ProductInstance != "" {
			filters += " of product instance " + s.ProductInstance
		}
		if s.Sink != "" {
			filters += " of sink " + s.Sink
		}
		return "", fmt.Errorf("no dead letters in %s%s", path, filters)
	case 1:
		return names[0], nil
	}
	return "", fmt.Errorf("the letters in %s belong to %d product instances (%s), but a key to one; select one with --product-instance", path, len(names), strings.Join(names, ", "))
}

func (s Selection) takes(l Letter) bool {
	return (s.ProductInstance == "" || l.ProductInstance == s.ProductInstance) && (s.Sink == "" || l.Sink == s.Sink)
}

// Items returns the selected measurements, each once even if several stores rejected it, with
// consecutive rows. It omits truncated lines.
func (s Selection) Items(path string) iter.Seq2[measurement.Item, error] {
	return func(yield func(measurement.Item, error) bool) {
		seen := map[key]struct{}{}
		row := int64(0)
		for letter, err := range Letters(path, func(string) {}) {
			if err == nil && !s.first(letter, seen) {
				continue
			}
			if row++; err == nil && row <= s.Skip {
				continue
			}
			letter.Place.Row = row
			if !yield(item(letter), err) || err != nil {
				return
			}
		}
	}
}

// first reports whether a letter is selected and the first of its measurement.
func (s Selection) first(l Letter, seen map[key]struct{}) bool {
	if !s.takes(l) {
		return false
	}
	id := key{batch: uuid.MustParse(l.BatchID), index: l.Index} // validated by Letters
	_, again := seen[id]
	seen[id] = struct{}{}
	return !again
}

func item(l Letter) measurement.Item {
	text, _ := json.Marshal(l.Item) // decoded from JSON: cannot fail
	return measurement.Item{JSON: text, Order: measurement.OrderOf(l.Item.DetectorCode), Place: l.Place}
}

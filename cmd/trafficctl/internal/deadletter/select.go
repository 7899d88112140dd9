package deadletter

import (
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/google/uuid"

	"trafficd/cmd/trafficctl/internal/measurement"
)

// Selection is which letters to send again.
type Selection struct {
	ProductInstance string // empty: there is only one
	Sink            string // empty: those of all sinks
	Skip            int64  // so many of them at the start are not given out
}

// Instance gives the product instance of the selected letters. It is an error
// if there are several: a key belongs to one.
func (s Selection) Instance(path string) (string, error) {
	found := map[string]int{}
	for letter, err := range Letters(path) {
		var torn *TornError
		switch {
		case errors.As(err, &torn):
		case err != nil:
			return "", err
		case s.takes(letter):
			found[letter.ProductInstance]++
		}
	}
	names := slices.Sorted(maps.Keys(found))
	switch len(names) {
	case 0:
		return "", fmt.Errorf("there are no dead letters in %s%s", path, s.narrowed())
	case 1:
		return names[0], nil
	}
	return "", fmt.Errorf("the letters in %s belong to %d product instances (%s) and a key to one: choose with --product-instance", path, len(names), strings.Join(names, ", "))
}

func (s Selection) takes(l Letter) bool {
	return (s.ProductInstance == "" || l.ProductInstance == s.ProductInstance) && (s.Sink == "" || l.Sink == s.Sink)
}

func (s Selection) narrowed() string {
	var text string
	if s.ProductInstance != "" {
		text += " of product instance " + s.ProductInstance
	}
	if s.Sink != "" {
		text += " of sink " + s.Sink
	}
	return text
}

// Items gives the selected measurements to be sent, each once, even if several
// stores refuse it. Rows are counted among them. Lines that were cut off are
// left out.
func (s Selection) Items(path string) iter.Seq2[measurement.Item, error] {
	return func(yield func(measurement.Item, error) bool) {
		seen := map[key]struct{}{}
		row := int64(0)
		for letter, err := range Letters(path) {
			var torn *TornError
			if errors.As(err, &torn) || err == nil && !s.first(letter, seen) {
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

// first tells whether a letter is selected and the first of its measurement.
func (s Selection) first(l Letter, seen map[key]struct{}) bool {
	if !s.takes(l) {
		return false
	}
	id := key{batch: uuid.MustParse(l.BatchID), index: l.Index} // Letters has parsed it before
	_, again := seen[id]
	seen[id] = struct{}{}
	return !again
}

func item(l Letter) measurement.Item {
	text, _ := json.Marshal(l.Item) // it came from JSON
	return measurement.Item{JSON: text, Order: measurement.OrderOf(l.Item.DetectorCode), Place: l.Place}
}

package feed

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"trafficd/cmd/trafficctl/internal/measurement"
)

// Mapping says which column (CSV) or member (JSON) becomes which part of a
// measurement. A row gives one measurement, or, with Melt, one for each of its
// columns.
type Mapping struct {
	Detector string
	Type     string // a column, or "=speed": every measurement is a speed
	From     string
	To       string        // empty where Interval is set
	Interval time.Duration // timestampTo = timestampFrom + Interval
	Value    string
	Quality  string // may be empty; a missing column is an error unless QualityOptional
	// QualityOptional takes rows without the quality column as without quality.
	QualityOptional bool
	Melt            []Melt // replaces Type and Value
	Decimal         byte   // '.' or ','
	Clock           Clock
}

// Melt makes the cells of Column measurements of Type.
type Melt struct{ Column, Type string }

// DefaultMapping reads columns named like the members of the specification.
func DefaultMapping() Mapping {
	return Mapping{
		Detector:        measurement.DetectorCode,
		Type:            measurement.MeasureTypeCode,
		From:            measurement.TimestampFrom,
		To:              measurement.TimestampTo,
		Value:           measurement.Value,
		Quality:         measurement.Quality,
		QualityOptional: true,
		Decimal:         '.',
		Clock:           Clock{Layout: LayoutISO, Zone: time.UTC, Overlap: OverlapReject},
	}
}

// ParseMelt reads "avg_speed_kmh=speed".
func ParseMelt(s string) (Melt, error) {
	column, kind, ok := strings.Cut(s, "=")
	if !ok || column == "" || kind == "" {
		return Melt{}, fmt.Errorf("--melt %q: write column=measureType, as in avg_speed_kmh=speed", s)
	}
	return Melt{column, kind}, nil
}

// Validate gives the first setting that cannot be, by its flag's name.
func (m Mapping) Validate() error {
	switch {
	case m.Detector == "":
		return errors.New("--detector is empty: name the column that holds the detector's code")
	case m.From == "":
		return errors.New("--from is empty: name the column that holds the start of the interval")
	case m.Interval < 0:
		return fmt.Errorf("--interval %s is negative: an interval cannot end before it starts", m.Interval)
	case m.To == "" && m.Interval == 0:
		return errors.New("the end of the interval is not known: set --to COLUMN or --interval 5m")
	case m.To != "" && m.Interval > 0:
		return errors.New("--to and --interval exclude one another: the end is read or calculated")
	case len(m.Melt) == 0 && (m.Value == "" || m.Type == "" || m.Type == "="):
		return errors.New("--value and --type are needed (or --melt column=measureType)")
	case m.Decimal != '.' && m.Decimal != ',':
		return fmt.Errorf("--decimal %q is neither a point nor a comma", m.Decimal)
	}
	return m.Clock.Validate()
}

// Places of the cells of a row. The values come last, as many as there are.
const (
	cellDetector = iota
	cellType
	cellFrom
	cellTo
	cellQuality
	cellValues
)

// names gives the column for each cell; "" where the mapping needs none.
func (m *Mapping) names() []string {
	names := []string{m.Detector, m.Type, m.From, m.To, m.Quality}
	if m.constType() != "" {
		names[cellType] = ""
	}
	for _, melt := range m.Melt {
		names = append(names, melt.Column)
	}
	if len(m.Melt) > 0 {
		names[cellType] = ""
		return names
	}
	return append(names, m.Value)
}

func (m *Mapping) constType() string {
	kind, ok := strings.CutPrefix(m.Type, "=")
	if !ok {
		return ""
	}
	return kind
}

// assembler builds the measurements of a row from its cells.
type assembler struct {
	mapping Mapping
	clock   *clock
	fields  measurement.Fields
	types   []string // measure type of each value; "": it stands in the row
	body    []byte   // the row's measurements, one after the other
	ends    []int
	numbers []byte
	empty   *int64
}

func newAssembler(m Mapping, empty *int64) *assembler {
	a := &assembler{mapping: m, clock: newClock(m.Clock), empty: empty}
	for _, melt := range m.Melt {
		a.types = append(a.types, melt.Type)
	}
	if len(a.types) == 0 {
		a.types = []string{m.constType()}
	}
	return a
}

// emit gives out the measurements of one row: all of them, or an error for the
// whole row. An empty value means that there is nothing to send; it is counted.
func (a *assembler) emit(cells []string, place measurement.Place, yield yieldFunc) error {
	if err := a.build(cells); err != nil {
		return yieldRowError(yield, place, err)
	}
	order := measurement.OrderOf(a.fields.Detector)
	start := 0
	for _, end := range a.ends {
		if !yield(measurement.Item{JSON: a.body[start:end], Order: order, Place: place}, nil) {
			return errStopped
		}
		start = end
	}
	return nil
}

func (a *assembler) build(cells []string) error {
	a.body, a.ends, a.numbers = a.body[:0], a.ends[:0], a.numbers[:0]
	for i, cell := range cells {
		cells[i] = strings.TrimSpace(cell)
	}
	if err := a.common(cells); err != nil {
		return err
	}
	for i, kind := range a.types {
		if err := a.value(cells[cellValues+i], kind, cells[cellType]); err != nil {
			return fmt.Errorf("column %s: %w", a.mapping.names()[cellValues+i], err)
		}
	}
	return nil
}

// common reads what all measurements of a row share.
func (a *assembler) common(cells []string) (err error) {
	f := &a.fields
	f.Detector = cells[cellDetector]
	if f.Detector == "" {
		return fmt.Errorf("column %s: the detector's code is empty", a.mapping.Detector)
	}
	if err := checkText(f.Detector, cells[cellType]); err != nil {
		return err
	}
	if err := a.times(cells[cellFrom], cells[cellTo]); err != nil {
		return err
	}
	f.Quality = nil
	if cells[cellQuality] != "" {
		if a.numbers, err = appendNumber(a.numbers, cells[cellQuality], a.mapping.Decimal); err != nil {
			return fmt.Errorf("column %s: %w", a.mapping.Quality, err)
		}
		f.Quality = a.numbers
	}
	return nil
}

func (a *assembler) times(fromCell, toCell string) error {
	from, err := a.clock.parse(fromCell)
	if err != nil {
		return fmt.Errorf("column %s: %w", a.mapping.From, err)
	}
	to := from.Add(a.mapping.Interval)
	if a.mapping.Interval == 0 {
		if to, err = a.clock.parse(toCell); err != nil {
			return fmt.Errorf("column %s: %w", a.mapping.To, err)
		}
	}
	a.fields.From = measurement.AppendTime(a.fields.From[:0], from)
	a.fields.To = measurement.AppendTime(a.fields.To[:0], to)
	return nil
}

func (a *assembler) value(cell, kind, kindCell string) (err error) {
	if cell == "" {
		*a.empty++
		return nil
	}
	if kind == "" {
		kind = kindCell
	}
	start := len(a.numbers)
	if a.numbers, err = appendNumber(a.numbers, cell, a.mapping.Decimal); err != nil {
		return err
	}
	a.fields.Type, a.fields.Value = kind, a.numbers[start:]
	a.body = a.fields.AppendJSON(a.body)
	a.ends = append(a.ends, len(a.body))
	return nil
}

// checkText keeps a code that is no UTF-8 out of the batch: the daemon would
// have to refuse all of its items.
func checkText(texts ...string) error {
	for _, s := range texts {
		if !utf8.ValidString(s) {
			return fmt.Errorf("%q is not UTF-8: convert the file first, for example with iconv -f latin1 -t utf-8", s)
		}
	}
	return nil
}

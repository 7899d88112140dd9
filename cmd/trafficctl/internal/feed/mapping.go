package feed

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"trafficd/cmd/trafficctl/internal/measurement"
	"trafficd/schemas/contract"
	"trafficd/schemas/feeds"
)

// Mapping assigns columns (CSV) or members (JSON) to the members of a measurement. A row holds one
// measurement, or several with Melt or Wide.
type Mapping struct {
	Detector string
	Type     string // a column, or a constant such as "=speed"
	From     string
	To       string        // empty if Interval is set
	Interval time.Duration // timestampTo - timestampFrom; 0 if To is set
	Value    string
	Quality  string // may be empty

	QualityOptional bool              // whether the quality column may be missing
	Melt            []Melt            // replaces Type and Value
	Decimal         byte              // '.' or ','
	Units           map[string]string // unit to convert from, by measure type (feeds.UnitFactor)
	Clock           Clock

	Wide bool // each CSV column is a detector, except the time column: From, or the first column

	detectors []string // the value columns of a wide table
}

// Melt turns the cells of Column into measurements of Type.
type Melt struct{ Column, Type string }

// DefaultMapping returns the mapping for columns with the contract's member names.
func DefaultMapping() Mapping {
	return Mapping{
		Detector:        contract.FieldDetectorCode.String(),
		Type:            contract.FieldMeasureTypeCode.String(),
		From:            contract.FieldTimestampFrom.String(),
		To:              contract.FieldTimestampTo.String(),
		Value:           contract.FieldValue.String(),
		Quality:         contract.FieldQuality.String(),
		QualityOptional: true,
		Decimal:         '.',
		Clock:           Clock{Layout: LayoutISO, Overlap: OverlapReject},
	}
}

// Validate returns an error for the first invalid field, with the name of its flag.
func (m Mapping) Validate() error {
	if err := m.Clock.Validate(); err != nil {
		return err
	}
	switch {
	case m.Wide && m.Interval <= 0:
		return errors.New("--detectors-from-header requires --interval, for example 5m")
	case m.Wide && m.constType() == "":
		return errors.New("--detectors-from-header requires a constant type, for example --type =speed")
	case m.Wide:
	case m.Detector == "":
		return errors.New("--detector must name the column of the detector code")
	case m.From == "":
		return errors.New("--from must name the column of the interval's start")
	case m.Interval < 0:
		return fmt.Errorf("--interval %s must not be negative", m.Interval)
	case m.To == "" && m.Interval == 0:
		return errors.New("missing end of the interval: set --to COLUMN or for example --interval 5m")
	case m.To != "" && m.Interval > 0:
		return errors.New("use either --to or --interval, not both")
	case len(m.Melt) == 0 && (m.Value == "" || m.Type == "" || m.Type == "="):
		return errors.New("either --value and --type or --melt COLUMN=TYPE is required")
	}
	return nil
}

// Positions of the cells of a row. The values come last.
const (
	cellDetector = iota
	cellType
	cellFrom
	cellTo
	cellQuality
	cellValues
)

// valueColumn describes the cells of one value column.
type valueColumn struct{ name, detector, kind string } // detector and kind are empty if each row has its own

func (m *Mapping) valueColumns() (all []valueColumn) {
	for _, melt := range m.Melt {
		all = append(all, valueColumn{melt.Column, "", melt.Type})
	}
	for _, detector := range m.detectors {
		all = append(all, valueColumn{detector, detector, m.constType()})
	}
	if len(all) == 0 {
		all = []valueColumn{{m.Value, "", m.constType()}}
	}
	return all
}

// names returns, for each cell, the name of its column, or "" if it has none.
func (m *Mapping) names() []string {
	names := []string{m.Detector, m.Type, m.From, m.To, m.Quality}
	for _, v := range m.valueColumns() {
		names = append(names, v.name)
		if v.kind != "" {
			names[cellType] = ""
		}
	}
	return names
}

func (m *Mapping) constType() string {
	kind, ok := strings.CutPrefix(m.Type, "=")
	if !ok {
		return ""
	}
	return kind
}

// toUTF8 is the advice for text in another encoding.
const toUTF8 = "convert the file first, for example with iconv -f latin1 -t utf-8"

// assembler builds the measurements of a row from its cells.
type assembler struct {
	mapping   Mapping
	now       time.Time // rows that Clock.Shift moves past it are skipped
	values    []valueColumn
	body      []byte   // the row's measurements as JSON
	ends      []int    // end of each measurement in body
	detectors []string // detector code of each measurement
	numbers   []byte   // the row's quality and values as JSON
	counts    *Counts
}

func newAssembler(m Mapping, counts *Counts) *assembler {
	m.Clock.asUTC = &counts.AsUTC
	return &assembler{mapping: m, values: m.valueColumns(), now: time.Now(), counts: counts}
}

// emit yields the measurements of one row, or an error for the row. It omits and counts empty
// values.
func (a *assembler) emit(cells []string, position measurement.Position, yield yieldFunc) error {
	if err := a.build(cells); err != nil {
		return yieldRowError(yield, position, err)
	}
	start := 0
	for i, end := range a.ends {
		if !yield(measurement.Item{JSON: a.body[start:end], Detector: a.detectors[i], Position: position}, nil) {
			return errStopped
		}
		start = end
	}
	return nil
}

func (a *assembler) build(cells []string) (err error) {
	a.body, a.ends, a.detectors, a.numbers = a.body[:0], a.ends[:0], a.detectors[:0], a.numbers[:0]
	for i, cell := range cells {
		cells[i] = strings.TrimSpace(cell)
	}
	m := &a.mapping
	if cells[cellDetector] == "" && !m.Wide {
		return fmt.Errorf("column %s: the detector code is empty", m.Detector)
	}
	for _, text := range []string{cells[cellDetector], cells[cellType]} {
		if !utf8.ValidString(text) { // the daemon would reject the whole batch
			return fmt.Errorf("%q is not valid UTF-8; %s", text, toUTF8)
		}
	}
	from, err := m.Clock.parse(cells[cellFrom])
	if err != nil {
		return fmt.Errorf("column %s: %w", m.From, err)
	}
	to := from.Add(m.Interval)
	if m.Interval == 0 {
		if to, err = m.Clock.parse(cells[cellTo]); err != nil {
			return fmt.Errorf("column %s: %w", m.To, err)
		}
	}
	if m.Clock.Shift != 0 && to.After(a.now) {
		return nil
	}
	f := contract.Measurement{TimestampFrom: from, TimestampTo: to}
	if cells[cellQuality] != "" {
		if a.numbers, err = appendNumber(a.numbers, cells[cellQuality], m.Decimal); err != nil {
			return fmt.Errorf("column %s: %w", m.Quality, err)
		}
		f.Quality = json.Number(a.numbers)
	}
	for i, v := range a.values {
		cell := cells[cellValues+i]
		if cell == "" {
			a.counts.Empty++
			continue
		}
		f.DetectorCode, f.MeasureTypeCode = cmp.Or(v.detector, cells[cellDetector]), cmp.Or(v.kind, cells[cellType])
		start := len(a.numbers)
		if a.numbers, err = appendNumber(a.numbers, cell, m.Decimal); err != nil {
			return fmt.Errorf("column %s: %w", v.name, err)
		}
		if a.numbers, err = m.convert(a.numbers, start, f.MeasureTypeCode, to.Sub(from)); err != nil {
			return fmt.Errorf("column %s: %w", v.name, err)
		}
		f.Value = json.Number(a.numbers[start:])
		a.body = f.AppendJSON(a.body)
		a.ends, a.detectors = append(a.ends, len(a.body)), append(a.detectors, f.DetectorCode)
	}
	return nil
}

// convert converts the number at the end of numbers, from start on, if its measure type has a unit.
func (m *Mapping) convert(numbers []byte, start int, kind string, interval time.Duration) ([]byte, error) {
	unit, ok := m.Units[kind]
	if !ok {
		return numbers, nil
	}
	if unit == "vehicles" && interval <= 0 {
		return numbers, errors.New("vehicles need an interval, to be converted to vehicles per hour")
	}
	factor, _ := feeds.UnitFactor(unit, interval)
	value, err := strconv.ParseFloat(string(numbers[start:]), 64)
	return strconv.AppendFloat(numbers[:start], value*factor, 'g', 12, 64), err
}

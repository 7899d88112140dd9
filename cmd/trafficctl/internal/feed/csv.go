package feed

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"trafficd/cmd/trafficctl/internal/measurement"
)

// eachCSV reads a header (or takes the columns' names as given), then rows.
func (s *Source) eachCSV(yield yieldFunc) error {
	mapping := DefaultMapping()
	if s.cfg.Mapping != nil {
		mapping = *s.cfg.Mapping
	}
	r := csv.NewReader(s.text)
	r.Comma, r.ReuseRecord = s.cfg.Separator, true
	columns, err := s.columns(r, &mapping)
	if err != nil {
		return ignoreEOF(err) // a file without a single row has no measurements
	}
	return s.eachRecord(r, columns, newAssembler(mapping, &s.empty), yield)
}

func (s *Source) eachRecord(r *csv.Reader, columns []int, a *assembler, yield yieldFunc) error {
	cells := make([]string, len(columns))
	for row := int64(1); ; row++ {
		s.row.renew()
		record, err := r.Read()
		if err != nil && !isRowFault(err) {
			return ignoreEOF(err)
		}
		if row <= s.cfg.SkipRows {
			continue
		}
		if err == nil {
			err = a.emit(pick(cells, record, columns), placeOf(r, row), yield)
		} else {
			err = yieldRowError(yield, faultPlace(err, row), reason(err))
		}
		if err != nil {
			return err
		}
	}
}

// pick puts the columns that the mapping names into the order of cells.
func pick(cells, record []string, columns []int) []string {
	for i, column := range columns {
		cells[i] = ""
		if column >= 0 {
			cells[i] = record[column]
		}
	}
	return cells
}

// columns gives the index in a record for each cell, -1 where there is none.
func (s *Source) columns(r *csv.Reader, m *Mapping) ([]int, error) {
	header := s.cfg.Columns
	if len(header) > 0 {
		r.FieldsPerRecord = len(header)
	} else {
		record, err := r.Read()
		if err != nil {
			return nil, err
		}
		header = slices.Clone(record)
	}
	return findColumns(header, m)
}

func findColumns(header []string, m *Mapping) ([]int, error) {
	names := m.names()
	columns := make([]int, len(names))
	for i, name := range names {
		columns[i] = slices.IndexFunc(header, func(h string) bool { return strings.TrimSpace(h) == name })
		if name == "" {
			columns[i] = -1
			continue
		}
		if columns[i] < 0 && !(i == cellQuality && m.QualityOptional) {
			return nil, fmt.Errorf("there is no column %q; the columns are %q: name them with --detector, --from, --melt and so on (see --help), and check --separator", name, header)
		}
	}
	return columns, nil
}

func placeOf(r *csv.Reader, row int64) measurement.Place {
	line, _ := r.FieldPos(0)
	return measurement.Place{Row: row, Line: int64(line)}
}

// isRowFault: encoding/csv goes on with the next line after these.
func isRowFault(err error) bool {
	var fault *csv.ParseError
	return errors.As(err, &fault) && !errors.Is(err, io.EOF)
}

func faultPlace(err error, row int64) measurement.Place {
	var fault *csv.ParseError
	errors.As(err, &fault)
	return measurement.Place{Row: row, Line: int64(fault.StartLine)}
}

func reason(err error) error {
	if errors.Is(err, csv.ErrFieldCount) {
		return errors.New("it has another number of columns than the rows before")
	}
	var fault *csv.ParseError
	errors.As(err, &fault)
	return fault.Err
}

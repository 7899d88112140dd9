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

// eachRecord reads CSV: a header, unless the column names are configured, and then rows.
func (s *Source) eachRecord(yield yieldFunc) error {
	mapping := DefaultMapping()
	if s.cfg.Mapping != nil {
		mapping = *s.cfg.Mapping
	}
	r := csv.NewReader(s.text)
	r.Comma, r.ReuseRecord = s.cfg.Separator, true
	header := s.cfg.Columns
	r.FieldsPerRecord = len(header) // 0: as many as the first row has
	if len(header) == 0 {
		record, err := r.Read()
		if err != nil {
			return ignoreEOF(err) // an empty file has no measurements
		}
		header = slices.Clone(record)
	}
	columns, err := mapping.bind(header)
	if err != nil {
		return err
	}
	a := newAssembler(mapping, &s.empty)
	cells := make([]string, len(columns))
	for row := int64(1); ; row++ {
		s.row.renew()
		record, err := r.Read()
		var fault *csv.ParseError
		bad := errors.As(err, &fault) && !errors.Is(err, io.EOF) // encoding/csv continues with the next line
		switch {
		case err != nil && !bad:
			return ignoreEOF(err)
		case row <= s.cfg.SkipRows:
			continue
		case bad:
			reason := fault.Err
			if errors.Is(err, csv.ErrFieldCount) {
				reason = errors.New("the number of columns differs from the rows before")
			}
			err = yieldRowError(yield, measurement.Place{Row: row, Line: int64(fault.StartLine)}, reason)
		default:
			for i, column := range columns {
				cells[i] = ""
				if column >= 0 {
					cells[i] = record[column]
				}
			}
			line, _ := r.FieldPos(0)
			err = a.emit(cells, measurement.Place{Row: row, Line: int64(line)}, yield)
		}
		if err != nil {
			return err
		}
	}
}

// bind returns the index of the column for each cell, -1 for none. In a wide table it sets the
// detectors.
func (m *Mapping) bind(header []string) ([]int, error) {
	for i, name := range header {
		header[i] = strings.TrimSpace(name)
	}
	if m.Wide {
		return m.bindWide(header)
	}
	names := m.names()
	columns := make([]int, len(names))
	for i, name := range names {
		columns[i] = slices.Index(header, name)
		if name == "" {
			columns[i] = -1
		} else if columns[i] < 0 && !(i == cellQuality && m.QualityOptional) {
			return nil, fmt.Errorf("no column %q; the columns are %q; name them with --detector, --from, --melt and so on (see --help), and check --separator", name, header)
		}
	}
	return columns, nil
}

func (m *Mapping) bindWide(header []string) ([]int, error) {
	at := -1 // column of the time
	switch {
	case m.From != "":
		if at = slices.Index(header, m.From); at < 0 {
			return nil, fmt.Errorf("no column %q; set --from to the column of the time, or --start", m.From)
		}
	case m.Start == "":
		at = 0
	}
	columns := []int{-1, -1, at, -1, -1}
	for i, name := range header {
		if i == at {
			continue
		}
		if name == "" || slices.Contains(m.detectors, name) {
			return nil, fmt.Errorf("column %d of the header must be a unique detector code, but is %q", i+1, name)
		}
		m.detectors = append(m.detectors, name)
		columns = append(columns, i)
	}
	if len(m.detectors) == 0 {
		return nil, errors.New("the header names no detector; check --separator")
	}
	return columns, nil
}

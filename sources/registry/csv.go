package registry

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// parseCSV returns the values of the named column, without surrounding blanks. Every row must have
// as many fields as the header: a shorter last row is a truncated file. comma 0 means the separator
// that matches the header.
func parseCSV(body []byte, column string, comma rune) ([]string, error) {
	comma, index, err := findColumn(body, column, comma)
	if err != nil {
		return nil, err
	}
	r := newCSVReader(body, comma)
	if _, err := r.Read(); err != nil {
		return nil, err
	}
	var codes []string
	for {
		row, err := r.Read()
		if errors.Is(err, io.EOF) {
			return codes, nil
		}
		var at *csv.ParseError
		if errors.Is(err, csv.ErrFieldCount) && errors.As(err, &at) {
			return nil, fmt.Errorf("line %d: number of fields differs from the header: the file is truncated, or a value with the separator in it is not quoted", at.Line)
		}
		if err != nil {
			return nil, err
		}
		code := strings.TrimSpace(row[index])
		if !utf8.ValidString(code) {
			line, _ := r.FieldPos(index)
			return nil, fmt.Errorf("line %d: %q is not valid UTF-8: save the file as UTF-8", line, code)
		}
		codes = append(codes, strings.Clone(code)) // a field keeps its entire row in memory
	}
}

// findColumn finds the column with the given separator, or with each of the usual ones.
func findColumn(body []byte, column string, comma rune) (separator rune, at int, err error) {
	candidates := []rune{',', ';', '\t', '|'}
	if comma != 0 {
		candidates = []rune{comma}
	}
	var best []string
	for _, c := range candidates {
		header, err := newCSVReader(body, c).Read()
		if errors.Is(err, io.EOF) {
			return 0, 0, errors.New("the file is empty: want a header with the column names")
		}
		if err != nil {
			continue
		}
		found := 0
		for i, name := range header {
			if strings.TrimSpace(name) == column {
				at = i
				found++
			}
		}
		switch {
		case found == 1:
			return c, at, nil
		case found > 1:
			return 0, 0, fmt.Errorf("column %q occurs %d times in the header", column, found)
		case len(header) > len(best):
			best = header
		}
	}
	if best == nil {
		return 0, 0, errors.New("the first line is not a CSV header")
	}
	return 0, 0, fmt.Errorf("no column %q; the columns are %q", column, best)
}

func newCSVReader(body []byte, comma rune) *csv.Reader {
	r := csv.NewReader(bytes.NewReader(body))
	r.Comma = comma
	r.ReuseRecord = true
	return r
}

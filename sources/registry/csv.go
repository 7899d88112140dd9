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

// parseCSV gives the named column of all rows below the header. Blanks around
// a value do not count. Every row has to be as long as the header: a shorter
// last one is a file that is half-written. comma 0 means: see which fits.
func parseCSV(body []byte, column string, comma rune) ([]string, error) {
	comma, at, err := findColumn(body, column, comma)
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
		if err != nil {
			return nil, rowError(err)
		}
		code := strings.TrimSpace(row[at])
		if !utf8.ValidString(code) {
			line, _ := r.FieldPos(at)
			return nil, fmt.Errorf("line %d: %q is no UTF-8: save the file as UTF-8", line, code)
		}
		codes = append(codes, strings.Clone(code)) // a field keeps its whole row in memory
	}
}

// findColumn looks for the column with the separator given, or with each that
// is usual.
func findColumn(body []byte, column string, comma rune) (separator rune, at int, err error) {
	candidates := []rune{',', ';', '\t', '|'}
	if comma != 0 {
		candidates = []rune{comma}
	}
	var best []string
	for _, c := range candidates {
		header, err := newCSVReader(body, c).Read()
		if errors.Is(err, io.EOF) {
			return 0, 0, errors.New("the file is empty: it needs a header with the names of the columns")
		}
		if err != nil {
			continue
		}
		at, found := position(header, column)
		switch found {
		case 1:
			return c, at, nil
		case 0:
			if len(header) > len(best) {
				best = header
			}
		default:
			return 0, 0, fmt.Errorf("column %q stands %d times in the header", column, found)
		}
	}
	if best == nil {
		return 0, 0, errors.New("the first line is no CSV header")
	}
	return 0, 0, fmt.Errorf("no column %q; the columns are %q", column, best)
}

// position gives the place of a column and how often its name is there.
func position(header []string, column string) (at, found int) {
	for i, name := range header {
		if strings.TrimSpace(name) == column {
			at = i
			found++
		}
	}
	return at, found
}

func newCSVReader(body []byte, comma rune) *csv.Reader {
	r := csv.NewReader(bytes.NewReader(body))
	r.Comma = comma
	r.ReuseRecord = true
	return r
}

func rowError(err error) error {
	var at *csv.ParseError
	if errors.As(err, &at) && errors.Is(err, csv.ErrFieldCount) {
		return fmt.Errorf("line %d has not as many fields as the header: the file is half-written, or a value with the separator in it is not quoted", at.Line)
	}
	return err
}

package registry

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
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
			return nil, fmt.Errorf("line %d: number of fields differs from the header: "+
				"the file is truncated, or a value with the separator in it is not quoted", at.Line)
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

// parseJSON reads a list of codes: an array of strings, or of objects with the code in the named
// member, or an object whose member `detectors` is such an array.
func parseJSON(body []byte, member string) ([]string, error) {
	if !utf8.Valid(body) {
		return nil, errors.New("invalid UTF-8: save the list as UTF-8")
	}
	var list []json.RawMessage
	if !bytes.HasPrefix(bytes.TrimLeft(body, " \t\r\n"), []byte("{")) {
		if err := json.Unmarshal(body, &list); err != nil {
			return nil, jsonError(err)
		}
	} else {
		var wrapped struct {
			Detectors *[]json.RawMessage `json:"detectors"`
		}
		if err := json.Unmarshal(body, &wrapped); err != nil {
			return nil, jsonError(err)
		}
		if wrapped.Detectors == nil {
			return nil, errors.New("the object has no array `detectors`")
		}
		list = *wrapped.Detectors
	}
	codes := make([]string, len(list))
	for i, raw := range list {
		if raw[0] == '{' {
			var object map[string]json.RawMessage
			if err := json.Unmarshal(raw, &object); err != nil {
				return nil, fmt.Errorf("entry %d of the list: %w", i, err)
			}
			value, ok := object[member]
			if !ok {
				return nil, fmt.Errorf("entry %d of the list: no member %q", i, member)
			}
			raw = value
		}
		if raw[0] != '"' {
			return nil, fmt.Errorf("entry %d of the list: %.64s is not a string", i, raw)
		}
		if err := json.Unmarshal(raw, &codes[i]); err != nil {
			return nil, fmt.Errorf("entry %d of the list: %w", i, err)
		}
	}
	return codes, nil
}

func jsonError(err error) error {
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		return fmt.Errorf("invalid or truncated JSON at byte %d: %w", syntax.Offset, err)
	}
	return fmt.Errorf("not a list of detectors: %w", err)
}

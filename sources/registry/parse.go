package registry

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"trafficd/pipeline/batch"
)

// parseCSV calls add for each row, with its values trimmed of white space. Every row must have as
// many fields as the header, because a shorter last row indicates a truncated file. If comma is 0,
// the separator is detected from the header.
func parseCSV(body []byte, names fields, comma rune, add addEntry) error {
	columns := []string{names.code}
	if names.instance != "" {
		columns = append(columns, names.instance)
	}
	r, header, indices, err := readHeader(body, columns, comma)
	if err != nil {
		return err
	}
	values, others := make([]string, 2), make([]batch.Attribute, 0, len(header))
	for {
		row, err := r.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		var at *csv.ParseError
		if errors.Is(err, csv.ErrFieldCount) && errors.As(err, &at) {
			return fmt.Errorf("line %d: number of fields %d, in the header %d: "+
				"the file is truncated, or a value that contains the separator is not quoted", at.Line, len(row), r.FieldsPerRecord)
		}
		if err != nil {
			return err
		}
		for i, index := range indices {
			values[i] = strings.TrimSpace(row[index])
			if !utf8.ValidString(values[i]) {
				line, _ := r.FieldPos(index)
				return fmt.Errorf("line %d: %.64q is not valid UTF-8: save the file as UTF-8", line, values[i])
			}
		}
		others = others[:0]
		for i, text := range row {
			if text = strings.TrimSpace(text); text != "" && !slices.Contains(indices, i) {
				others = append(others, batch.Attribute{Name: header[i], Value: strings.ToValidUTF8(text, "\uFFFD")})
			}
		}
		line, _ := r.FieldPos(0)
		add(line, values[1], strings.Clone(values[0]), others...) // without Clone, a field keeps its entire row in memory
	}
}

// readHeader returns a reader of the rows after the header, the header, and the index of each
// column in it. If comma is 0, it tries separators until the header contains all columns.
func readHeader(body []byte, columns []string, comma rune) (rows *csv.Reader, header []string, at []int, err error) {
	candidates := []rune{',', ';', '\t', '|'}
	if comma != 0 {
		candidates = []rune{comma}
	}
	var best []string
	for _, c := range candidates {
		rows = csv.NewReader(bytes.NewReader(body))
		rows.Comma = c
		header, err := rows.Read()
		if errors.Is(err, io.EOF) {
			return nil, nil, nil, errors.New("the file is empty: it must have a header with the column names")
		}
		if err != nil {
			continue
		}
		for i, name := range header {
			header[i] = strings.TrimSpace(name)
		}
		at = at[:0]
		for _, column := range columns {
			i := slices.Index(header, column)
			if i >= 0 && slices.Contains(header[i+1:], column) {
				return nil, nil, nil, fmt.Errorf("column %q occurs more than once in the header", column)
			}
			at = append(at, i)
		}
		if !slices.Contains(at, -1) {
			rows.ReuseRecord = true
			return rows, header, at, nil
		}
		if len(header) > len(best) {
			best = header
		}
	}
	if best == nil {
		return nil, nil, nil, errors.New("the first line is not a CSV header")
	}
	missing := slices.IndexFunc(columns, func(column string) bool { return !slices.Contains(best, column) })
	const maxNamed = 100
	return nil, nil, nil, fmt.Errorf("no column %q; the columns are %.64q", columns[missing], best[:min(len(best), maxNamed)])
}

// parseJSON calls add for each entry of a list: an array of strings, or of objects with the code in
// the named member, or an object whose member `detectors` is such an array. A list of several
// product instances must consist of objects.
func parseJSON(body []byte, names fields, add addEntry) error {
	if !utf8.Valid(body) {
		return errors.New("invalid UTF-8: save the list as UTF-8")
	}
	list := &entries{fields: names, add: add}
	var into any = list
	if bytes.HasPrefix(bytes.TrimLeft(body, " \t\r\n"), []byte("{")) {
		into = &struct {
			Detectors *entries `json:"detectors"`
		}{list}
	}
	err := json.Unmarshal(body, into)
	switch {
	case list.err != nil:
		return list.err
	case err != nil:
		return jsonError(err)
	case !list.found:
		return errors.New("the object has no array `detectors`")
	}
	return nil
}

// entries is a JSON array of detectors. Decoding passes one entry at a time to add, because all of
// them would need many times as much memory as the text.
type entries struct {
	fields
	add   addEntry
	found bool
	err   error // of an entry
}

func (e *entries) UnmarshalJSON(array []byte) error {
	if e.found {
		e.err = errors.New("duplicate member `detectors`")
		return e.err
	}
	d := json.NewDecoder(bytes.NewReader(array))
	if opening, err := d.Token(); err != nil || opening != json.Delim('[') {
		return fmt.Errorf("%.64s is not an array", array)
	}
	e.found = true
	var entry json.RawMessage
	for i := 0; d.More() && e.err == nil; i++ {
		_ = d.Decode(&entry) // Unmarshal has checked the syntax
		if err := e.read(i, entry); err != nil {
			e.err = fmt.Errorf("entry %d of the list: %w", i, err)
		}
	}
	return e.err
}

// read passes the entry with an index to add.
func (e *entries) read(i int, entry json.RawMessage) error {
	var object map[string]json.RawMessage
	if entry[0] == '{' {
		if err := json.Unmarshal(entry, &object); err != nil {
			return err
		}
	}
	var values [2]string
	for k, member := range []string{e.code, e.instance} {
		if member == "" {
			continue
		}
		value, ok := object[member]
		if object == nil && k == 0 {
			value, ok = entry, true
		}
		if !ok {
			return fmt.Errorf("no member %q", member)
		}
		if value[0] != '"' {
			return fmt.Errorf("%.64s is not a string", value)
		}
		if err := json.Unmarshal(value, &values[k]); err != nil {
			return err
		}
	}
	var others []batch.Attribute
	for _, name := range slices.Sorted(maps.Keys(object)) {
		if text := textOf(object[name]); text != "" && name != e.code && name != e.instance {
			others = append(others, batch.Attribute{Name: name, Value: text})
		}
	}
	e.add(i, values[1], values[0], others...)
	return nil
}

// textOf returns the text of a JSON string, "" for null, and any other value as JSON.
func textOf(value json.RawMessage) (text string) {
	if json.Unmarshal(value, &text) != nil {
		text = string(value)
	}
	return text
}

// jsonError returns err with a description, and with the position of a syntax error.
func jsonError(err error) error {
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		return fmt.Errorf("invalid or truncated JSON at byte %d: %w", syntax.Offset, err)
	}
	return fmt.Errorf("not a list of detectors: %w", err)
}

package feeds

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"

	"trafficd/schemas/feeds/xmlstream"
)

// readCSV reads rows of CSV, with a header unless the columns are named.
func (t *rowReader) readCSV(in io.Reader) error {
	rows := &bounded{in: in, left: maxElement}
	buffered := bufio.NewReader(rows)
	if mark, _ := buffered.Peek(3); string(mark) == "\xEF\xBB\xBF" {
		buffered.Discard(3) //nolint:errcheck // these bytes were peeked
	}
	r := csv.NewReader(buffered)
	r.ReuseRecord, r.FieldsPerRecord = true, len(t.Columns)
	r.Comma = t.comma()
	header := t.Columns
	row := cells{}
	for {
		rows.left = maxElement
		record, err := r.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("invalid CSV: %w", err)
		}
		if len(header) == 0 {
			for _, name := range record {
				if name = strings.TrimSpace(name); strings.HasPrefix(name, "<") {
					return errHTML
				}
				header = append(header, name)
			}
			continue
		}
		for i, cell := range record {
			row[header[i]] = strings.TrimSpace(cell)
		}
		if t.row(row); t.err != nil {
			return t.err
		}
	}
}

// readJSON reads rows of JSON. In an array within a row, each element is a row.
func (t *rowReader) readJSON(in io.Reader) error {
	list, inner, _ := strings.Cut(t.Path, ".")
	return eachElement(in, list, func(name string, raw json.RawMessage) error {
		if name != list {
			return nil
		}
		d := json.NewDecoder(bytes.NewReader(raw))
		d.UseNumber()
		var element any
		if err := d.Decode(&element); err != nil {
			return jsonError(err)
		}
		t.element(element, inner, cells{})
		return t.err
	})
}

func (t *rowReader) element(element any, inner string, outer cells) {
	row := cells{}
	for name, cell := range outer {
		row["../"+name] = cell
	}
	flatten("", element, row)
	if inner == "" {
		t.row(row)
		return
	}
	members, _ := element.(map[string]any)
	name, rest, _ := strings.Cut(inner, ".")
	list, _ := members[name].([]any)
	for _, e := range list {
		t.element(e, rest, row)
	}
}

// flatten adds the members of an object. Those of an object in it have names such as a.b.
func flatten(prefix string, value any, row cells) {
	switch v := value.(type) {
	case map[string]any:
		for name, member := range v {
			if prefix != "" {
				name = prefix + "." + name
			}
			flatten(name, member, row)
		}
	case string:
		row[prefix] = strings.TrimSpace(v)
	case json.Number:
		row[prefix] = v.String()
	case bool:
		row[prefix] = fmt.Sprint(v)
	case nil:
		row[prefix] = "" // the member exists
	}
}

// readXML reads rows of XML. Their columns are the attributes and elements in them. What is around
// the rows and before them has names with ../
func (t *rowReader) readXML(in io.Reader) error {
	outer, row := cells{}, cells{}
	inside := 0
	add := func(name, text []byte) {
		target, key := row, string(name)
		if inside == 0 {
			target, key = outer, "../"+key
		}
		if target[key] = string(text); len(target) > MaxValues {
			t.stop(errManyValues)
		}
	}
	start := func(x *xmlstream.Reader) {
		if inside == 0 && string(x.Name()) == t.Path {
			inside = x.Depth()
			clear(row)
		}
		for name, text := range x.Attributes() {
			add(name, text)
		}
	}
	end := func(x *xmlstream.Reader) {
		if inside == x.Depth()+1 {
			maps.Copy(row, outer)
			inside = 0
			t.row(row)
		} else if len(x.Text()) > 0 {
			add(x.Name(), x.Text())
		}
	}
	return t.walk(in, []string{t.Path}, start, end)
}

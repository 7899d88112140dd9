package feeds

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"
)

// Mapping says what the columns of a table mean. The table is CSV, JSON or XML; a column is a cell,
// a member or an element.
type Mapping struct {
	Form      string   // csv, json or xml
	Rows      string   // JSON: arrays to the rows, such as stations.sensorValues; XML: the element of a row
	Columns   []string // CSV without a header: the names of the columns
	Separator rune     // CSV; 0: a comma
	Decimal   byte     // 0: a point

	Detector string // column of the detector code
	At       string // column of the time, or
	From, To string // columns of both ends of the interval
	Layout   string // of times: empty for ISO 8601, unix, unixms, or a layout of Go

	// Wide rows have a column per value. Long rows have one value: Kind and Value are their columns,
	// and the names in Values are texts of Kind.
	Values      []Column
	Kind, Value string

	Where  []string // conditions, column=text or column!=text; other rows are not read
	Faults []string // conditions on which all values of a row are faults

	Name, Lon, Lat string // columns about the site; may be empty
}

// Column is a kind of value. Lane and Class may contain names of columns in braces:
// lane{laneNumber}.
type Column struct {
	Name                   string
	Measure                Measure
	Lane, Class, Statistic string
	Unit                   string // one of Units; empty for the unit of Measure
	Inputs                 string // column with the number of vehicles; may be empty
}

// Units are the units that can be converted, with their factors. That of vehicles is 3600 s divided
// by the interval.
var Units = map[string]float64{"": 1, "mph": 1.609344, "m/s": 3.6, "ratio": 100, "vehicles": 0}

// Validate returns an error for the first invalid field.
func (m *Mapping) Validate() error {
	switch {
	case m == nil:
		return errors.New("rows need a mapping of their columns")
	case !slices.Contains([]string{"csv", "json", "xml"}, m.Form):
		return fmt.Errorf("form %q must be csv, json or xml", m.Form)
	case m.Form == "xml" && m.Rows == "":
		return errors.New("rows must name the XML element of a row")
	case m.Detector == "":
		return errors.New("detector must name the column of the detector code")
	case m.At == "" && (m.From == "" || m.To == ""):
		return errors.New("at must name the column of the time, or from and to those of both ends of the interval")
	case len(m.Values) == 0 || (m.Kind == "") != (m.Value == ""):
		return errors.New("values must name the columns of the values, or kind and value those of long rows")
	}
	for _, c := range m.Values {
		if _, ok := Units[c.Unit]; !ok || c.Measure == Unknown || c.Measure >= measures {
			return fmt.Errorf("value %q: its measure or its unit %q is not known", c.Name, c.Unit)
		}
	}
	for _, condition := range append(m.Where, m.Faults...) {
		if !strings.Contains(condition, "=") {
			return fmt.Errorf("condition %q must be column=text or column!=text", condition)
		}
	}
	return nil
}

// cells are the columns of a row. Those of the rows around it begin with ../
type cells map[string]string

// rowReader reads rows, and combines the consecutive ones of a detector.
type rowReader struct {
	*parser
	*Mapping
	site string
	seen map[string]bool // columns that occurred
	rows int
}

func parseRows(p *parser, in io.Reader) error {
	if err := p.Mapping.Validate(); err != nil {
		return err
	}
	t := &rowReader{parser: p, Mapping: p.Mapping, seen: map[string]bool{}}
	read := map[string]func(io.Reader) error{"csv": t.readCSV, "json": t.readJSON, "xml": t.readXML}[t.Form]
	if err := read(in); err != nil {
		return err
	}
	if err := t.finish(t.site, stamp{}); err != nil {
		return err
	}
	return t.check()
}

// check returns an error if a column that is necessary did not occur in any row: its name is wrong,
// or the publisher has changed it.
func (t *rowReader) check() error {
	if t.rows == 0 {
		return nil
	}
	values := t.Value == "" || t.seen[t.Value]
	if t.Value == "" {
		values = false
		for _, c := range t.Values {
			values = values || t.seen[c.Name]
		}
	}
	for _, name := range []string{t.Detector, t.At, t.From, t.To, t.Kind} {
		if name != "" && !t.seen[name] {
			return fmt.Errorf("no row has a column %q", name)
		}
	}
	if !values {
		return errors.New("no row has a column with a value")
	}
	return nil
}

// row reads a row.
func (t *rowReader) row(row cells) error {
	for name := range row {
		if !t.seen[name] {
			t.seen[strings.Clone(name)] = true
		}
	}
	t.rows++
	if !all(row, t.Where) {
		return nil
	}
	if site := row[t.Detector]; t.rows == 1 || site != t.site {
		if err := t.finish(t.site, stamp{}); err != nil {
			return err
		}
		if t.site = strings.Clone(site); t.Lon != "" || t.Lat != "" {
			if err := t.parser.site(t.place(row)); err != nil {
				return err
			}
		}
	}
	at := t.stamp(row)
	fault := len(t.Faults) > 0 && !all(row, negated(t.Faults))
	known := t.Kind == ""
	for i := range t.Values {
		c := &t.Values[i]
		text := row[c.Name]
		if t.Kind != "" {
			if row[t.Kind] != c.Name {
				continue
			}
			text, known = row[t.Value], true
		}
		if text == "" {
			continue // the lane does not exist, or nothing is published about it
		}
		if err := t.value(c, row, text, at, fault); err != nil {
			return err
		}
	}
	if !known {
		v, err := t.add(Unknown)
		if err != nil {
			return err
		}
		v.stamp, v.reason = at, Kind
	}
	return nil
}

func (t *rowReader) value(c *Column, row cells, text string, at stamp, fault bool) error {
	v, err := t.add(c.Measure)
	if err != nil {
		return err
	}
	v.stamp, v.lane, v.class, v.statistic = at, expand(c.Lane, row), expand(c.Class, row), c.Statistic
	if n, ok := number([]byte(row[c.Inputs]), '.'); ok && c.Inputs != "" {
		v.inputs = int(n)
	}
	factor := Units[c.Unit]
	if from, to, ok := t.interval(at, t.Period); factor == 0 && ok && to.After(from) {
		factor = float64(time.Hour) / float64(to.Sub(from))
	}
	decimal := t.Decimal
	if decimal == 0 || t.Form == "json" {
		decimal = '.'
	}
	if v.set([]byte(text), decimal, factor); fault {
		v.reason = Equipment
	}
	for i := range t.values[:len(t.values)-1] {
		if w := &t.values[i]; w.Measure == v.Measure && w.key(0) == v.key(0) && w.stamp == v.stamp && w.Value == v.Value {
			v.reason = Repeated
		}
	}
	return nil
}

func (t *rowReader) stamp(row cells) stamp {
	at := stamp{stated: true}
	if t.At != "" {
		at.at = t.moment(row[t.At])
		return at
	}
	if from, to := t.moment(row[t.From]), t.moment(row[t.To]); !from.IsZero() && !to.IsZero() {
		at.from, at.to = from, to
	}
	return at
}

// moment reads a time.
func (t *rowReader) moment(text string) time.Time {
	switch {
	case t.Layout == "":
		return t.time([]byte(text))
	case t.Layout == "unix" || t.Layout == "unixms":
		n, ok := number([]byte(text), '.')
		if !ok || math.Abs(n) > 1e14 {
			return time.Time{}
		}
		if t.Layout == "unix" {
			n *= 1000
		}
		return time.UnixMilli(int64(n)).UTC()
	case strings.Contains(t.Layout, "Z07") || strings.Contains(t.Layout, "-07"):
		at, _ := time.Parse(t.Layout, text)
		return at.UTC()
	}
	return t.local(t.Layout, text)
}

func (t *rowReader) place(row cells) *Site {
	decimal := t.Decimal
	if decimal == 0 {
		decimal = '.'
	}
	s := &Site{ID: t.site, Name: strings.Clone(row[t.Name])}
	lon, okLon := number([]byte(row[t.Lon]), decimal)
	lat, okLat := number([]byte(row[t.Lat]), decimal)
	if okLon && okLat {
		s.Lon, s.Lat = lon, lat
		if !validPosition(lon, lat) {
			s.X, s.Y = lon, lat
		}
	}
	s.checkPosition()
	return s
}

// all reports whether a row meets all conditions.
func all(row cells, conditions []string) bool {
	for _, condition := range conditions {
		name, text, _ := strings.Cut(condition, "=")
		name, not := strings.CutSuffix(name, "!")
		if (row[name] == text) == not {
			return false
		}
	}
	return true
}

func negated(conditions []string) (not []string) {
	for _, condition := range conditions {
		name, text, _ := strings.Cut(condition, "=")
		if positive, ok := strings.CutSuffix(name, "!"); ok {
			not = append(not, positive+"="+text)
		} else {
			not = append(not, name+"!="+text)
		}
	}
	return not
}

// expand replaces the names of columns in braces.
func expand(text string, row cells) string {
	if !strings.Contains(text, "{") {
		return text
	}
	var b bytes.Buffer
	for {
		before, rest, ok := strings.Cut(text, "{")
		b.WriteString(before)
		name, after, closed := strings.Cut(rest, "}")
		if !ok || !closed {
			return b.String()
		}
		b.WriteString(row[name])
		text = after
	}
}

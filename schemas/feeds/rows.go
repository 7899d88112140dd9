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
	"unicode/utf8"
)

// Mapping says what the columns of a table mean. The table is CSV, JSON or XML; a column is a cell,
// a member or an element.
type Mapping struct {
	Form string `setting:"form"` // csv, json or xml
	// path of the rows. JSON: the arrays to them, such as stations.sensorValues; empty: the document
	// is the array. XML: the element of a row. In both, ../name is a column of what a row is in
	Path      string   `setting:"path"`
	Columns   []string `setting:"columns"`   // names of the columns, for CSV without a header
	Separator string   `setting:"separator"` // separator of CSV cells: one character, or tab; empty: a comma
	Decimal   string   `setting:"decimal"`   // decimal separator: a point or a comma; empty: a point

	Detector string `setting:"detector"` // column of the detector code, or several: a|b is a, or b if a is empty
	// column of the time; time and period of the feed say which instant it is. If it is around the
	// rows of XML and missing, it is the time of publication
	At   string `setting:"at"`
	From string `setting:"from"` // instead of at: column of the beginning of the interval
	To   string `setting:"to"`   // instead of at: column of the end of the interval
	// layout of times: empty for ISO 8601, unix, unixms, or how Go writes 2 January 2006, 15:04:05 so,
	// such as 02/01/2006 15:04
	Layout string `setting:"layout"`

	// the values: of wide rows, the columns; of long rows, which have one value each, the texts of
	// the column kind
	Values []Column `setting:"values"`
	Kind   string   `setting:"kind"`  // column of long rows that says what the value is; empty: wide rows
	Value  string   `setting:"value"` // column of the value of long rows

	Where  []string `setting:"where"`  // conditions column=text or column!=text; rows that do not meet all of them are not read
	Faults []string `setting:"faults"` // conditions of which each makes all values of a row faults

	Name string `setting:"name"` // column of the site's name; empty: none
	Lon  string `setting:"lon"`  // column of the longitude in degrees; empty: none
	Lat  string `setting:"lat"`  // column of the latitude in degrees; empty: none
}

// Column is a kind of value. Lane and Class may contain names of columns in braces.
type Column struct {
	Name    string `setting:"column"`  // name of the column, or text of the column kind
	Measure string `setting:"measure"` // speed, flow, occupancy, density, headway or another measure
	Lane    string `setting:"lane"`    // lane, such as lane1, or lane{column}; empty: all lanes
	Class   string `setting:"class"`   // class of vehicles, such as lorry, or {column}; empty: all vehicles
	// such as harmonic or max; empty: the mean, or the flow itself
	Statistic string `setting:"statistic"`
	// unit, if it is not km/h, vehicles/h or %: mph, m/s, ratio (0 to 1) or vehicles (in the interval)
	Unit      string    `setting:"unit"`
	Inputs    string    `setting:"inputs"`    // column with the number of vehicles, without which a speed of 0 is no vehicle; empty: none
	Sentinels []float64 `setting:"sentinels"` // numbers that mean a fault, such as 255; negative ones always do
}

var unitFactors = map[string]float64{"": 1, "mph": 1.609344, "m/s": 3.6, "ratio": 100, "vehicles": 0}

// UnitFactor returns what converts values of a unit, such as mph, to km/h, vehicles/h or %. That of
// vehicles depends on the interval; without one, it is 0. known is false for other units.
func UnitFactor(unit string, interval time.Duration) (factor float64, known bool) {
	factor, known = unitFactors[unit]
	if factor == 0 && interval > 0 {
		factor = float64(time.Hour) / float64(interval)
	}
	return factor, known
}

// Validate returns an error for the first invalid field.
func (m *Mapping) Validate() error {
	switch {
	case m == nil:
		return errors.New("rows need a mapping of their columns")
	case !slices.Contains([]string{"csv", "json", "xml"}, m.Form):
		return fmt.Errorf("form %q must be csv, json or xml", m.Form)
	case m.Form == "xml" && m.Path == "":
		return errors.New("path must name the XML element of a row")
	case m.comma() == utf8.RuneError:
		return fmt.Errorf("separator %q must be one character, or tab", m.Separator)
	case m.Decimal != "" && m.Decimal != "." && m.Decimal != ",":
		return fmt.Errorf("decimal %q must be a point or a comma", m.Decimal)
	case m.Detector == "":
		return errors.New("detector must name the column of the detector code")
	case m.At == "" && (m.From == "" || m.To == ""):
		return errors.New("at must name the column of the time, or from and to those of both ends of the interval")
	case len(m.Values) == 0 || (m.Kind == "") != (m.Value == ""):
		return errors.New("values must name the columns of the values, or kind and value those of long rows")
	}
	for _, c := range m.Values {
		if _, ok := UnitFactor(c.Unit, 0); !ok || c.measure() == Unknown {
			return fmt.Errorf("value %q: its measure %q or its unit %q is not known", c.Name, c.Measure, c.Unit)
		}
	}
	for _, condition := range slices.Concat(m.Where, m.Faults) {
		if !strings.Contains(condition, "=") {
			return fmt.Errorf("condition %q must be column=text or column!=text", condition)
		}
	}
	return nil
}

// comma returns the separator of CSV, or utf8.RuneError if it is invalid.
func (m *Mapping) comma() rune {
	switch m.Separator {
	case "":
		return ','
	case "tab":
		return '\t'
	}
	r, size := utf8.DecodeRuneInString(m.Separator)
	if size != len(m.Separator) || strings.ContainsRune("\"\r\n", r) {
		return utf8.RuneError
	}
	return r
}

// number reads a number of a column. JSON always has decimal points.
func (m *Mapping) number(text string) (float64, bool) { return number([]byte(text), m.decimal()) }

func (m *Mapping) decimal() byte {
	if m.Decimal == "" || m.Form == "json" {
		return '.'
	}
	return m.Decimal[0]
}

func (c *Column) measure() Measure {
	for m := range measures {
		if m.String() == c.Measure {
			return m
		}
	}
	return Unknown
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
	t.finish(t.site, stamp{})
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
		switch {
		case name == "" || slices.ContainsFunc(strings.Split(name, "|"), func(name string) bool { return t.seen[name] }):
		case name == t.At && t.undated():
			if t.Modified.IsZero() {
				return errors.New("it has no time, and its server did not say when it was published")
			}
		default:
			return fmt.Errorf("no row has a column %q", name)
		}
	}
	if !values {
		return errors.New("no row has a column with a value")
	}
	return nil
}

// row reads a row.
func (t *rowReader) row(row cells) {
	for name := range row {
		if !t.seen[name] {
			t.seen[strings.Clone(name)] = true
		}
	}
	t.rows++
	if slices.ContainsFunc(t.Where, func(c string) bool { return !row.meets(c) }) {
		return
	}
	if site := row.first(t.Detector); t.rows == 1 || site != t.site {
		t.finish(t.site, stamp{})
		if t.site = strings.Clone(site); t.Lon != "" || t.Lat != "" {
			t.parser.site(t.place(row))
		}
	}
	at := t.stamp(row)
	fault := slices.ContainsFunc(t.Faults, row.meets)
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
		t.value(c, row, text, at, fault)
	}
	if !known {
		v := t.add(Unknown)
		v.stamp, v.reason = at, Kind
	}
}

func (t *rowReader) value(c *Column, row cells, text string, at stamp, fault bool) {
	v := t.add(c.measure())
	v.stamp, v.lane, v.class, v.statistic = at, expand(c.Lane, row), expand(c.Class, row), c.Statistic
	if n, ok := t.number(row[c.Inputs]); ok && c.Inputs != "" {
		v.inputs = int(n)
	}
	var interval time.Duration
	if from, to, ok := t.interval(at, t.Period); ok {
		interval = to.Sub(from)
	}
	factor, _ := UnitFactor(c.Unit, interval)
	v.set([]byte(text), t.decimal(), factor)
	switch {
	case fault:
		v.reason = Equipment
	case v.reason == "" && slices.Contains(c.Sentinels, v.number):
		v.reason = Sentinel
	}
	for i := range t.values[:len(t.values)-1] {
		if w := &t.values[i]; w.Measure == v.Measure && w.key(0) == v.key(0) && w.stamp == v.stamp && w.Value == v.Value {
			v.reason = Repeated
		}
	}
}

// undated reports whether the time is not a column of rows but of the document, which lacks it.
func (t *rowReader) undated() bool {
	return t.Form == "xml" && strings.HasPrefix(t.At, "../") && !t.seen[t.At]
}

func (t *rowReader) stamp(row cells) stamp {
	at := stamp{stated: true}
	switch {
	case t.At != "" && t.undated():
		at.at = t.Modified.UTC().Truncate(max(t.Period, 1))
		return at
	case t.At != "":
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
	s := &Site{ID: t.site, Name: strings.Clone(row[t.Name])}
	lon, okLon := t.number(row[t.Lon])
	lat, okLat := t.number(row[t.Lat])
	if okLon && okLat {
		s.Lon, s.Lat = lon, lat
		if !validPosition(lon, lat) {
			s.X, s.Y = lon, lat
		}
	}
	s.checkPosition()
	return s
}

// first returns the first of some columns that is not empty.
func (row cells) first(names string) string {
	for name := range strings.SplitSeq(names, "|") {
		if row[name] != "" {
			return row[name]
		}
	}
	return ""
}

// meets reports whether a row meets a condition.
func (row cells) meets(condition string) bool {
	name, text, _ := strings.Cut(condition, "=")
	name, not := strings.CutSuffix(name, "!")
	return (row[name] == text) != not
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

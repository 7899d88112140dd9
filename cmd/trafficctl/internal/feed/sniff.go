package feed

import (
	"cmp"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"trafficd/cmd/trafficctl/internal/measurement"
)

// sniffedRows is the number of rows that Sniff reads.
const sniffedRows = 100

// Table is what Sniff found out about a table.
type Table struct {
	Config                // with a Mapping that reads the table
	Sniffed []Column      // in the order of the table
	Rows    int           // rows read, without blank ones
	Blank   int64         // rows skipped, see Counts
	Local   bool          // times have no UTC offset
	Guesses []string      // what somebody who knows the data should check
	First   string        // the first measurement
	Good    int           // measurements read with Mapping
	Bad     []string      // what is wrong with the rows that cannot be read with it
	step    time.Duration // between consecutive times
}

// Column is a column of a table.
type Column struct {
	Name, Sample string
	Layout       string // of its times; empty if it has none
	Number       bool
	Decimal      byte // of its numbers; 0 if they are whole
	empty        bool
	taken        bool // it has a meaning
}

// String describes the column.
func (c Column) String() string {
	switch {
	case c.empty:
		return "empty"
	case c.Layout != "":
		return "times, " + c.Layout
	case c.Decimal == ',':
		return "numbers with a decimal comma"
	case c.Number:
		return "numbers"
	}
	return "text"
}

// Sniff reads the first rows of a CSV file and finds out how to read all of it. cfg.Mapping is not
// used, except its zone.
func Sniff(ctx context.Context, cfg Config, stdin io.Reader) (t *Table, err error) {
	var clock Clock
	if cfg.Mapping != nil {
		clock.Zone = cfg.Mapping.Clock.Zone
	}
	cfg.Mapping = nil
	source, err := Open(ctx, cfg, stdin)
	if err != nil {
		return nil, err
	}
	defer func() { _ = source.Close() }()
	if source.format != CSV {
		return nil, fmt.Errorf("--sniff is for CSV, but %s is %s; send --dry-run shows how it is read", cfg.name(), source.format)
	}
	r := source.newReader(DefaultMapping())
	var rows [][]string
	r.ReuseRecord, r.FieldsPerRecord = false, -1
	for len(rows) < sniffedRows+1 {
		row, err := r.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		switch {
		case err != nil && !errors.As(err, new(*csv.ParseError)):
			return nil, fmt.Errorf("cannot read %s: %w", cfg.name(), err)
		case isBlank(row):
			source.Blank++
		case err == nil:
			rows = append(rows, row)
		}
	}
	if len(rows) == 0 {
		return nil, fmt.Errorf("cannot read %s: no rows", cfg.name())
	}
	cfg.Separator = r.Comma
	header := cfg.Columns
	if len(header) == 0 && hasHeader(rows[0]) {
		header, rows = rows[0], rows[1:]
	} else if len(header) == 0 {
		for i := range rows[0] {
			header = append(header, fmt.Sprintf("c%d", i+1))
		}
		cfg.Columns = header
	}
	t = &Table{Config: cfg, Rows: len(rows), Blank: source.Blank}
	for i, name := range header {
		if !utf8.ValidString(name) {
			return nil, fmt.Errorf("cannot read %s: the header is not valid UTF-8; %s", cfg.name(), toUTF8)
		}
		t.Sniffed = append(t.Sniffed, columnOf(strings.TrimSpace(name), rows, i))
	}
	m := DefaultMapping()
	m.Clock.Zone = clock.Zone
	if t.assign(&m, rows); m.Validate() == nil {
		t.Mapping = &m
		t.try(header, rows)
	}
	return t, nil
}

// hasHeader reports whether no cell of the first row is a time or a number.
func hasHeader(row []string) bool {
	return !slices.ContainsFunc(row, func(cell string) bool {
		c := columnOf("", [][]string{{cell}}, 0)
		return c.Number || c.Layout != ""
	})
}

// sniffedLayouts are the layouts that Sniff tries, in this order.
var sniffedLayouts = []string{
	LayoutISO, "DD.MM.YYYY hh:mm", "DD.MM.YYYY hh:mm:ss", "DD.MM.YY hh:mm", "DD.MM.YY hh:mm:ss",
	"DD/MM/YYYY hh:mm", "DD/MM/YYYY hh:mm:ss", "MM/DD/YYYY hh:mm", "MM/DD/YYYY hh:mm:ss", "YYYY/MM/DD hh:mm", "YYYY/MM/DD hh:mm:ss",
}

var (
	unixSeconds = regexp.MustCompile(`^[12]\d{9}$`)
	unixMillis  = regexp.MustCompile(`^[12]\d{12}$`)
	fraction    = regexp.MustCompile(`^[+-]?\d*([.,])\d+$`)
)

// columnOf describes the cells of column i.
func columnOf(name string, rows [][]string, i int) Column {
	c := Column{Name: name, Number: true}
	var cells []string
	for _, row := range rows {
		if i < len(row) && strings.TrimSpace(row[i]) != "" {
			cells = append(cells, strings.TrimSpace(row[i]))
		}
	}
	if c.empty = len(cells) == 0; c.empty {
		return c
	}
	all := func(is func(cell string) bool) bool {
		return !slices.ContainsFunc(cells, func(cell string) bool { return !is(cell) })
	}
	c.Sample = cells[0]
	switch {
	case all(unixSeconds.MatchString):
		c.Layout = LayoutUnix
	case all(unixMillis.MatchString):
		c.Layout = LayoutUnixMillis
	}
	for _, layout := range sniffedLayouts {
		clock := Clock{Layout: layout}
		if c.Layout == "" && all(func(cell string) bool { _, err := clock.parse(cell); return err == nil }) {
			c.Layout = layout
		}
	}
	for _, cell := range cells {
		if match := fraction.FindStringSubmatch(cell); match != nil && c.Decimal == 0 {
			c.Decimal = match[1][0]
		}
	}
	c.Number = c.Layout == "" && all(func(cell string) bool {
		_, err := appendNumber(nil, cell, cmp.Or(c.Decimal, '.'))
		return err == nil
	})
	if !c.Number {
		c.Decimal = 0
	}
	return c
}

// The names of columns, after the contract's.
var (
	detectorNames = regexp.MustCompile(`(?i)dete[ck]tor|sensor|loop|site|station|mess?stelle|z(ä|ae)hlst|querschnitt|^mq|(^|_)(id|code|nr)$`)
	kindNames     = regexp.MustCompile(`(?i)measuretype|^(type|typ|kind|art)$|messgr`)
	qualityNames  = regexp.MustCompile(`(?i)qualit|g(ü|ue)te`)
	placeNames    = regexp.MustCompile(`(?i)^(lat|lon|lng|x|y)|breite|l(ä|ae)nge|(^|_)(id|code|nr)$`)
	measureNames  = []struct {
		kind string
		of   *regexp.Regexp
	}{
		{"speed", regexp.MustCompile(`(?i)speed|geschw|km.?h|mph|^v(_|$)`)},
		{"flow", regexp.MustCompile(`(?i)flow|count|volume|kfz|veh|anzahl|menge|^[qn](_|$)`)},
		{"occupancy", regexp.MustCompile(`(?i)occup|beleg`)},
	}
)

// assign sets the columns of m. What is uncertain is in t.Guesses.
func (t *Table) assign(m *Mapping, rows [][]string) {
	isUnix := func(c Column) bool { return c.Layout == LayoutUnix || c.Layout == LayoutUnixMillis } // or a long code
	isCode := func(c Column) bool { return (c.Layout == "" || isUnix(c)) && c.Decimal == 0 && !c.empty }
	isText := func(c Column) bool { return isCode(c) && !c.Number }
	isNumber := func(c Column) bool { return c.Number && !c.empty }
	m.From = t.take(m.From, func(c Column) bool { return c.Layout != "" && !isUnix(c) }, isUnix)
	m.To = t.take(m.To, func(c Column) bool { return c.Layout != "" && c.Layout == t.column(m.From).Layout })
	m.Detector = t.take(m.Detector, named(detectorNames, isCode), isText)
	m.Type = t.take(m.Type, named(kindNames, isText))
	if m.Wide = m.Detector == ""; m.Wide {
		m.Type, m.To = "=speed", ""
		t.Guesses = append(t.Guesses, "the names of the columns are taken as codes of detectors, and all values as measure type speed")
	}
	quality := t.take(m.Quality, named(qualityNames, isNumber))
	if quality != "" && quality != m.Quality {
		m.Quality, m.QualityOptional = quality, false
	}
	if m.Wide {
		m.Value, m.Quality = "", ""
	} else if m.Type != "" {
		m.Value = t.take(m.Value, isNumber)
	} else {
		t.assignValues(m)
	}
	for _, c := range t.Sniffed {
		if c.Decimal == ',' {
			m.Decimal = ','
		}
		if c.Name == m.From && c.Name != "" {
			m.Clock.Layout = c.Layout
			t.inspectTimes(m, rows, slices.IndexFunc(t.Sniffed, func(x Column) bool { return x.Name == c.Name }))
		}
	}
	switch {
	case m.From == "":
		t.Guesses = append(t.Guesses, "no column has times with date and clock; if these are two columns, join them, for example with a formula")
	case m.To == "":
		m.Interval = cmp.Or(t.step, 5*time.Minute)
		t.Guesses = append(t.Guesses, fmt.Sprintf("%s is taken as the start of intervals of %.0f s", m.From, m.Interval.Seconds()))
	}
}

// take returns the name of the first free column that has the contract's name or, failing that,
// meets one of the rules, and takes it.
func (t *Table) take(contractName string, rules ...func(c Column) bool) string {
	rules = append([]func(c Column) bool{func(c Column) bool { return strings.EqualFold(c.Name, contractName) }}, rules...)
	for _, rule := range rules {
		for i, c := range t.Sniffed {
			if !c.taken && c.Name != "" && rule(c) {
				t.Sniffed[i].taken = true
				return c.Name
			}
		}
	}
	return ""
}

// named returns a rule for columns that have a name like names and meet the rule is.
func named(names *regexp.Regexp, is func(c Column) bool) func(c Column) bool {
	return func(c Column) bool { return names.MatchString(c.Name) && is(c) }
}

// column returns the column with a name, or the zero value.
func (t *Table) column(name string) (c Column) {
	if i := slices.IndexFunc(t.Sniffed, func(c Column) bool { return c.Name == name }); i >= 0 {
		c = t.Sniffed[i]
	}
	return c
}

// assignValues takes the columns with numbers as values, one measure type each.
func (t *Table) assignValues(m *Mapping) {
	for _, c := range t.Sniffed {
		if c.taken || !c.Number || c.empty || placeNames.MatchString(c.Name) {
			continue
		}
		kind := strings.Trim(regexp.MustCompile(`[^A-Za-z0-9_.-]+`).ReplaceAllString(c.Name, "_"), "_")
		for _, measure := range slices.Backward(measureNames) {
			if measure.of.MatchString(c.Name) {
				kind = measure.kind
			}
		}
		kind = cmp.Or(kind, "value")
		if slices.ContainsFunc(m.Melt, func(other Melt) bool { return other.Type == kind }) {
			kind = fmt.Sprintf("%s.%d", kind, len(m.Melt)+1)
		}
		m.Melt = append(m.Melt, Melt{c.Name, kind})
		guess := fmt.Sprintf("%s is taken as measure type %s", c.Name, kind)
		if kind == "flow" {
			guess += "; if it counts vehicles in an interval, but the unit is veh/h (GET …/detectors/capabilities says so), add --unit flow=vehicles"
		}
		t.Guesses = append(t.Guesses, guess)
	}
	if len(m.Melt) == 1 {
		m.Value, m.Type, m.Melt = m.Melt[0].Column, "="+m.Melt[0].Type, nil
	}
}

// inspectTimes sets Local and step from column i, which has the starts of the intervals.
func (t *Table) inspectTimes(m *Mapping, rows [][]string, i int) {
	local := int64(0)
	clock := Clock{Layout: m.Clock.Layout, asUTC: &local}
	swapped := Clock{Layout: strings.Replace(strings.Replace(m.Clock.Layout, "DD/MM", "MM/x", 1), "x", "DD", 1)}
	ambiguous := swapped.Layout != m.Clock.Layout
	var times []time.Time
	for _, row := range rows {
		if i >= len(row) {
			continue
		}
		cell := strings.TrimSpace(row[i])
		if at, err := clock.parse(cell); err == nil {
			times = append(times, at)
			_, err := swapped.parse(cell)
			ambiguous = ambiguous && err == nil
		}
	}
	t.Local = local > 0
	if ambiguous {
		t.Guesses = append(t.Guesses, "dates are taken as day/month, but could be month/day, --time-layout '"+swapped.Layout+"'")
	}
	slices.SortFunc(times, time.Time.Compare)
	for k := 1; k < len(times); k++ {
		if step := times[k].Sub(times[k-1]); step > 0 && (t.step == 0 || step < t.step) {
			t.step = step
		}
	}
}

// try reads the rows with the mapping.
func (t *Table) try(header []string, rows [][]string) {
	columns, err := t.Mapping.bind(header)
	if err != nil {
		t.Bad = append(t.Bad, err.Error())
		return
	}
	a := newAssembler(*t.Mapping, new(Counts))
	for k, row := range rows {
		cells := make([]string, len(columns))
		for i, column := range columns {
			if column >= 0 && column < len(row) {
				cells[i] = row[column]
			}
		}
		_ = a.emit(cells, measurement.Position{Row: int64(k + 1)}, func(item measurement.Item, err error) bool { // it never stops
			switch {
			case err != nil:
				t.Bad = append(t.Bad, err.Error())
			default:
				t.Good++
				t.First = cmp.Or(t.First, string(item.JSON))
			}
			return true
		})
	}
}

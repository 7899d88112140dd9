package feeds

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Table knows the characteristics of the values of sites. Sites with the same characteristics share
// them: 97,000 sites need about 10 MB.
type Table struct {
	sites   map[string]tableSite
	layouts map[string][]column // by everything that a layout is made of
	key     []byte
}

type tableSite struct {
	id      string
	columns []column
}

// column is what a table says about the values with an index.
type column struct {
	index       int
	lane, class string
	period      time.Duration
	twin        bool // another column with a lower index has the same kind, lane and class
}

// NewTable returns an empty table.
func NewTable() *Table {
	return &Table{sites: map[string]tableSite{}, layouts: map[string][]column{}}
}

// Add adds a site, or replaces it. Its version does not matter: publications refer to the current
// version of a site or the next one.
func (t *Table) Add(s *Site) {
	t.key = t.key[:0]
	for i := range s.Characteristics {
		c := &s.Characteristics[i]
		t.key = strconv.AppendInt(t.key, int64(c.Index), 10)
		t.key = append(append(append(append(append(append(t.key, ' '), c.Kind...), ' '), c.Lane...), ' '), c.Class...)
		t.key = append(strconv.AppendInt(append(t.key, ' '), int64(c.Period), 10), '\n')
	}
	columns, ok := t.layouts[string(t.key)]
	if !ok {
		columns = layout(s.Characteristics)
		t.layouts[string(t.key)] = columns
	}
	id := strings.Clone(s.ID)
	t.sites[id] = tableSite{id, columns}
}

// Len returns the number of sites.
func (t *Table) Len() int { return len(t.sites) }

// layout returns the columns in order of their indexes.
func layout(characteristics []Characteristic) []column {
	columns := make([]column, 0, len(characteristics))
	sorted := slices.Clone(characteristics)
	slices.SortStableFunc(sorted, func(a, b Characteristic) int { return cmp.Compare(a.Index, b.Index) })
	seen := map[[3]string]bool{}
	for _, c := range sorted {
		key := [3]string{c.Kind, c.Lane, c.Class}
		columns = append(columns, column{c.Index, c.Lane, c.Class, c.Period, seen[key]})
		seen[key] = true
	}
	return columns
}

// of returns the id and the columns of a site, without allocating memory.
func (t *Table) of(id []byte) (string, []column) {
	if t != nil {
		if s, ok := t.sites[string(id)]; ok {
			return s.id, s.columns
		}
	}
	return string(id), nil
}

// describe sets what the table says about the value.
func (v *value) describe(columns []column) {
	at := v.Index // most tables number their columns from 1 on
	if at--; at < 0 || at >= len(columns) || columns[at].index != v.Index {
		var found bool
		at, found = slices.BinarySearchFunc(columns, v.Index, func(c column, index int) int { return cmp.Compare(c.index, index) })
		if !found {
			v.unknown, v.indexed = true, v.Index != 0
			return
		}
	}
	c := &columns[at]
	v.lane, v.indexed = c.lane, c.twin
	if !v.classed {
		v.class = c.class
	}
	if v.period == 0 {
		v.period = c.period
	}
}

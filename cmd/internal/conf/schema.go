package conf

import (
	"math"
	"reflect"
	"slices"
	"strings"
)

// schema lists the keys of a struct with setting tags, in the order of its fields. Each section is
// followed by the keys in it.
type schema []field

type field struct {
	name  string // in a schema, the dotted path from the root
	index []int  // for reflect.Value.FieldByIndex
	typ   reflect.Type
}

func schemaOf(typ reflect.Type) (all schema) {
	for _, f := range fieldsOf(typ) {
		all = append(all, f)
		if isSection(f.typ) {
			for _, below := range schemaOf(f.typ) {
				all = append(all, field{join(f.name, below.name), slices.Concat(f.index, below.index), below.typ})
			}
		}
	}
	return all
}

func (s schema) find(key string) int {
	return slices.IndexFunc(s, func(f field) bool { return f.name == key })
}

// fieldsOf lists the tagged fields of a struct and of its embedded structs with the tag ",squash".
func fieldsOf(typ reflect.Type) []field {
	var list []field
	for i := range typ.NumField() {
		f := typ.Field(i)
		name, option, _ := strings.Cut(f.Tag.Get("setting"), ",")
		switch {
		case option == "squash":
			for _, below := range fieldsOf(f.Type) {
				below.index = append([]int{i}, below.index...)
				list = append(list, below)
			}
		case name != "" && name != "-":
			list = append(list, field{name: name, index: []int{i}, typ: f.Type})
		}
	}
	return list
}

func isSection(typ reflect.Type) bool { return typ.Kind() == reflect.Struct }

func join(key, name string) string {
	if key == "" {
		return name
	}
	return key + "." + name
}

// hasValue reports whether key, with dots or underscores, is a known key and not a section.
func (s schema) hasValue(key string) bool {
	return slices.ContainsFunc(s, func(f field) bool {
		return !isSection(f.typ) && (key == f.name || key == strings.ReplaceAll(f.name, ".", "_"))
	})
}

// nearest returns the key that is probably meant by a wrong one. If none is similar, it returns ""
// and the keys in the section to which the wrong key belongs.
func (s schema) nearest(wrong string) (key string, others []string) {
	wrong = strings.ToLower(wrong)
	for _, f := range s {
		if strings.ReplaceAll(f.name, ".", "_") == wrong {
			return f.name, nil
		}
	}
	at := ""
	for name := range strings.SplitSeq(wrong, ".") {
		names := s.namesIn(at)
		best, least := "", math.MaxInt
		for _, n := range names {
			if d := distance(name, n); d < least && similar(name, n, d) {
				best, least = n, d
			}
		}
		switch {
		case best != "":
			at = join(at, best)
		case len(names) > 0:
			return "", names
		}
	}
	return at, nil
}

func (s schema) namesIn(section string) (names []string) {
	for _, f := range s {
		name, inside := strings.CutPrefix(f.name, section)
		name, below := strings.CutPrefix(name, ".")
		if inside && (below || section == "") && !strings.Contains(name, ".") {
			names = append(names, name)
		}
	}
	return names
}

// similar reports whether a name of distance d may be meant by a wrong one: one is an abbreviation
// of the other, or a few letters differ.
func similar(wrong, name string, d int) bool {
	shorter := min(len(wrong), len(name))
	return d == 0 || shorter > 2 && (strings.Contains(name, wrong) || strings.HasPrefix(wrong, name)) ||
		shorter > 3 && d <= min(3, (shorter+2)/3)
}

// distance returns the Levenshtein distance of two ASCII strings.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

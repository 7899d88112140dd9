package config

import (
	"encoding"
	"reflect"
	"strings"
	"time"
)

// schema is the tree of the keys that a struct with koanf tags knows. A leaf
// is what one value sets: a scalar, a list or a map as a whole.
type schema struct {
	name     string
	key      string // dotted path from the root
	typ      reflect.Type
	children []*schema // empty for a leaf
}

// schemaOf reads the keys from the struct's tags, in the order of its fields.
func schemaOf(typ reflect.Type, name, key string) *schema {
	s := &schema{name: name, key: key, typ: typ}
	if !isSection(typ) {
		return s
	}
	for _, f := range fieldsOf(typ) {
		s.children = append(s.children, schemaOf(f.typ, f.name, join(key, f.name)))
	}
	return s
}

// field is a field with a key of its own.
type field struct {
	name  string
	index []int // as reflect.Value.FieldByIndex takes it
	typ   reflect.Type
}

// fieldsOf lists the tagged fields of a struct; those of an embedded one with
// the tag ",squash" stand among them.
func fieldsOf(typ reflect.Type) []field {
	var list []field
	for i := range typ.NumField() {
		f := typ.Field(i)
		name, option, _ := strings.Cut(f.Tag.Get("koanf"), ",")
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

func isSection(typ reflect.Type) bool {
	return typ.Kind() == reflect.Struct &&
		typ != reflect.TypeFor[time.Time]() &&
		!reflect.PointerTo(typ).Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

func join(key, name string) string {
	if key == "" {
		return name
	}
	return key + "." + name
}

func (s *schema) leaf() bool { return len(s.children) == 0 }

func (s *schema) child(name string) *schema {
	for _, c := range s.children {
		if c.name == name {
			return c
		}
	}
	return nil
}

// find gives the place of a dotted key, nil where there is none.
func (s *schema) find(key string) *schema {
	for name := range strings.SplitSeq(key, ".") {
		if s = s.child(name); s == nil {
			return nil
		}
	}
	return s
}

// keys lists the sections and leaves below s, by their dotted path.
func (s *schema) keys() []string {
	var keys []string
	for _, c := range s.children {
		keys = append(keys, c.key)
		keys = append(keys, c.keys()...)
	}
	return keys
}

// nearest is the known key that takes the fewest changes to get to from a
// wrong one; it is empty where nothing is near enough to be meant.
func nearest(wrong string, known []string) string {
	best, least := "", max(3, len(wrong)/2)+1
	for _, key := range known {
		if d := distance(wrong, key); d < least {
			best, least = key, d
		}
	}
	return best
}

// distance is Levenshtein's, over bytes: keys are ASCII.
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

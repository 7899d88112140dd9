package conf

import (
	"reflect"
	"slices"
	"strings"
)

// schema is the tree of the keys of a struct with setting tags. A leaf is set by one value: a
// scalar, a whole list, or a section that a pointer refers to.
type schema struct {
	name     string
	key      string // dotted path from the root
	typ      reflect.Type
	index    []int     // of the field, for reflect.Value.FieldByIndex of the root
	children []*schema // empty for a leaf
}

// schemaOf reads the keys from the struct's tags, in the order of its fields.
func schemaOf(typ reflect.Type, name, key string, index []int) *schema {
	s := &schema{name: name, key: key, typ: typ, index: index}
	if isSection(typ) {
		for _, f := range fieldsOf(typ) {
			s.children = append(s.children, schemaOf(f.typ, f.name, join(key, f.name), slices.Concat(index, f.index)))
		}
	}
	return s
}

// field is a struct field with a key.
type field struct {
	name  string
	index []int // for reflect.Value.FieldByIndex
	typ   reflect.Type
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

func (s *schema) leaf() bool { return len(s.children) == 0 }

func (s *schema) child(name string) *schema {
	for _, c := range s.children {
		if c.name == name {
			return c
		}
	}
	return nil
}

// find returns the node of a dotted key, or nil.
func (s *schema) find(key string) *schema {
	for name := range strings.SplitSeq(key, ".") {
		if s = s.child(name); s == nil {
			return nil
		}
	}
	return s
}

// keys lists the keys of all sections and leaves below s.
func (s *schema) keys() []string {
	var keys []string
	for _, c := range s.children {
		keys = append(keys, c.key)
		keys = append(keys, c.keys()...)
	}
	return keys
}

// isLeaf reports whether key, with dots or underscores, is the key of a leaf.
func (s *schema) isLeaf(key string) bool {
	return slices.ContainsFunc(s.keys(), func(known string) bool {
		return (key == known || key == strings.ReplaceAll(known, ".", "_")) && s.find(known).leaf()
	})
}

// nearest returns the known key with the smallest edit distance to a wrong key, or "" if none is
// similar.
func nearest(wrong string, known []string) string {
	best, least := "", max(3, len(wrong)/2)+1
	for _, key := range known {
		if d := distance(wrong, key); d < least {
			best, least = key, d
		}
	}
	return best
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

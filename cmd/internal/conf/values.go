package conf

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// set sets into, the value of a key, to a YAML node, which must fit exactly.
func (l *loader) set(key string, n *yaml.Node, into reflect.Value) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n.ShortTag() == "!!null" { // "key:" without a value
		return
	}
	v := reflect.New(into.Type()).Elem()
	problems := len(l.errs)
	switch typ := into.Type(); {
	case isSection(typ):
		if n.Kind == yaml.MappingNode {
			l.setSection(key, n, into)
		} else {
			l.wrong(key, n, "must be a section, such as "+example(typ))
		}
		return
	case typ.Kind() == reflect.Pointer:
		v.Set(reflect.New(typ.Elem()))
		l.set(key, n, v.Elem())
	case typ.Kind() == reflect.Slice && n.Kind == yaml.SequenceNode:
		v.Set(reflect.MakeSlice(typ, len(n.Content), len(n.Content)))
		for i, entry := range n.Content {
			l.set(fmt.Sprintf("%s[%d]", key, i), entry, v.Index(i))
		}
	default:
		if want := decode(n, v); want != "" {
			l.wrong(key, n, "must be "+want)
		}
	}
	if len(l.errs) == problems {
		into.Set(v)
		if !strings.Contains(key, "[") { // a list has one origin
			l.origins[key] = l.from(n)
		}
	}
}

func (l *loader) setSection(key string, n *yaml.Node, into reflect.Value) {
	known, seen := schemaOf(into.Type()), map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		name := n.Content[i].Value
		switch at := known.find(name); {
		case seen[name]:
			l.fail(join(key, name), "duplicate key %q (%s)", join(key, name), l.from(n.Content[i]))
		case at < 0:
			l.unknown(key, name, n.Content[i], known)
		default:
			l.set(join(key, name), n.Content[i+1], into.FieldByIndex(known[at].index))
		}
		seen[name] = true
	}
}

// setText sets a key to a value from the environment or a flag. Strings are used verbatim, a list
// of strings may be written as a,b,c, and anything else is YAML.
func (l *loader) setText(root schema, key, text, from string) {
	l.from = func(*yaml.Node) string { return from }
	at := root.find(key)
	if at < 0 {
		l.unknown("", key, nil, root)
		return
	}
	typ := root[at].typ
	n, doc := &yaml.Node{}, yaml.Node{}
	switch {
	case isSection(typ):
		l.fail(key, "%q (%s) is a section: set the keys in it, such as %s", key, from, root[at+1].name)
		return
	case typ.Kind() == reflect.String:
		n.SetString(text)
	case typ == reflect.TypeFor[[]string]() && !strings.HasPrefix(text, "["):
		list := []string{}
		for item := range strings.SplitSeq(text, ",") {
			list = append(list, strings.TrimSpace(item))
		}
		if text == "" {
			list = nil
		}
		_ = n.Encode(list) // cannot fail for strings
	default:
		if err := yaml.Unmarshal([]byte(text), &doc); err != nil {
			l.wrong(key, n, "invalid YAML: "+err.Error())
			return
		}
		if len(doc.Content) == 0 {
			l.wrong(key, n, "the value is empty")
			return
		}
		n = doc.Content[0]
	}
	l.set(key, n, l.into.FieldByIndex(root[at].index))
}

// decode sets v, which is no section, to a node. If the node does not fit, it returns what would.
func decode(n *yaml.Node, v reflect.Value) (want string) {
	is := func(tags ...string) bool {
		return slices.Contains(tags, n.ShortTag()) && n.Decode(v.Addr().Interface()) == nil
	}
	var fits bool
	switch typ := v.Type(); {
	case typ == reflect.TypeFor[time.Duration]():
		d, err := time.ParseDuration(n.Value)
		v.SetInt(int64(d))
		fits, want = err == nil, "a duration with its unit, such as 5s, 1m30s or 1h"
	case typ.Kind() == reflect.Slice:
		want = "a list, such as " + example(typ)
	case typ.Kind() == reflect.Bool:
		fits, want = is("!!bool"), "true or false"
	case typ.Kind() == reflect.Float64:
		fits, want = is("!!int", "!!float"), "a number"
	case typ.Kind() == reflect.String:
		fits, want = is("!!str"), "text in quotes"
	default:
		var size int64
		size, fits = integer(n)
		v.SetInt(size)
		want = "a whole number, optionally with the unit KiB, MiB, GiB or TiB, such as 64MiB"
	}
	if fits {
		return ""
	}
	return want
}

func example(typ reflect.Type) string {
	switch {
	case typ.Kind() == reflect.Slice:
		return "[" + example(typ.Elem()) + "]"
	case isSection(typ):
		return "{" + fieldsOf(typ)[0].name + ": …}"
	}
	return "a, b"
}

var sizes = []struct {
	suffix string
	factor int64
}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40}}

// integer returns the value of a whole number such as 5, 1e6 or 64MiB.
func integer(n *yaml.Node) (size int64, ok bool) {
	number, factor := n.Value, int64(1)
	switch n.ShortTag() {
	case "!!int":
		err := n.Decode(&size)
		return size, err == nil
	case "!!float":
		var f float64
		err := n.Decode(&f)
		return int64(f), err == nil && f == math.Trunc(f) && math.Abs(f) <= 1<<53
	case "!!str":
		for _, unit := range sizes {
			if cut, ok := strings.CutSuffix(number, unit.suffix); ok {
				number, factor = strings.TrimSpace(cut), unit.factor
			}
		}
	}
	size, err := strconv.ParseInt(number, 10, 64)
	return size * factor, err == nil && size <= math.MaxInt64/factor && size >= math.MinInt64/factor
}

// FormatSize returns a number of bytes with the largest unit that divides it, such as 64MiB.
func FormatSize(n int64) string {
	for i := len(sizes) - 1; i >= 0; i-- {
		if unit := sizes[i]; n != 0 && n%unit.factor == 0 {
			return strconv.FormatInt(n/unit.factor, 10) + unit.suffix
		}
	}
	return strconv.FormatInt(n, 10)
}

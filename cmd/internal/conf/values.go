package conf

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// convert sets into, the value of a key, to a value decoded from YAML, which must fit exactly.
func (s setting) convert(key string, v any, into reflect.Value) error {
	if v == nil { // as an entry of a list or section
		return nil
	}
	var fits bool
	var want string
	switch typ := into.Type(); {
	case typ == reflect.TypeFor[time.Duration]():
		text, _ := v.(string)
		d, err := time.ParseDuration(text)
		into.SetInt(int64(d))
		fits, want = err == nil, "a duration with its unit, such as 5s, 1m30s or 1h"
	case typ.Kind() == reflect.Pointer:
		into.Set(reflect.New(typ.Elem()))
		return s.convert(key, v, into.Elem())
	case isSection(typ):
		if members, ok := v.(map[string]any); ok {
			return s.convertSection(key, members, into)
		}
		v, want = nil, "a section, such as "+example(typ) // v may be a secret
	case typ.Kind() == reflect.Slice:
		if entries, ok := v.([]any); ok {
			return s.convertList(key, entries, into)
		}
		want = "a list, such as " + example(typ)
	case typ.Kind() == reflect.Bool:
		var b bool
		b, fits = v.(bool)
		into.SetBool(b)
		want = "true or false"
	case typ.Kind() == reflect.Float64:
		n := reflect.ValueOf(v)
		if fits = n.CanInt() || n.CanUint() || n.CanFloat(); fits {
			into.Set(n.Convert(typ))
		}
		want = "a number"
	case typ.Kind() == reflect.String:
		var text string
		text, fits = v.(string)
		into.SetString(text)
		want = "text in quotes"
	default:
		var n int64
		n, fits = integer(v)
		into.SetInt(n)
		want = "a whole number, optionally with the unit KiB, MiB, GiB or TiB, such as 64MiB"
	}
	if !fits {
		return s.wrong(key, v, "must be "+want)
	}
	return nil
}

func (s setting) convertSection(key string, members map[string]any, into reflect.Value) error {
	known := schemaOf(into.Type())
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(members)) {
		if i := known.find(name); i < 0 {
			errs = append(errs, s.unknown(key, name, known))
		} else {
			errs = append(errs, s.convert(join(key, name), members[name], into.FieldByIndex(known[i].index)))
		}
	}
	return errors.Join(errs...)
}

func (s setting) convertList(key string, entries []any, into reflect.Value) error {
	into.Set(reflect.MakeSlice(into.Type(), len(entries), len(entries)))
	var errs []error
	for i, v := range entries {
		errs = append(errs, s.convert(fmt.Sprintf("%s[%d]", key, i), v, into.Index(i)))
	}
	return errors.Join(errs...)
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
func integer(v any) (n int64, ok bool) {
	switch v := v.(type) {
	case string:
		return parseSize(v)
	case int:
		return int64(v), true
	case int64:
		return v, true
	case float64:
		return int64(v), v == math.Trunc(v) && math.Abs(v) <= 1<<53
	}
	return 0, false
}

func parseSize(s string) (n int64, ok bool) {
	factor := int64(1)
	for _, unit := range sizes {
		if n, ok := strings.CutSuffix(s, unit.suffix); ok {
			s, factor = strings.TrimSpace(n), unit.factor
		}
	}
	n, err := strconv.ParseInt(s, 10, 64)
	return n * factor, err == nil && n <= math.MaxInt64/factor && n >= math.MinInt64/factor
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

// fromText parses a value from the environment or a flag. Strings are used verbatim, a list of
// strings may be written as a,b,c, and anything else is YAML.
func (f field) fromText(text string) (any, error) {
	switch {
	case f.typ.Kind() == reflect.String:
		return text, nil
	case f.typ == reflect.TypeFor[[]string]() && !strings.HasPrefix(text, "["):
		if text == "" {
			return []any{}, nil
		}
		list := []any{}
		for item := range strings.SplitSeq(text, ",") {
			list = append(list, strings.TrimSpace(item))
		}
		return list, nil
	}
	var v any
	if err := yaml.Unmarshal([]byte(text), &v); err != nil {
		return nil, fmt.Errorf("invalid YAML: %w", err)
	}
	if v == nil {
		return text, errors.New("the value is empty")
	}
	return v, nil
}

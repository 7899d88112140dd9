package conf

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/go-viper/mapstructure/v2"
	"go.yaml.in/yaml/v3"
)

// convert converts a value to the type of f. A value that does not fit exactly is an error.
func (f field) convert(v any) (reflect.Value, error) {
	into := reflect.New(f.typ)
	d, err := mapstructure.NewDecoder(&mapstructure.DecoderConfig{
		Result:      into.Interface(),
		TagName:     "setting",
		ErrorUnused: true,
		DecodeHook:  mapstructure.ComposeDecodeHookFunc(hookDuration, hookInteger),
	})
	if err != nil {
		return reflect.Value{}, err
	}
	if err := d.Decode(v); err != nil {
		return reflect.Value{}, errors.New(decodeErrorText(err))
	}
	return into.Elem(), nil
}

func hookDuration(from, to reflect.Type, v any) (any, error) {
	if to != reflect.TypeFor[time.Duration]() || from == to {
		return v, nil
	}
	text, _ := v.(string)
	d, err := time.ParseDuration(text)
	if err != nil {
		return nil, errors.New("must be a duration with its unit, such as 5s, 1m30s or 1h")
	}
	return d, nil
}

// sizes lists the units that whole numbers may have.
var sizes = []struct {
	suffix string
	factor int64
}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40}}

var errInteger = errors.New("must be a whole number, optionally with the unit KiB, MiB, GiB or TiB, such as 64MiB")

func hookInteger(_, to reflect.Type, v any) (any, error) {
	if to != reflect.TypeFor[int]() && to != reflect.TypeFor[int64]() {
		return v, nil
	}
	switch v := v.(type) {
	case string:
		return parseSize(v)
	case int, int64:
		return v, nil
	case float64:
		if v == math.Trunc(v) && math.Abs(v) <= 1<<53 { // such as 1e6
			return int64(v), nil
		}
	}
	return nil, errInteger
}

func parseSize(s string) (int64, error) {
	factor := int64(1)
	for _, unit := range sizes {
		if n, ok := strings.CutSuffix(s, unit.suffix); ok {
			s, factor = strings.TrimSpace(n), unit.factor
		}
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n > math.MaxInt64/factor || n < math.MinInt64/factor {
		return 0, errInteger
	}
	return n * factor, nil
}

// formatSize is the inverse of parseSize.
func formatSize(n int64) string {
	for i := len(sizes) - 1; i >= 0; i-- {
		if unit := sizes[i]; n != 0 && n%unit.factor == 0 {
			return strconv.FormatInt(n/unit.factor, 10) + unit.suffix
		}
	}
	return strconv.FormatInt(n, 10)
}

// decodeErrorText returns the text of a mapstructure error without its headline and empty names.
func decodeErrorText(err error) string {
	text := err.Error()
	if _, list, ok := strings.Cut(text, "error(s):\n\n"); ok {
		text = list
	}
	text = strings.ReplaceAll(text, "* ", "")
	for _, noise := range []string{"error decoding '': ", "'' ", "decoding failed due to the following "} {
		text = strings.ReplaceAll(text, noise, "")
	}
	return strings.ReplaceAll(strings.TrimSpace(text), "\n", "; ")
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

package conf

import (
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"trafficd/pipeline/lib/settings"
)

// Print writes the effective configuration as YAML that can be loaded again. Comments contain each
// setting's help and, unless it has its default, its origin. Secrets are left empty.
func Print[T any](w io.Writer, c *T, origins Origins) error {
	e := yaml.NewEncoder(w)
	e.SetIndent(2)
	if err := e.Encode(node(reflect.ValueOf(*c), "", origins)); err != nil {
		return fmt.Errorf("cannot print the configuration: %w", err)
	}
	return e.Close()
}

// Entry returns the settings of a section that are not zero, secrets included.
func Entry(section any) *yaml.Node { return entry(reflect.ValueOf(section)) }

func entry(v reflect.Value) *yaml.Node {
	n := &yaml.Node{}
	switch {
	case v.Type() == reflect.TypeFor[time.Duration]():
		return scalar(v.Interface().(time.Duration).String())
	case v.Kind() == reflect.Pointer:
		return entry(v.Elem())
	case isSection(v.Type()):
		n.Kind = yaml.MappingNode
		for _, f := range fieldsOf(v.Type()) {
			if below := v.FieldByIndex(f.index); !below.IsZero() {
				n.Content = append(n.Content, scalar(f.name), entry(below))
			}
		}
	case v.Kind() == reflect.Slice:
		n.Kind = yaml.SequenceNode
		for i := range v.Len() {
			n.Content = append(n.Content, entry(v.Index(i)))
		}
	default:
		_ = n.Encode(v.Interface()) // cannot fail for a scalar
	}
	return n
}

func node(v reflect.Value, key string, origins Origins) *yaml.Node {
	n := content(v, key, origins)
	switch from := origins[key]; {
	case from == "":
	case n.LineComment == "":
		n.LineComment = "from " + from
	default:
		n.LineComment += "; from " + from
	}
	return n
}

func content(v reflect.Value, key string, origins Origins) *yaml.Node {
	switch {
	case isSecret(key) && v.Kind() == reflect.String && v.String() != "":
		return &yaml.Node{Kind: yaml.ScalarNode, Style: yaml.DoubleQuotedStyle, LineComment: secretNote}
	case v.Kind() == reflect.String && hasSecret(v.String()):
		return &yaml.Node{Kind: yaml.ScalarNode, Value: settings.Redact(v.String(), ""), LineComment: secretNote}
	case v.Type() == reflect.TypeFor[time.Duration]():
		return scalar(v.Interface().(time.Duration).String())
	case isSection(v.Type()):
		return section(v, key, origins)
	case v.Kind() == reflect.Pointer && !v.IsNil():
		return content(v.Elem(), key, origins)
	case v.Kind() == reflect.Slice:
		return list(v, key, origins)
	case (strings.Contains(key, "bytes") || key == "memory_limit") && v.CanInt():
		return scalar(FormatSize(v.Int()))
	}
	n := &yaml.Node{}
	_ = n.Encode(v.Interface()) // cannot fail for a scalar or nil
	return n
}

func section(v reflect.Value, key string, origins Origins) *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode}
	for _, f := range fieldsOf(v.Type()) {
		name, value := scalar(f.name), node(v.FieldByIndex(f.index), join(key, f.name), origins)
		name.HeadComment = wrap(helpOfEntries(f.typ, helpOf(v.Type(), f.index)), 110)
		if value.Kind != yaml.ScalarNode && value.Style != yaml.FlowStyle { // its comment would move to the next key
			name.LineComment, value.LineComment = value.LineComment, ""
		}
		n.Content = append(n.Content, name, value)
	}
	return n
}

func list(v reflect.Value, key string, origins Origins) *yaml.Node {
	n := &yaml.Node{Kind: yaml.SequenceNode}
	for i := range v.Len() {
		n.Content = append(n.Content, node(v.Index(i), fmt.Sprintf("%s[%d]", key, i), origins))
	}
	if v.Len() == 0 || !isSection(v.Type().Elem()) {
		n.Style = yaml.FlowStyle
	}
	return n
}

func scalar(text string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Value: text}
}

// secretNote is the comment that replaces a secret.
const secretNote = "secret, not shown"

// secrets lists the suffixes of keys whose values are not shown. Digests of API keys are not
// secret, but someone may have set a key instead.
var secrets = []string{"password", "authorization", "secret", "token", "headers", "api.keys"}

func isSecret(key string) bool {
	key = strings.TrimRight(key, "[0123456789]") // an entry of a list
	return slices.ContainsFunc(secrets, func(suffix string) bool { return strings.HasSuffix(key, suffix) })
}

// hasSecret reports whether text is a URL with a password or a query.
func hasSecret(text string) bool { return settings.Redact(text, "") != text }

// quoted quotes v for an error. Secrets, lists and maps, which may contain some, are not shown.
func quoted(key string, v any) string {
	switch v := v.(type) {
	case string:
		if !isSecret(key) && !hasSecret(v) {
			return fmt.Sprintf("%.64q", v)
		}
	case bool, int, int64, uint64, float64:
		if !isSecret(key) {
			return fmt.Sprint(v)
		}
	}
	return "this value"
}

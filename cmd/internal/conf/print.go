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
	if err := e.Encode(printer{origins: origins}.node(reflect.ValueOf(*c), "")); err != nil {
		return fmt.Errorf("cannot print the configuration: %w", err)
	}
	return e.Close()
}

// Entry returns the settings of a section that are not zero, secrets included.
func Entry(section any) *yaml.Node { return printer{entry: true}.node(reflect.ValueOf(section), "") }

type printer struct {
	origins Origins
	entry   bool // only what is not zero, with secrets and without help
}

func (p printer) node(v reflect.Value, key string) *yaml.Node {
	n := &yaml.Node{}
	switch {
	case v.Kind() == reflect.String && !p.entry && isSecret(key) && v.String() != "":
		n = &yaml.Node{Kind: yaml.ScalarNode, Style: yaml.DoubleQuotedStyle, LineComment: secretNote}
	case v.Kind() == reflect.String && !p.entry && hasSecret(v.String()):
		n = &yaml.Node{Kind: yaml.ScalarNode, Value: settings.Redact(v.String(), ""), LineComment: secretNote}
	case v.Type() == reflect.TypeFor[time.Duration]():
		n = scalar(v.Interface().(time.Duration).String())
	case isSection(v.Type()):
		n = p.section(v, key)
	case v.Kind() == reflect.Pointer && !v.IsNil():
		return p.node(v.Elem(), key)
	case v.Kind() == reflect.Slice:
		n.Kind = yaml.SequenceNode
		for i := range v.Len() {
			n.Content = append(n.Content, p.node(v.Index(i), fmt.Sprintf("%s[%d]", key, i)))
		}
		if v.Len() == 0 || !isSection(v.Type().Elem()) {
			n.Style = yaml.FlowStyle
		}
	case (strings.Contains(key, "bytes") || key == "memory_limit") && v.CanInt():
		n = scalar(FormatSize(v.Int()))
	default:
		_ = n.Encode(v.Interface()) // cannot fail for a scalar or nil
	}
	if from := p.origins[key]; from != "" {
		n.LineComment = strings.TrimPrefix(n.LineComment+"; from "+from, "; ")
	}
	return n
}

func (p printer) section(v reflect.Value, key string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode}
	for _, f := range fieldsOf(v.Type()) {
		below := v.FieldByIndex(f.index)
		if p.entry && below.IsZero() {
			continue
		}
		name, value := scalar(f.name), p.node(below, join(key, f.name))
		if !p.entry {
			name.HeadComment = wrap(helpOfEntries(f.typ, helpOf(v.Type(), f.index)), 110)
		}
		if value.Kind != yaml.ScalarNode && value.Style != yaml.FlowStyle { // its comment would move to the next key
			name.LineComment, value.LineComment = value.LineComment, ""
		}
		n.Content = append(n.Content, name, value)
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

// quoted quotes a value for an error. Secrets, lists and maps, which may contain some, are not
// shown.
func quoted(key string, n *yaml.Node) string {
	switch {
	case n.Kind != yaml.ScalarNode || isSecret(key) || hasSecret(n.Value):
		return "this value"
	case n.ShortTag() == "!!str":
		return fmt.Sprintf("%.64q", n.Value)
	}
	return n.Value
}

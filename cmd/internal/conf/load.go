// Package conf loads a program's settings from defaults, a YAML file, the environment and the
// command line; later sources override earlier ones. It also prints the settings and configures
// logging.
//
// Settings are strings, booleans, numbers (int, int64, float64), durations, and lists and sections
// of these. The key of each setting is its "setting" struct tag.
package conf

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Options holds the sources of settings. Their precedence increases in this order: the file, the
// environment, --set, flags.
type Options struct {
	Prefix  string   // prefix of the environment variables; empty: EnvPrefix
	File    string   // YAML; empty for none
	Environ []string // as returned by os.Environ
	Set     []string // each is "section.key=value"
	Flags   []Flag
}

// Flag is a command line flag that sets a key.
type Flag struct{ Name, Key, Value string }

// Origins maps each key that was set to the source of its value. Keys at their default are missing.
type Origins map[string]string

// Differences returns the keys of the settings in which two configurations differ.
func Differences[T any](a, b *T) (keys []string) {
	for _, f := range schemaOf(reflect.TypeFor[T]()) {
		x, y := reflect.ValueOf(a).Elem().FieldByIndex(f.index), reflect.ValueOf(b).Elem().FieldByIndex(f.index)
		if !isSection(f.typ) && !reflect.DeepEqual(x.Interface(), y.Interface()) {
			keys = append(keys, f.name)
		}
	}
	return keys
}

// Load sets the fields of the struct that into points to, which must hold the defaults. Its error
// joins all errors, one line each, with the key, the origin of its value and, for an unknown key,
// the most similar known one or those in its section. Values that cannot be parsed have no effect.
func Load(into any, o Options) (Origins, error) {
	root := schemaOf(reflect.TypeOf(into).Elem())
	settings, errs := collect(o, root)
	origins := Origins{}
	for _, s := range settings {
		f, value, err := s.decode(root)
		switch {
		case err != nil:
			errs = append(errs, err)
		case value.IsValid():
			reflect.ValueOf(into).Elem().FieldByIndex(f.index).Set(value)
			origins[s.key] = s.from
		}
	}
	return origins, errors.Join(errs...)
}

type setting struct {
	key  string
	raw  any    // as decoded from YAML
	text bool   // raw is a string that is parsed according to the key's type
	from string // origin, for messages

	prefix string // of environment variables
}

// decode finds the key and converts the value to its type. It returns the zero reflect.Value for
// "key:" without a value, which leaves the default.
func (s setting) decode(root schema) (f field, value reflect.Value, err error) {
	i := root.find(s.key)
	if i < 0 {
		return f, value, s.unknown("", s.key, root)
	}
	f = root[i]
	if isSection(f.typ) {
		return f, value, about(s.key, "%q (%s) is a section: set the keys in it, such as %s", s.key, s.from, root[i+1].name)
	}
	raw := s.raw
	if s.text {
		if raw, err = f.fromText(raw.(string)); err != nil {
			return f, value, s.wrong(s.key, raw, err.Error())
		}
	}
	if raw != nil {
		value = reflect.New(f.typ).Elem()
		err = s.convert(s.key, raw, value)
	}
	return f, value, err
}

// unknown returns the error about a key that is not in a section, whose keys are known.
func (s setting) unknown(section, key string, known schema) error {
	var hint string
	switch near, keys := known.nearest(key); {
	case near == "":
		hint = ": the keys there are " + strings.Join(keys, ", ")
	case section == "" && strings.HasPrefix(s.from, "environment "):
		hint = ": did you mean " + s.prefix + strings.ToUpper(strings.ReplaceAll(near, ".", "__")) + "?"
	default:
		hint = fmt.Sprintf(": did you mean %q?", join(section, near))
	}
	key = join(section, key)
	if first, _, _ := strings.Cut(key, "."); section == "" && known.find(first) < 0 { // it may be meant for any section
		return fmt.Errorf("unknown key %q (%s)%s", key, s.from, hint)
	}
	return about(key, "unknown key %q (%s)%s", key, s.from, hint)
}

// wrong returns the error about a value that does not fit its key.
func (s setting) wrong(key string, v any, want string) error {
	return about(key, "%q (%s) cannot be %s: %s", key, s.from, quoted(key, v), want)
}

// EnvPrefix is the prefix of the daemon's environment variables: TRAFFICD_SECTION__KEY. Other
// programs set Options.Prefix.
const EnvPrefix = "TRAFFICD_"

// collect returns all settings in order of increasing precedence.
func collect(o Options, root schema) (list []setting, errs []error) {
	if o.File != "" {
		list, errs = fromFile(o.File, root)
	}
	prefix := cmp.Or(o.Prefix, EnvPrefix)
	for _, line := range o.Environ {
		name, value, _ := strings.Cut(line, "=")
		path, ours := strings.CutPrefix(name, prefix)
		key := strings.ToLower(strings.ReplaceAll(path, "__", "."))
		// Platforms set variables such as TRAFFICD_PORT, so variables without a double underscore are
		// ignored unless, like TRAFFICD_KAFKA_BROKERS, they resemble a key.
		if ours && (strings.Contains(path, "__") || root.hasValue(key)) {
			list = append(list, setting{key: key, raw: value, text: true, from: "environment " + name, prefix: prefix})
		}
	}
	for _, s := range o.Set {
		key, value, ok := strings.Cut(s, "=")
		if !ok || key == "" {
			errs = append(errs, about(s, "--set %s: must be section.key=value", s))
			continue
		}
		list = append(list, setting{key: key, raw: value, text: true, from: "--set"})
	}
	for _, f := range o.Flags {
		list = append(list, setting{key: f.Key, raw: f.Value, text: true, from: "--" + f.Name})
	}
	return list, errs
}

func fromFile(path string, root schema) ([]setting, []error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, []error{Absolute(fmt.Errorf("cannot read the configuration: %w", err))}
	}
	if len(text) == 0 { // it is probably being written, and a reload would drop all keys and registry feeds
		return nil, []error{fmt.Errorf("the configuration %s is empty; to use the defaults, put a comment in it", path)}
	}
	d := yaml.NewDecoder(bytes.NewReader(text))
	var doc, next yaml.Node
	if err = d.Decode(&doc); err == nil {
		err = d.Decode(&next)
	}
	switch {
	case err != nil && !errors.Is(err, io.EOF):
		return nil, []error{fmt.Errorf("cannot parse the configuration %s: %w", path, err)}
	case len(next.Content) > 0 && next.Content[0].Tag != "!!null":
		return nil, []error{fmt.Errorf("the configuration %s has more than one YAML document", path)}
	case len(doc.Content) == 0: // only comments
		return nil, nil
	}
	return fromNode(doc.Content[0], "", path, root)
}

// fromNode returns the settings in a YAML node. key is empty for the root.
func fromNode(n *yaml.Node, key, path string, root schema) (list []setting, errs []error) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	from := fmt.Sprintf("%s, line %d", path, n.Line)
	at := root.find(key)
	if key != "" && (at < 0 || !isSection(root[at].typ)) {
		var raw any
		if err := n.Decode(&raw); err != nil {
			return nil, []error{about(key, "cannot parse %q (%s): %w", key, from, err)}
		}
		return []setting{{key: key, raw: raw, from: from}}, nil
	}
	if n.Tag == "!!null" { // an empty section
		return nil, nil
	}
	if n.Kind != yaml.MappingNode && key == "" {
		return nil, []error{fmt.Errorf("cannot parse the configuration %s: it must contain keys, such as %s", from, root[0].name)}
	}
	if n.Kind != yaml.MappingNode {
		return nil, []error{about(key, "%q (%s) must be a section with keys, such as %s", key, from, root[at+1].name)}
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		name := n.Content[i].Value
		if seen[name] {
			errs = append(errs, about(join(key, name), "duplicate key %q (%s, line %d)", join(key, name), path, n.Content[i].Line))
			continue
		}
		seen[name] = true
		below, wrong := fromNode(n.Content[i+1], join(key, name), path, root)
		list, errs = append(list, below...), append(errs, wrong...)
	}
	return list, errs
}

// Section returns the errors joined in err, each of which starts with a key. It adds the section's
// name to the key, and appends the origin of the setting.
func (o Origins) Section(name string, err error) error {
	var errs []error
	for _, err := range Leaves(err) {
		text := join(name, Absolute(err).Error())
		key := keyAtStart.FindString(text)
		for at := key; at != ""; at = at[:max(0, strings.LastIndexByte(at, '.'))] {
			if from := o[at]; from != "" {
				text += " (from " + from + ")"
				break
			}
		}
		errs = append(errs, keyError{key, errors.New(text)})
	}
	return errors.Join(errs...)
}

type keyError struct {
	key string
	error
}

func about(key, format string, args ...any) error { return keyError{key, fmt.Errorf(format, args...)} }

// Concern reports whether the errors of Load and Origins.Section are, or may be, about a section.
func Concern(errs error, section string) bool {
	return slices.ContainsFunc(Leaves(errs), func(err error) bool {
		k, ok := errors.AsType[keyError](err)
		return !ok || k.key == section || strings.HasPrefix(k.key, section+".")
	})
}

// Absolute returns err with an absolute path to the file that it is about. Relative paths in
// settings are relative to the working directory, which may not be the one that was meant.
func Absolute(err error) error {
	var relative *fs.PathError
	if !errors.As(err, &relative) || filepath.IsAbs(relative.Path) {
		return err
	}
	absolute := *relative
	absolute.Path, _ = filepath.Abs(relative.Path) // fails only if the working directory does not exist
	return errors.New(strings.Replace(err.Error(), relative.Error(), absolute.Error(), 1))
}

var keyAtStart = regexp.MustCompile(`^[a-z0-9_.]+`)

// Invalid returns the error with which a program rejects its settings, with one problem per line.
func Invalid(problems error) error {
	return fmt.Errorf("cannot use the configuration:\n  %s", strings.ReplaceAll(problems.Error(), "\n", "\n  "))
}

// Leaves returns the errors joined in err, at any depth, or only err if it joins none.
func Leaves(err error) []error {
	if err == nil {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	var list []error
	for _, err := range joined.Unwrap() {
		list = append(list, Leaves(err)...)
	}
	return list
}

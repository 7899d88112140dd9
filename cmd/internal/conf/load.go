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
	l := &loader{into: reflect.ValueOf(into).Elem(), prefix: cmp.Or(o.Prefix, EnvPrefix), origins: Origins{}}
	if o.File != "" {
		l.from = func(n *yaml.Node) string { return fmt.Sprintf("%s, line %d", o.File, n.Line) }
		if n, err := parse(o.File); err != nil {
			l.errs = append(l.errs, err)
		} else if n != nil {
			l.set("", n, l.into)
		}
	}
	root := schemaOf(l.into.Type())
	for _, line := range o.Environ {
		name, text, _ := strings.Cut(line, "=")
		path, ours := strings.CutPrefix(name, l.prefix)
		key := strings.ToLower(strings.ReplaceAll(path, "__", "."))
		// Platforms set variables such as TRAFFICD_PORT, so variables without a double underscore are
		// ignored unless, like TRAFFICD_KAFKA_BROKERS, they resemble a key.
		if ours && (strings.Contains(path, "__") || root.hasValue(key)) {
			l.setText(root, key, text, environment+name)
		}
	}
	for _, s := range o.Set {
		key, text, ok := strings.Cut(s, "=")
		if !ok || key == "" {
			l.fail(s, "--set %s: must be section.key=value", s)
			continue
		}
		l.setText(root, key, text, "--set")
	}
	for _, f := range o.Flags {
		l.setText(root, f.Key, f.Value, "--"+f.Name)
	}
	return l.origins, errors.Join(l.errs...)
}

// loader sets the fields of a struct, source by source.
type loader struct {
	into    reflect.Value
	prefix  string                    // of environment variables
	from    func(n *yaml.Node) string // returns the origin of a node
	origins Origins
	errs    []error
}

func (l *loader) fail(key, format string, args ...any) {
	l.errs = append(l.errs, about(key, format, args...))
}

// wrong reports that the value of a key does not fit.
func (l *loader) wrong(key string, n *yaml.Node, want string) {
	l.fail(key, "%q (%s) cannot be %s: %s", key, l.from(n), quoted(key, n), want)
}

// unknown reports a key that is not in a section, whose keys are known.
func (l *loader) unknown(section, key string, n *yaml.Node, known schema) {
	var hint string
	from := l.from(n)
	switch near, keys := known.nearest(key); {
	case near == "":
		hint = ": the keys there are " + strings.Join(keys, ", ")
	case section == "" && strings.HasPrefix(from, environment):
		hint = ": did you mean " + l.prefix + strings.ToUpper(strings.ReplaceAll(near, ".", "__")) + "?"
	default:
		hint = fmt.Sprintf(": did you mean %q?", join(section, near))
	}
	key = join(section, key)
	concerns := key
	if first, _, _ := strings.Cut(key, "."); section == "" && known.find(first) < 0 {
		concerns = "" // it may be meant for any section
	}
	l.fail(concerns, "unknown key %q (%s)%s", key, from, hint)
}

// EnvPrefix is the prefix of the daemon's environment variables: TRAFFICD_SECTION__KEY. Other
// programs set Options.Prefix.
const EnvPrefix = "TRAFFICD_"

// environment begins the origins of values from environment variables.
const environment = "environment "

// parse returns the only document of a YAML file, or nil if there are only comments in it.
func parse(path string) (*yaml.Node, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, Absolute(fmt.Errorf("cannot read the configuration: %w", err))
	}
	if len(text) == 0 { // it is probably being written, and a reload would drop all keys and registry feeds
		return nil, fmt.Errorf("the configuration %s is empty; to use the defaults, put a comment in it", path)
	}
	d := yaml.NewDecoder(bytes.NewReader(text))
	var doc, next yaml.Node
	if err = d.Decode(&doc); err == nil {
		err = d.Decode(&next)
	}
	switch {
	case err != nil && !errors.Is(err, io.EOF):
		return nil, fmt.Errorf("cannot parse the configuration %s: %w", path, err)
	case len(next.Content) > 0 && next.Content[0].Tag != "!!null":
		return nil, fmt.Errorf("the configuration %s has more than one YAML document", path)
	case len(doc.Content) == 0:
		return nil, nil //nolint:nilnil // only comments
	case doc.Content[0].Kind != yaml.MappingNode && doc.Content[0].Tag != "!!null":
		return nil, fmt.Errorf("cannot parse the configuration %s: it must contain keys", path)
	}
	return doc.Content[0], nil
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
		return !ok || k.key == "" || k.key == section || strings.HasPrefix(k.key, section+".")
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

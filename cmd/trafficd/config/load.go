package config

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/knadh/koanf/providers/confmap"
	"github.com/knadh/koanf/v2"
)

// Options says where settings come from. Later ones win: the file, the
// environment, --set, the flags with a name of their own.
type Options struct {
	File    string   // YAML; empty for none
	Environ []string // as os.Environ gives it
	Set     []string // "section.key=value"
	Flags   []Flag
}

// Flag is a command line flag that stands for a key.
type Flag struct{ Name, Key, Value string }

// Origins tells for each key that was set where its value came from. Keys
// that stand at their default are not in it.
type Origins map[string]string

// Load gives the effective configuration. The error joins everything that is
// wrong, one finding a line; each names the key, where its value came from
// and, for an unknown key, the nearest known one.
func Load(o Options) (*Config, Origins, error) {
	c := Default()
	origins, err := load(&c, o)
	if err != nil {
		return nil, nil, err
	}
	c.complete()
	if err := c.validate(origins); err != nil {
		return nil, nil, err
	}
	return &c, origins, nil
}

// load fills into, a pointer to a struct that holds the defaults.
func load(into any, o Options) (Origins, error) {
	root := schemaOf(reflect.TypeOf(into).Elem(), "", "")
	settings, err := collect(o, root)
	if err != nil {
		return nil, err
	}
	k, origins := koanf.New("."), Origins{}
	var wrong []error
	for _, s := range settings {
		value, err := s.value(root)
		if err != nil {
			wrong = append(wrong, err)
			continue
		}
		if value == nil {
			continue // "key:" without a value leaves the default
		}
		if err := k.Load(confmap.Provider(nested(s.key, value), ""), nil); err != nil {
			return nil, fmt.Errorf("cannot merge %q (%s): %w", s.key, s.from, err)
		}
		origins[s.key] = s.from
	}
	if len(wrong) > 0 {
		return nil, errors.Join(wrong...)
	}
	if err := k.UnmarshalWithConf("", into, koanf.UnmarshalConf{DecoderConfig: decoder(into)}); err != nil {
		return nil, fmt.Errorf("cannot apply the configuration: %s", plain(err))
	}
	return origins, nil
}

// collect lists all settings in the order of precedence, lowest first.
func collect(o Options, root *schema) ([]setting, error) {
	var list []setting
	if o.File != "" {
		file, err := fromFile(o.File, root)
		if err != nil {
			return nil, err
		}
		list = append(list, file...)
	}
	list = append(list, fromEnviron(o.Environ, root)...)
	sets, err := fromFlags(o.Set)
	if err != nil {
		return nil, err
	}
	list = append(list, sets...)
	for _, f := range o.Flags {
		list = append(list, setting{key: f.Key, raw: f.Value, text: true, from: "--" + f.Name})
	}
	return list, nil
}

// value checks the key and gives the value that fits it.
func (s setting) value(root *schema) (any, error) {
	at := root.find(s.key)
	if at == nil {
		return nil, s.unknown(root)
	}
	if !at.leaf() {
		return nil, fmt.Errorf("%q (%s) is a section: set the keys below it, such as %s", s.key, s.from, at.children[0].key)
	}
	raw := s.raw
	if s.text {
		var err error
		if raw, err = at.fromText(raw.(string)); err != nil {
			return nil, fmt.Errorf("%q (%s) cannot be %s: %w", s.key, s.from, shown(s.key, s.raw), err)
		}
	}
	if raw == nil {
		return nil, nil
	}
	if err := at.check(raw); err != nil {
		return nil, fmt.Errorf("%q (%s) cannot be %s: %w", s.key, s.from, shown(s.key, raw), err)
	}
	return raw, nil
}

func (s setting) unknown(root *schema) error {
	hint := ""
	if near := nearest(s.key, root.keys()); near != "" {
		hint = fmt.Sprintf(": did you mean %q?", near)
		if strings.HasPrefix(s.from, "environment ") {
			hint = fmt.Sprintf(": did you mean %s?", EnvName(near))
		}
	}
	return fmt.Errorf("unknown key %q (%s)%s", s.key, s.from, hint)
}

// EnvName is the environment variable of a key.
func EnvName(key string) string {
	return EnvPrefix + strings.ToUpper(strings.ReplaceAll(key, ".", "__"))
}

// nested builds the maps around a value.
func nested(key string, value any) map[string]any {
	names := strings.Split(key, ".")
	for i := len(names) - 1; i > 0; i-- {
		value = map[string]any{names[i]: value}
	}
	return map[string]any{names[0]: value}
}

package config

import (
	"fmt"
	"os"
	"strings"

	"go.yaml.in/yaml/v3"
)

// EnvPrefix starts the name of every variable that the daemon reads:
// TRAFFICD_SECTION__KEY, where a double underscore steps into a section.
const EnvPrefix = "TRAFFICD_"

// setting is one value for one key, and where it came from.
type setting struct {
	key  string
	raw  any    // as YAML gives it
	text bool   // raw is a string that still has to be read by the key's type
	from string // for a person
}

// fromFile lists the settings of a YAML file with their lines.
func fromFile(path string, root *schema) ([]setting, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read the configuration: %w", err)
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return nil, fmt.Errorf("cannot parse the configuration %s: %w", path, err)
	}
	if len(doc.Content) == 0 { // an empty file
		return nil, nil
	}
	return fromNode(resolve(doc.Content[0]), "", path, root)
}

func fromNode(n *yaml.Node, key, path string, s *schema) ([]setting, error) {
	from := fmt.Sprintf("%s, line %d", path, n.Line)
	if s == nil || s.leaf() {
		var raw any
		if err := n.Decode(&raw); err != nil {
			return nil, fmt.Errorf("cannot parse %q (%s): %w", key, from, err)
		}
		return []setting{{key: key, raw: raw, from: from}}, nil
	}
	if n.Tag == "!!null" { // a section without content says nothing
		return nil, nil
	}
	if n.Kind != yaml.MappingNode {
		return nil, fmt.Errorf("%s (%s): want a section with keys below it, such as %s", place(key), from, s.children[0].key)
	}
	var list []setting
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, value := n.Content[i].Value, resolve(n.Content[i+1])
		if seen[name] {
			return nil, fmt.Errorf("%q (%s, line %d) stands twice", join(key, name), path, n.Content[i].Line)
		}
		seen[name] = true
		below, err := fromNode(value, join(key, name), path, s.child(name))
		if err != nil {
			return nil, err
		}
		list = append(list, below...)
	}
	return list, nil
}

func resolve(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

func place(key string) string {
	if key == "" {
		return "the document"
	}
	return fmt.Sprintf("%q", key)
}

// fromEnviron lists the settings of the environment. A variable without a
// double underscore counts only where it names a key: platforms put names
// such as TRAFFICD_PORT there by themselves.
func fromEnviron(environ []string, root *schema) []setting {
	var list []setting
	for _, line := range environ {
		name, value, _ := strings.Cut(line, "=")
		path, ours := strings.CutPrefix(name, EnvPrefix)
		if !ours {
			continue
		}
		key := strings.ToLower(strings.ReplaceAll(path, "__", "."))
		if strings.Contains(path, "__") || isLeaf(root.find(key)) || meansNesting(key, root) {
			list = append(list, setting{key: key, raw: value, text: true, from: "environment " + name})
		}
	}
	return list
}

func isLeaf(s *schema) bool { return s != nil && s.leaf() }

// meansNesting finds TRAFFICD_KAFKA_BROKERS, which was meant to be
// TRAFFICD_KAFKA__BROKERS and would otherwise be passed over in silence.
func meansNesting(key string, root *schema) bool {
	for _, known := range root.keys() {
		if key == strings.ReplaceAll(known, ".", "_") {
			return isLeaf(root.find(known))
		}
	}
	return false
}

// fromFlags lists the settings of --set key=value.
func fromFlags(sets []string) ([]setting, error) {
	var list []setting
	for _, s := range sets {
		key, value, ok := strings.Cut(s, "=")
		if !ok || key == "" {
			return nil, fmt.Errorf("--set %s: want section.key=value", s)
		}
		list = append(list, setting{key: key, raw: value, text: true, from: "--set"})
	}
	return list, nil
}

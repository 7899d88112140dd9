// Package yamlfile edits YAML files that people write: comments, blank lines and order are kept.
package yamlfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"
	"golang.org/x/sys/unix"

	"trafficd/pipeline/lib/replace"
)

// Edit replaces the file, which it creates if necessary, after change has changed its content. If
// check returns an error for the new text, the file remains. Readers see either the old file or the
// new one, which keeps the mode and owner. Edit locks the directory, because a lock on the replaced
// file would be lost: concurrent edits are serialised.
func Edit(path string, change func(root *yaml.Node) error, check func(text []byte) error) error {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer dir.Close() // releases the lock
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX); err != nil {
		return err
	}
	old, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	text, err := changed(old, change)
	if err == nil {
		err = check(text)
	}
	if err != nil {
		return err
	}
	return replace.File(path, 0o600, func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	})
}

// blank is a comment that replaces blank lines, which the parser does not keep.
const blank = "#(blank)"

func changed(old []byte, change func(root *yaml.Node) error) ([]byte, error) {
	doc, err := parse(old)
	if err != nil {
		return nil, err
	}
	if doc == nil { // empty; the parser does not keep comments without content
		root := &yaml.Node{Kind: yaml.MappingNode}
		if err := change(root); err != nil {
			return nil, err
		}
		if len(old) > 0 {
			old = append(bytes.TrimRight(old, "\n"), "\n\n"...)
		}
		return append(old, Text(root)...), nil
	}
	if !hasLines(doc) { // otherwise, a blank line may be part of a value
		var marked strings.Builder
		for line := range strings.Lines(string(old)) {
			if strings.TrimSpace(line) == "" {
				line = blank + "\n"
			}
			marked.WriteString(line)
		}
		if with, err := parse([]byte(marked.String())); err == nil {
			doc = with
		}
	}
	root := doc.Content[0]
	if root.Kind != yaml.MappingNode {
		return nil, errors.New("the file must be a mapping; check that this is the right file")
	}
	if err := change(root); err != nil {
		return nil, err
	}
	var text bytes.Buffer
	for line := range strings.Lines(Text(doc)) {
		if strings.TrimSpace(line) == blank {
			line = "\n"
		}
		text.WriteString(line)
	}
	return text.Bytes(), nil
}

// parse returns nil for a document without content.
func parse(text []byte) (*yaml.Node, error) {
	var doc, more yaml.Node
	in := yaml.NewDecoder(bytes.NewReader(text))
	err := in.Decode(&doc)
	if errors.Is(err, io.EOF) {
		return nil, nil //nolint:nilnil // there is no document
	}
	if err == nil {
		if err = in.Decode(&more); err == nil {
			return nil, errors.New("the file has several YAML documents, but only the first is read; merge them")
		}
	}
	if !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("invalid YAML (correct the file first): %w", err)
	}
	return &doc, nil
}

// hasLines reports whether a value has several lines.
func hasLines(n *yaml.Node) bool {
	for _, below := range n.Content {
		if hasLines(below) {
			return true
		}
	}
	return n.Kind == yaml.ScalarNode && strings.Contains(n.Value, "\n")
}

// List returns the list of a key, which may be in sections. It adds what is missing.
func List(root *yaml.Node, keys ...string) (*yaml.Node, error) {
	return walk(root, yaml.SequenceNode, keys)
}

// SetDefault sets a key, which may be in sections, unless it has a value.
func SetDefault(root *yaml.Node, value any, keys ...string) error {
	last := len(keys) - 1
	section, err := walk(root, yaml.MappingNode, keys[:last])
	if err != nil {
		return err
	}
	_, n := find(section, keys[last])
	if n == nil {
		n = &yaml.Node{Tag: "!!null"}
		section.Content = append(section.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: keys[last]}, n)
	}
	if n.Tag != "!!null" {
		return nil
	}
	return n.Encode(value)
}

// walk returns the value of a key, of the kind. It adds what is missing.
func walk(n *yaml.Node, last yaml.Kind, keys []string) (*yaml.Node, error) {
	for i, key := range keys {
		kind := yaml.MappingNode
		if i == len(keys)-1 {
			kind = last
		}
		name, value := find(n, key)
		if value == nil {
			value = &yaml.Node{Kind: kind}
			n.Content = append(n.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: key}, value)
		}
		if value.Tag == "!!null" { // a key without a value
			value.Kind, value.Tag, value.Value = kind, "", ""
			if value.LineComment != "" {
				name.LineComment, value.LineComment = value.LineComment, ""
			}
		}
		if value.Kind != kind {
			return nil, fmt.Errorf("`%s` must be a %s; check that this is the right file", strings.Join(keys[:i+1], "."),
				map[yaml.Kind]string{yaml.MappingNode: "section", yaml.SequenceNode: "list"}[kind])
		}
		if len(value.Content) == 0 || kind == yaml.SequenceNode {
			value.Style = 0 // [] becomes a block
		}
		n = value
	}
	return n, nil
}

// find returns a key of a mapping and its value, or nil.
func find(n *yaml.Node, key string) (name, value *yaml.Node) {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i], n.Content[i+1]
		}
	}
	return nil, nil
}

// Text returns v as YAML.
func Text(v any) string {
	var text bytes.Buffer
	out := yaml.NewEncoder(&text)
	out.SetIndent(2)
	_ = out.Encode(v) // encoding plain values to memory cannot fail
	_ = out.Close()
	return text.String()
}

package keyfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"go.yaml.in/yaml/v3"
	"golang.org/x/sys/unix"
)

// Append enters a key into the file, which is made if it is not there. Comments
// and the order of what stands in it are kept. Readers see the old file or the
// new one, never a part; of two that append at once one waits. A file keeps
// its mode and owner, so that the daemon can still read it.
func Append(path string, e Entry) error {
	file := path
	if target, err := filepath.EvalSymlinks(path); err == nil {
		file = target // the link stays a link
	}
	err := locked(filepath.Dir(file), func() error { return appendTo(file, e) })
	if err != nil {
		return fmt.Errorf("cannot add the key to %s: %w", path, err)
	}
	return nil
}

func appendTo(path string, e Entry) error {
	old, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	text, err := With(old, e)
	if err != nil {
		return err
	}
	return replace(path, text)
}

// With gives the text of a keys file with one more entry.
func With(old []byte, e Entry) ([]byte, error) {
	doc, err := parse(old)
	if err != nil {
		return nil, err
	}
	if doc.Kind == 0 {
		return first(old, e), nil
	}
	keys, err := keysOf(doc.Content[0])
	if err != nil {
		return nil, err
	}
	if hasName(keys, e.Name) {
		return nil, fmt.Errorf("there is a key named %q already: choose another --name, for a new key of the same client for example %q", e.Name, e.Name+"-2")
	}
	var entry yaml.Node
	if err := entry.Encode(e); err != nil {
		return nil, err
	}
	keys.Content = append(keys.Content, &entry)
	return encode(doc), nil
}

// parse gives the file's only document; Kind 0: there is none.
func parse(text []byte) (*yaml.Node, error) {
	var doc, more yaml.Node
	in := yaml.NewDecoder(bytes.NewReader(text))
	err := in.Decode(&doc)
	if errors.Is(err, io.EOF) {
		return &doc, nil
	}
	if err != nil {
		return nil, fmt.Errorf("the file is not valid YAML, mend it first: %w", err)
	}
	if err := in.Decode(&more); !errors.Is(err, io.EOF) {
		return nil, errors.New("the file has several YAML documents: the daemon reads one, join them first")
	}
	return &doc, nil
}

// first puts the first entry under a file without content. Its comments are
// kept as text, for the parser drops them.
func first(old []byte, e Entry) []byte {
	text := bytes.TrimRight(bytes.Clone(old), "\n")
	if len(text) > 0 {
		text = append(text, '\n')
	}
	return append(text, encode(struct {
		Keys []Entry `yaml:"keys"`
	}{[]Entry{e}})...)
}

// keysOf gives the sequence `keys`, new if there is none.
func keysOf(root *yaml.Node) (*yaml.Node, error) {
	if root.Kind != yaml.MappingNode {
		return nil, errors.New("the file is no mapping with the key `keys`: is it the right file?")
	}
	for i := 0; i+1 < len(root.Content); i += 2 {
		if root.Content[i].Value != "keys" {
			continue
		}
		list := root.Content[i+1]
		if list.Tag == "!!null" { // `keys:` with nothing below
			list.Kind, list.Tag, list.Value = yaml.SequenceNode, "", ""
			if list.LineComment != "" {
				root.Content[i].LineComment, list.LineComment = list.LineComment, ""
			}
		}
		if list.Kind != yaml.SequenceNode {
			return nil, errors.New("`keys` is no list: is it the right file?")
		}
		list.Style = 0 // `keys: []` becomes a block with the first entry
		return list, nil
	}
	list := &yaml.Node{Kind: yaml.SequenceNode}
	root.Content = append(root.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: "keys"}, list)
	return list, nil
}

func hasName(keys *yaml.Node, name string) bool {
	for _, entry := range keys.Content {
		var e struct{ Name string }
		if entry.Decode(&e) == nil && e.Name == name {
			return true
		}
	}
	return false
}

// Text gives an entry as it stands in the file.
func (e Entry) Text() string { return string(encode([]Entry{e})) }

func encode(v any) []byte {
	var text bytes.Buffer
	out := yaml.NewEncoder(&text)
	out.SetIndent(2)
	_ = out.Encode(v) // plain values into memory: it cannot fail
	_ = out.Close()
	return text.Bytes()
}

// replace writes a new file and puts it in the old one's place.
func replace(path string, text []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".keys-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // does nothing once it is renamed
	err = likeBefore(f, path)
	if err == nil {
		_, err = f.Write(text)
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// likeBefore gives the new file the mode and owner of the old one.
func likeBefore(f *os.File, path string) error {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // CreateTemp's 0600 is right for a new one
	}
	if err != nil {
		return err
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); ok && (int(owner.Uid) != os.Geteuid() || int(owner.Gid) != os.Getegid()) {
		if err := f.Chown(int(owner.Uid), int(owner.Gid)); err != nil {
			return fmt.Errorf("cannot keep the file's owner, run this as that user: %w", err)
		}
	}
	return f.Chmod(info.Mode().Perm())
}

// locked runs f while no other process does so for the same directory. The
// lock is on the directory since the file itself is replaced.
func locked(dir string, f func() error) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close() // which gives the lock back
	if err := unix.Flock(int(d.Fd()), unix.LOCK_EX); err != nil {
		return err
	}
	if err := f(); err != nil {
		return err
	}
	return d.Sync() // the new name survives a power cut
}

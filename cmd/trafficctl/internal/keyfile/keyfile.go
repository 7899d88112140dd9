// Package keyfile creates API keys and edits the daemon's keys file (contract 1.4). The file
// contains SHA-256 digests, never keys.
package keyfile

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"go.yaml.in/yaml/v3"
	"golang.org/x/sys/unix"

	"trafficd/pipeline/lib/replace"
	"trafficd/sources/api"
)

// NewKey returns a key of 256 random bits. Because it cannot be guessed, a plain digest protects it
// as well as a slow hash would. The prefix makes it recognisable to people and to secret scanners.
func NewKey() string {
	secret := make([]byte, 32)
	rand.Read(secret) // never fails
	return "tfd_" + base64.RawURLEncoding.EncodeToString(secret)
}

// Digest returns the SHA-256 digest of a key in hex.
func Digest(key string) string {
	return fmt.Sprintf("%x", sha256.Sum256([]byte(key)))
}

// Read returns the entries of a keys file. If the daemon cannot use them, Read returns them with an
// error.
func Read(path string) (entries []api.KeyEntry, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read the keys file: %w", err)
	}
	if entries, err = api.ParseKeys(text); err != nil {
		err = fmt.Errorf("the daemon cannot use the keys file %s: %w", path, err)
	}
	return entries, err
}

// Append adds a key to the file, which it creates if necessary. Comments and order are kept.
// Readers see either the old file or the new one, and concurrent edits are serialised. The file
// keeps its mode and owner, so that the daemon can still read it.
func Append(path string, e api.KeyEntry) error {
	err := edit(path, func(keys *yaml.Node) error {
		if slices.ContainsFunc(keys.Content, named(e.Name)) {
			return fmt.Errorf("a key named %q already exists; choose another --name, for example %q", e.Name, e.Name+"-2")
		}
		var entry yaml.Node
		keys.Content = append(keys.Content, &entry)
		return entry.Encode(e)
	})
	if err != nil {
		return fmt.Errorf("cannot add the key to %s: %w", path, err)
	}
	return nil
}

// Revoke removes the key with the given name from the file. An unknown name is an error.
func Revoke(path, name string) error {
	if _, err := os.Stat(path); err != nil {
		return fmt.Errorf("cannot revoke the key: %w", err)
	}
	err := edit(path, func(keys *yaml.Node) error {
		if !slices.ContainsFunc(keys.Content, named(name)) {
			return fmt.Errorf("no key is named %q; run `trafficctl key list` to see the names", name)
		}
		keys.Content = slices.DeleteFunc(keys.Content, named(name)) // several if the file was edited by hand
		return nil
	})
	if err != nil {
		return fmt.Errorf("cannot revoke the key in %s: %w", path, err)
	}
	return nil
}

// edit rewrites the file after apply has changed the items of its `keys` list, unless the daemon
// could not use the result: its previous keys would stay in use. edit locks the directory, because
// a lock on the replaced file would be lost.
func edit(path string, apply func(keys *yaml.Node) error) (err error) {
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
	text, err := change(old, apply)
	if err != nil {
		return err
	}
	if _, err := api.ParseKeys(text); err != nil {
		return fmt.Errorf("the daemon could not use the new file; correct the file first: %w", err)
	}
	return replace.File(path, 0o600, func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	})
}

// named returns a function that reports whether an entry has the given name.
func named(name string) func(entry *yaml.Node) bool {
	return func(entry *yaml.Node) bool {
		var e struct{ Name string }
		return entry.Decode(&e) == nil && e.Name == name
	}
}

// change returns the text of a keys file after apply has changed the items of the `keys` list. It
// adds the list if it is missing.
func change(old []byte, apply func(keys *yaml.Node) error) ([]byte, error) {
	var doc, more yaml.Node
	in := yaml.NewDecoder(bytes.NewReader(old))
	switch err := in.Decode(&doc); {
	case errors.Is(err, io.EOF): // empty; the parser does not keep comments without content
		return change(append(bytes.Clone(old), "\nkeys: []\n"...), apply)
	case err != nil:
		return nil, fmt.Errorf("invalid YAML (correct the file first): %w", err)
	}
	if err := in.Decode(&more); !errors.Is(err, io.EOF) {
		return nil, errors.New("the file has several YAML documents, but the daemon reads only the first; merge them")
	}
	root := doc.Content[0]
	if root.Kind != yaml.MappingNode {
		return nil, errors.New("the file must be a mapping with the key `keys`; check that this is the right file")
	}
	at := 0 // index of the `keys` key in root.Content; its value follows it
	for at < len(root.Content) && root.Content[at].Value != "keys" {
		at += 2
	}
	if at == len(root.Content) {
		root.Content = append(root.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: "keys"}, &yaml.Node{Kind: yaml.SequenceNode})
	}
	keys := root.Content[at+1]
	if keys.Tag == "!!null" { // `keys:` without a value
		keys.Kind, keys.Tag, keys.Value = yaml.SequenceNode, "", ""
		if keys.LineComment != "" {
			root.Content[at].LineComment, keys.LineComment = keys.LineComment, ""
		}
	}
	if keys.Kind != yaml.SequenceNode {
		return nil, errors.New("`keys` must be a list; check that this is the right file")
	}
	keys.Style = 0 // `keys: []` becomes a block
	if err := apply(keys); err != nil {
		return nil, err
	}
	return encode(&doc), nil
}

// Text returns an entry in the format of the keys file.
func Text(e api.KeyEntry) string { return string(encode([]api.KeyEntry{e})) }

func encode(v any) []byte {
	var text bytes.Buffer
	out := yaml.NewEncoder(&text)
	out.SetIndent(2)
	_ = out.Encode(v) // encoding plain values to memory cannot fail
	_ = out.Close()
	return text.Bytes()
}

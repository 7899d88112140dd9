// Package keyfile creates API keys and edits the daemon's keys file (contract 1.4). The file contains
// SHA-256 digests, never keys.
package keyfile

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"go.yaml.in/yaml/v3"
	"golang.org/x/sys/unix"
)

// Prefix identifies a key to people and to secret scanners.
const Prefix = "tfd_"

// Rights are the rights that a key can have.
var Rights = []string{"ingest", "forecast", "routing"}

// NewKey returns a key of 256 random bits. It cannot be guessed, so a plain digest protects it as well as
// a slow one would.
func NewKey() string {
	secret := make([]byte, 32)
	rand.Read(secret) // never fails
	return Prefix + base64.RawURLEncoding.EncodeToString(secret)
}

// Digest returns the SHA-256 digest of a key in hex.
func Digest(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:])
}

// Entry is one key in the file. Zero means no rate limit and no expiry.
type Entry struct {
	Name              string    `yaml:"name"`
	SHA256            string    `yaml:"sha256"`
	ProductInstance   string    `yaml:"product_instance"`
	Rights            []string  `yaml:"rights,flow"`
	Timezone          string    `yaml:"timezone,omitempty"`
	RequestsPerSecond float64   `yaml:"requests_per_second,omitempty"`
	ItemsPerSecond    float64   `yaml:"items_per_second,omitempty"`
	Expires           time.Time `yaml:"expires,omitempty"`
}

// Validate returns an error for the first invalid field, by its flag's name.
func (e Entry) Validate() error {
	switch {
	case strings.TrimSpace(e.Name) == "":
		return errors.New("--name is required: logs and metrics show it instead of the key")
	case strings.TrimSpace(e.ProductInstance) == "":
		return errors.New("--product-instance is required: the key's measurements belong to it")
	case len(e.Rights) == 0:
		return fmt.Errorf("--rights is required: list some of %v", Rights)
	case !validRate(e.RequestsPerSecond):
		return fmt.Errorf("--requests-per-second %g must be 0 for no limit, or at least %g", e.RequestsPerSecond, minRate)
	case !validRate(e.ItemsPerSecond):
		return fmt.Errorf("--items-per-second %g must be 0 for no limit, or at least %g", e.ItemsPerSecond, minRate)
	}
	for _, right := range e.Rights {
		if right == "admin" {
			return fmt.Errorf("--rights admin was removed, because it allowed nothing: leave it out, and list some of %v", Rights)
		}
		if !slices.Contains(Rights, right) {
			return fmt.Errorf("--rights %q must be one of %v", right, Rights)
		}
	}
	if _, err := time.LoadLocation(e.Timezone); err != nil || e.Timezone == "Local" {
		return fmt.Errorf("--timezone %q must be an IANA time zone such as UTC or Europe/Copenhagen", e.Timezone)
	}
	return nil
}

// minRate is the lowest limit that the daemon accepts.
const minRate = 0.001

func validRate(r float64) bool { return r == 0 || (r >= minRate && !math.IsInf(r, 0)) }

// Read returns the entries of a keys file.
func Read(path string) ([]Entry, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read the keys file: %w", err)
	}
	var file struct{ Keys []Entry }
	if err := yaml.Unmarshal(text, &file); err != nil {
		return nil, fmt.Errorf("cannot read the keys file %s: %w", path, err)
	}
	return file.Keys, nil
}

// Append adds a key to the file, which it creates if necessary. Comments and order are kept. Readers
// see the old file or the new one, and concurrent edits are serialised. The file keeps its mode and
// owner, so that the daemon can still read it.
func Append(path string, e Entry) error {
	err := edit(path, func(old []byte) ([]byte, error) { return With(old, e) })
	if err != nil {
		return fmt.Errorf("cannot add the key to %s: %w", path, err)
	}
	return nil
}

// Revoke removes the key of that name from the file.
func Revoke(path, name string) error {
	if _, err := os.Stat(path); err != nil {
		return fmt.Errorf("cannot revoke the key: %w", err)
	}
	err := edit(path, func(old []byte) ([]byte, error) { return without(old, name) })
	if err != nil {
		return fmt.Errorf("cannot revoke the key in %s: %w", path, err)
	}
	return nil
}

// edit replaces the file's content. The lock is on the directory, because the file itself is replaced.
func edit(path string, change func(old []byte) ([]byte, error)) error {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target // a link stays a link
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer dir.Close() // which releases the lock
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX); err != nil {
		return err
	}
	old, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	text, err := change(old)
	if err != nil {
		return err
	}
	if err := replace(path, text); err != nil {
		return err
	}
	return dir.Sync() // makes the rename durable
}

// replace writes a new file with the mode and owner of the old one and renames it.
func replace(path string, text []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".keys-*") // mode 0600, which is right for a new file
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // does nothing after the rename
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		err = nil
	case err == nil:
		owner, ok := info.Sys().(*syscall.Stat_t)
		if ok && (int(owner.Uid) != os.Geteuid() || int(owner.Gid) != os.Getegid()) {
			if err = f.Chown(int(owner.Uid), int(owner.Gid)); err != nil {
				err = fmt.Errorf("cannot keep the file's owner; run this as that user: %w", err)
			}
		}
		err = errors.Join(err, f.Chmod(info.Mode().Perm()))
	}
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

// With returns the text of a keys file with another entry.
func With(old []byte, e Entry) ([]byte, error) {
	doc, err := parse(old)
	if err == nil && doc.Kind == 0 { // no content: the parser drops comments, so keep them as text
		text := bytes.TrimRight(bytes.Clone(old), "\n")
		if len(text) > 0 {
			text = append(text, '\n')
		}
		return append(text, encode(map[string][]Entry{"keys": {e}})...), nil
	}
	return withKeys(doc, err, func(keys *yaml.Node) error {
		if indexOf(keys, e.Name) >= 0 {
			return fmt.Errorf("a key named %q already exists; choose another --name, for example %q", e.Name, e.Name+"-2")
		}
		var entry yaml.Node
		keys.Content = append(keys.Content, &entry)
		return entry.Encode(e)
	})
}

// without returns the text of a keys file without an entry.
func without(old []byte, name string) ([]byte, error) {
	doc, err := parse(old)
	if err == nil && doc.Kind == 0 {
		return nil, errors.New("the file contains no keys")
	}
	return withKeys(doc, err, func(keys *yaml.Node) error {
		i := indexOf(keys, name)
		if i < 0 {
			return fmt.Errorf("no key is named %q; trafficctl key list shows the names", name)
		}
		keys.Content = slices.Delete(keys.Content, i, i+1)
		return nil
	})
}

// withKeys returns the text of a document, unless err is set, after change has changed its keys.
func withKeys(doc *yaml.Node, err error, change func(keys *yaml.Node) error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	keys, err := keysOf(doc.Content[0])
	if err != nil {
		return nil, err
	}
	if err := change(keys); err != nil {
		return nil, err
	}
	return encode(doc), nil
}

// parse returns the file's document. Its Kind is 0 if the file has no content.
func parse(text []byte) (*yaml.Node, error) {
	var doc, more yaml.Node
	in := yaml.NewDecoder(bytes.NewReader(text))
	err := in.Decode(&doc)
	if errors.Is(err, io.EOF) {
		return &doc, nil
	}
	if err != nil {
		return nil, fmt.Errorf("invalid YAML; correct the file first: %w", err)
	}
	if err := in.Decode(&more); !errors.Is(err, io.EOF) {
		return nil, errors.New("the file has several YAML documents; the daemon reads one, so join them first")
	}
	return &doc, nil
}

// keysOf returns the sequence `keys`, which it adds if it is missing.
func keysOf(root *yaml.Node) (*yaml.Node, error) {
	if root.Kind != yaml.MappingNode {
		return nil, errors.New("the file must be a mapping with the key `keys`; check its name")
	}
	for i := 0; i+1 < len(root.Content); i += 2 {
		if root.Content[i].Value != "keys" {
			continue
		}
		list := root.Content[i+1]
		if list.Tag == "!!null" { // `keys:` without a value
			list.Kind, list.Tag, list.Value = yaml.SequenceNode, "", ""
			if list.LineComment != "" {
				root.Content[i].LineComment, list.LineComment = list.LineComment, ""
			}
		}
		if list.Kind != yaml.SequenceNode {
			return nil, errors.New("`keys` must be a list; check the file's name")
		}
		list.Style = 0 // `keys: []` becomes a block
		return list, nil
	}
	list := &yaml.Node{Kind: yaml.SequenceNode}
	root.Content = append(root.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: "keys"}, list)
	return list, nil
}

func indexOf(keys *yaml.Node, name string) int {
	return slices.IndexFunc(keys.Content, func(entry *yaml.Node) bool {
		var e struct{ Name string }
		return entry.Decode(&e) == nil && e.Name == name
	})
}

// Text returns the entry in the file's format.
func (e Entry) Text() string { return string(encode([]Entry{e})) }

func encode(v any) []byte {
	var text bytes.Buffer
	out := yaml.NewEncoder(&text)
	out.SetIndent(2)
	_ = out.Encode(v) // plain values into memory: cannot fail
	_ = out.Close()
	return text.Bytes()
}

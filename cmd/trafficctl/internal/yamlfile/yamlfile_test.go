package yamlfile

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

func edited(t *testing.T, old string, change func(root *yaml.Node) error) (string, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file.yaml")
	if old != "" {
		require.NoError(t, os.WriteFile(path, []byte(old), 0o640))
	}
	failed := Edit(path, change, func([]byte) error { return nil })
	text, err := os.ReadFile(path)
	if failed == nil {
		require.NoError(t, err)
	}
	return string(text), failed
}

// add adds an entry to the list a.b and sets a.c.
func add(root *yaml.Node) error {
	list, err := List(root, "a", "b")
	if err != nil {
		return err
	}
	list.Content = append(list.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: "new"})
	return SetDefault(root, 5, "a", "c")
}

func TestEdit(t *testing.T) {
	f := func(old, want string) {
		t.Helper()
		got, err := edited(t, old, add)
		require.NoError(t, err, old)
		require.Equal(t, want, got)
	}
	const added = "a:\n  b:\n    - new\n  c: 5\n"
	f("", added)
	f("# ours\n\n", "# ours\n\n"+added)
	f("a:\n", added)
	f("a: {}\n", added)
	f("a:\n  b: # none yet\n", "a:\n  b: # none yet\n    - new\n  c: 5\n")
	f("x: 1 # one\n\n\n# two\na:\n\n  c: null\n  b: [old]\n\nz: 2\n", "x: 1 # one\n\n\n# two\na:\n\n  c: 5\n  b:\n    - old\n    - new\n\nz: 2\n")
	f("a: {c: 7, b: [old]} # kept\n", "a: {c: 7, b: [old, new]} # kept\n")
	f("text: |\n  one\n\n  two\na: {b: [], c: 1}\n", "text: |\n  one\n\n  two\na: {b: [new], c: 1}\n")
	f("text: one\n\n  two\n\na: {b: [], c: 1}\n", "text: |-\n  one\n  two\na: {b: [new], c: 1}\n")
}

func TestEditRefuses(t *testing.T) {
	f := func(old, want string) {
		t.Helper()
		got, err := edited(t, old, add)
		require.ErrorContains(t, err, want)
		require.Equal(t, old, got)
	}
	f("a: 1\n", "`a` must be a section")
	f("a: {b: {}}\n", "`a.b` must be a list")
	f("- a\n", "must be a mapping")
	f("a: [\n", "invalid YAML")
	f("a: {}\n---\na: {}\n", "several YAML documents")
	path := filepath.Join(t.TempDir(), "new.yaml")
	errCheck := errors.New("not this")
	require.ErrorIs(t, Edit(path, add, func([]byte) error { return errCheck }), errCheck)
	require.NoFileExists(t, path)
}

package keyfile

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"trafficd/sources/api"
)

func entry(name string) api.KeyEntry {
	return api.KeyEntry{Name: name, SHA256: Digest(name), ProductInstance: "north", Rights: []string{"ingest"}, Timezone: "UTC"}
}

// read parses a keys file as the daemon does.
func read(t testing.TB, text string) []api.KeyEntry {
	var file struct{ Keys []api.KeyEntry }
	require.NoError(t, yaml.Unmarshal([]byte(text), &file))
	return file.Keys
}

// added returns the content of a keys file after adding an entry.
func added(t testing.TB, old string) (string, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "keys.yaml")
	require.NoError(t, os.WriteFile(path, []byte(old), 0o600))
	failed := Append(path, entry("new"))
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(text), failed
}

func TestNewKey(t *testing.T) {
	a, b := NewKey(), NewKey()
	require.NotEqual(t, a, b)
	require.Regexp(t, `^tfd_[A-Za-z0-9_-]{43}$`, a)
}

// TestDigest checks that the digest is the plain SHA-256 that sha256sum prints.
func TestDigest(t *testing.T) {
	require.Equal(t, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad", Digest("abc"))
}

// item returns an entry as it may be written by hand.
func item(name string) string {
	return fmt.Sprintf("{name: %s, sha256: %q, product_instance: north, rights: [ingest]}", name, Digest(name))
}

func TestAppend(t *testing.T) {
	f := func(old string, names ...string) {
		t.Helper()
		text, err := added(t, old)
		require.NoError(t, err, old)
		var got []string
		for _, e := range read(t, text) {
			got = append(got, e.Name)
		}
		require.Equal(t, append(names, "new"), got, text)
		for line := range strings.Lines(old) {
			if _, comment, ok := strings.Cut(line, "#"); ok {
				require.Contains(t, text, "#"+strings.TrimRight(comment, "\n"))
			}
		}
	}
	f("")
	f("# only a comment")
	f("# only a comment\n\n")
	f("keys:\n")
	f("keys: []\n")
	f("keys: null # none yet\n")
	f("keys: # none yet\n")
	f("keys:\n  # none yet\n")
	f("keys:\n  - "+item("old")+" # the first\n", "old")
	f("# top\nkeys:\n# above\n- "+item("a")+"\n\n# between\n- "+item("b")+"\n# bottom\n", "a", "b")
	f("keys: ["+item("a")+"]\n", "a")
}

// TestAppendToInvalidFile checks that a file that the daemon cannot use is not changed.
func TestAppendToInvalidFile(t *testing.T) {
	f := func(old, want string) {
		t.Helper()
		text, err := added(t, old)
		require.ErrorContains(t, err, "keys.yaml: ")
		require.ErrorContains(t, err, want)
		require.Equal(t, old, text)
	}
	f("keys:\n  - name: new\n", "already")
	f("keys: 5\n", "must be a list")
	f("- name: a\n", "must be a mapping")
	f("keys: [\n", "YAML")
	f("keys: []\n---\nkeys: []\n", "several")
	f("keys: []\nkey: []\n", "field key not found")
	f("keys:\n  - "+strings.Replace(item("a"), "rights", "right", 1)+"\n", "field right not found")
	f("keys:\n  - "+strings.Replace(item("a"), "ingest", "everything", 1)+"\n", `unknown right "everything"`)
}

// TestRevoke checks that no entry has the name afterwards, and that the file is not changed if the
// daemon could not use the result: it would continue to accept the key.
func TestRevoke(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys.yaml")
	f := func(old, want string) {
		t.Helper()
		require.NoError(t, os.WriteFile(path, []byte(old), 0o600))
		err := Revoke(path, "a")
		text, readErr := os.ReadFile(path)
		require.NoError(t, readErr)
		if want != "" {
			require.ErrorContains(t, err, want)
			require.Equal(t, old, string(text))
			return
		}
		require.NoError(t, err)
		entries := read(t, string(text))
		require.Len(t, entries, 1)
		require.Equal(t, "b", entries[0].Name)
	}
	f("keys:\n- "+item("a")+"\n- "+item("b")+"\n", "")
	f("keys:\n- "+item("a")+"\n- "+item("b")+"\n- "+strings.Replace(item("c"), "name: c", "name: a", 1)+"\n", "")
	f("keys:\n- "+strings.Replace(item("a"), "rights", "right", 1)+"\n- "+item("b")+"\n", "")
	f("keys:\n- &a "+item("a")+"\n- {<<: *a, name: b, sha256: "+Digest("b")+"}\n", "unknown anchor")
	f("keys:\n- "+item("a")+"\n- "+strings.Replace(item("b"), "rights", "right", 1)+"\n", "field right not found")
}

// TestEntryText checks that a digest that looks like a number is still read as text.
func TestEntryText(t *testing.T) {
	e := entry("n")
	for _, digest := range []string{strings.Repeat("1", 64), "1e" + strings.Repeat("0", 62), "0x" + strings.Repeat("1", 62)} {
		e.SHA256 = digest
		require.Equal(t, []api.KeyEntry{e}, read(t, "keys:\n"+Text(e)))
	}
}

// TestAppendConcurrently checks that concurrent edits lose no key, even through a symbolic link in
// another directory.
func TestAppendConcurrently(t *testing.T) {
	path, link := filepath.Join(t.TempDir(), "keys.yaml"), filepath.Join(t.TempDir(), "link.yaml")
	require.NoError(t, Append(path, entry("first")))
	require.NoError(t, os.Symlink(path, link))
	var all sync.WaitGroup
	for i := range 40 {
		all.Go(func() {
			if err := Append([]string{path, link}[i%2], entry(fmt.Sprintf("k%d", i))); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Len(t, read(t, string(text)), 41)
	left, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	require.Len(t, left, 1, "no temporary file is left")
}

func TestAppendKeepsModeAndLink(t *testing.T) {
	dir := t.TempDir()
	path, link := filepath.Join(dir, "real.yaml"), filepath.Join(dir, "link.yaml")
	require.NoError(t, Append(path, entry("a")))
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode())
	require.NoError(t, os.Chmod(path, 0o640))
	require.NoError(t, os.Symlink(path, link))
	require.NoError(t, Append(link, entry("b")))
	info, err = os.Lstat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o640), info.Mode())
	info, err = os.Lstat(link)
	require.NoError(t, err)
	require.NotZero(t, info.Mode()&os.ModeSymlink)
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Len(t, read(t, string(text)), 2)
}

// TestRename checks that a key keeps its client and its digest, and that comments are kept.
func TestRename(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys.yaml")
	f := func(old, client string) {
		t.Helper()
		require.NoError(t, os.WriteFile(path, []byte(old), 0o600))
		before := read(t, old)[0]
		require.NoError(t, Rename(path, "a", "b"))
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Contains(t, string(text), "# the first")
		before.Name, before.Client = "b", client
		require.Equal(t, before, read(t, string(text))[0])
	}
	f("keys:\n  - "+item("a")+" # the first\n  - "+item("c")+"\n", "a")
	f("# the first\nkeys:\n  - "+strings.Replace(item("a"), "rights", "client: owner, rights", 1)+"\n", "owner")
	require.NoError(t, os.WriteFile(path, []byte("keys: ["+item("a")+", "+item("b")+"]\n"), 0o600))
	require.ErrorContains(t, Rename(path, "a", "b"), `a key named "b" already exists`)
	require.ErrorContains(t, Rename(path, "c", "d"), `no key is named "c"`)
	require.ErrorContains(t, Rename(path+".none", "c", "d"), "no such file")
}

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"trafficd/cmd/trafficctl/internal/keyfile"
)

var keyFlags = []string{"key", "new", "--product-instance", "north", "--rights", "ingest,forecast", "--timezone", "Europe/Copenhagen", "--items-per-second", "100000"}

// The entry has the digest of the key on the first line, and not the key.
func TestKeyNew(t *testing.T) {
	r := runWith(t, "", append(keyFlags, "--name", "acme")...)
	require.Zero(t, r.code, r.err)
	key, entry, ok := strings.Cut(r.out, "\n\n")
	require.True(t, ok)
	require.Contains(t, entry, "sha256: "+keyfile.Digest(key))
	require.NotContains(t, entry, key)
	for _, line := range []string{"- name: acme", "product_instance: north", "rights: [ingest, forecast]", "timezone: Europe/Copenhagen", "items_per_second: 100000"} {
		require.Contains(t, entry, line)
	}
	require.NotContains(t, entry, "requests_per_second", "no limit needs no line")
}

// With a file, only the key is printed, so that it can be piped into one.
func TestKeyNewFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys.yaml")
	first := runWith(t, "", append(keyFlags, "--file", path, "--name", "a")...)
	second := runWith(t, "", append(keyFlags, "--file", path, "--name", "b")...)
	require.Zero(t, first.code+second.code, first.err+second.err)
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	for _, r := range []ran{first, second} {
		require.Contains(t, string(text), keyfile.Digest(strings.TrimSpace(r.out)))
		require.NotContains(t, string(text), strings.TrimSpace(r.out))
		require.NotContains(t, r.err, strings.TrimSpace(r.out))
	}
	third := runWith(t, "", append(keyFlags, "--file", path, "--name", "b")...)
	require.Equal(t, exitFailed, third.code)
	require.Empty(t, third.out, "no key is shown that is in no file")
}

func TestKeyNewBadFlags(t *testing.T) {
	r := runWith(t, "", "key", "new", "--name", "a", "--product-instance", "p", "--rights", "everything")
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.err, "everything")
	require.Empty(t, r.out)
}

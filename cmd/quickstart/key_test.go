package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"trafficd/cmd/internal/launch"
)

// TestMakeKeyKeepsEdits checks that a later start never removes or changes what the user has
// written to keys.yaml.
func TestMakeKeyKeepsEdits(t *testing.T) {
	q := &quickstart{root: t.TempDir(), options: options{dir: t.TempDir()}}
	require.NoError(t, launch.Build(t.Context(), "-o", q.bin("trafficctl"), "./cmd/trafficctl"))
	start := func() (key string) {
		t.Helper()
		require.NoError(t, q.makeKey(t.Context()))
		header, err := os.ReadFile(filepath.Join(q.dir, headerFile))
		require.NoError(t, err)
		require.Equal(t, "Authorization: apiKey "+q.key+"\n", string(header))
		return q.key
	}
	read := func() string {
		t.Helper()
		text, err := os.ReadFile(q.path(keysFile))
		require.NoError(t, err)
		return string(text)
	}
	write := func(text string) {
		t.Helper()
		require.NoError(t, os.WriteFile(q.path(keysFile), []byte(text), 0o600))
	}

	first := start()
	edited := "# our keys\n" + read() + "  # of the office\n  - name: office\n    sha256: " + strings.Repeat("0a", 32) +
		"\n    product_instance: quickstart\n    rights: [ingest]\n"
	write(edited)
	require.Equal(t, first, start())
	require.Equal(t, edited, read(), "nothing to change")

	withoutRight := strings.Replace(edited, "forecast", "ingest", 1)
	require.NotEqual(t, edited, withoutRight)
	write(withoutRight)
	second := start()
	require.NotEqual(t, first, second, "the commands need a key with all rights")
	for _, line := range strings.Split(strings.TrimSpace(withoutRight), "\n") {
		require.Contains(t, read(), strings.TrimSpace(line))
	}
	require.Contains(t, read(), "quickstart-2")
	now := read()
	require.Equal(t, second, start())
	require.Equal(t, now, read())

	write("keys: [")
	require.ErrorContains(t, q.makeKey(t.Context()), "cannot read")
	require.Equal(t, "keys: [", read())
}

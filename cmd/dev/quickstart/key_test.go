package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"trafficd/cmd/dev/launch"
)

// TestMakeKey checks that a later start uses the same key and does not change keys.yaml.
func TestMakeKey(t *testing.T) {
	trafficctl, err := launch.Program(t.Context(), "trafficctl")
	require.NoError(t, err)
	q := &quickstart{programs: filepath.Dir(trafficctl), options: options{dir: t.TempDir()}}
	require.NoError(t, q.makeKey(t.Context()))
	key := q.key
	header, err := os.ReadFile(q.path(headerFile))
	require.NoError(t, err)
	require.Equal(t, "Authorization: apiKey "+key+"\n", string(header))
	require.NoError(t, os.WriteFile(q.path(keysFile), []byte("edited"), 0o600))

	q.key = ""
	require.NoError(t, q.makeKey(t.Context()))
	require.Equal(t, key, q.key)
	keys, err := os.ReadFile(q.path(keysFile))
	require.NoError(t, err)
	require.Equal(t, "edited", string(keys))
}

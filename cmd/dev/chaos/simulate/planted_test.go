package main

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPlanted checks that the patches with the planted bugs fit the code.
func TestPlanted(t *testing.T) {
	t.Chdir("../../../..")
	patches, err := filepath.Glob("cmd/dev/chaos/simulate/testdata/planted/*.patch")
	require.NoError(t, err)
	require.NotEmpty(t, patches)
	for _, patch := range patches {
		_, err := plant(t.Context(), t.TempDir(), patch)
		require.NoError(t, err)
	}
}

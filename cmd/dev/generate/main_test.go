package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTables checks that the tables of codes, states of health and columns are up to date; make
// generate-check also checks the settings.
func TestTables(t *testing.T) {
	for path, generate := range map[string]func(string) ([]byte, error){
		contractPath: contractTables, openAPIPath: openAPICodes, archivePath: archiveTables,
	} {
		old, err := os.ReadFile(filepath.Join("../../..", path))
		require.NoError(t, err)
		text, err := generate(string(old))
		require.NoError(t, err)
		require.Equal(t, string(text), string(old), "run make generate")
		_, err = generate("")
		require.ErrorContains(t, err, "cannot find")
	}
}

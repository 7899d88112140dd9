package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var planted = flag.Duration("planted", 0, "plant each bug of testdata/planted and look for it for this long; 0 for none")

const root = "../../../.." // of the repository

// TestPlanted builds the simulation with one bug after the other, and expects that it finds each.
func TestPlanted(t *testing.T) {
	patches, err := filepath.Glob("testdata/planted/*.patch")
	require.NoError(t, err)
	require.NotEmpty(t, patches)
	for _, patch := range patches {
		t.Run(strings.TrimSuffix(filepath.Base(patch), ".patch"), func(t *testing.T) {
			overlay := plant(t, patch)
			if *planted == 0 {
				return // the patches still fit
			}
			program := filepath.Join(t.TempDir(), "simulate")
			out, err := exec.Command("go", "test", "-c", "-overlay", overlay, "-o", program, ".").CombinedOutput()
			require.NoError(t, err, string(out))
			began := time.Now()
			search := exec.Command(program, "-test.run", "^TestSimulate$", "-test.v", "-test.timeout", (*planted + 2**patience).String(),
				"-hours", "100", "-seed", "1", "-shrink", patience.String())
			stop := time.AfterFunc(*planted+*patience, func() { _ = search.Process.Kill() })
			defer stop.Stop()
			out, err = search.CombinedOutput()
			require.Error(t, err, "the simulation does not find the bug")
			found := regexp.MustCompile(`found after .*|wrong: .*|shortest schedule found has .*|fatal error: .*|panic: .*`).FindAll(out, 5)
			require.NotEmpty(t, found, "not found in %s", time.Since(began))
			t.Logf("%s", bytes.Join(found, []byte("; ")))
		})
	}
}

// plant writes the file with the bug, and returns the overlay for the go command that contains it.
func plant(t *testing.T, patch string) (overlay string) {
	text, err := os.ReadFile(patch)
	require.NoError(t, err)
	name := string(regexp.MustCompile(`(?m)^\+\+\+ b/(\S+)`).FindSubmatch(text)[1])
	dir := t.TempDir()
	file := filepath.Join(dir, name)
	require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
	original, err := filepath.Abs(filepath.Join(root, name))
	require.NoError(t, err)
	source, err := os.ReadFile(original)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, source, 0o644))
	apply := exec.Command("git", "apply", "-p1", "-")
	apply.Dir, apply.Stdin, apply.Env = dir, bytes.NewReader(text), append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(dir))
	out, err := apply.CombinedOutput()
	require.NoError(t, err, "%s does not fit: %s", patch, out)
	changed, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NotEqual(t, source, changed, "%s changes nothing", patch)
	encoded, err := json.Marshal(map[string]any{"Replace": map[string]string{original: file}})
	require.NoError(t, err)
	overlay = filepath.Join(dir, "overlay.json")
	require.NoError(t, os.WriteFile(overlay, encoded, 0o644))
	return overlay
}

package clients

import (
	"context"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"trafficd/cmd/dev/conformance/foreign"
	"trafficd/cmd/dev/daemontest"

	"github.com/stretchr/testify/require"

	"trafficd/cmd/dev/needs"
)

// TestSchemathesis sends requests that schemathesis generates from the running daemon's OpenAPI
// document, and checks the responses against the document. schemathesis.toml lists what is
// accepted, and why.
func TestSchemathesis(t *testing.T) {
	needs.Everything(t, "schemathesis")
	d := daemontest.Examples(t, "layers.query_key=true")
	dir := t.TempDir()
	for _, file := range []string{"schemathesis.toml", "hooks.py"} {
		foreign.CopyFile(t, filepath.Join(openapiTools, file), filepath.Join(dir, file))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, openapiPython(t), "-m", "schemathesis.cli", "run", "http://"+d.API+daemontest.SchemasPath+"openapi.yaml",
		"--url", "http://"+d.API, "--header", "Authorization: apiKey "+daemontest.ExamplesKey, "--max-examples", "50",
		"--seed", "1", "--workers", "2", "--continue-on-failure", "--no-color")
	cmd.Dir = dir
	cmd.Env = append(cmd.Environ(), "COLUMNS=140")
	text, err := cmd.CombinedOutput()
	require.NoError(t, ctx.Err(), "schemathesis takes longer than usual")
	if err != nil {
		t.Fatalf("%v\n%s", err, text) // testify cannot print long lines
	}
	_, err = post(t, d, `{"measurements":[]}`)
	require.NoError(t, err, "the daemon still works")
}

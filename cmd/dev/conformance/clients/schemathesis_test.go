package main

import (
	"context"
	"net/http"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"trafficd/cmd/dev/needs"
	"trafficd/sources/ingest"
)

// TestSchemathesis sends requests that schemathesis generates from the running daemon's OpenAPI
// document, and checks the responses against the document. schemathesis.toml lists what is
// accepted, and why.
func TestSchemathesis(t *testing.T) {
	needs.Everything(t, "schemathesis")
	d := clientsProcess(t, "layers.query_key=true")
	dir := t.TempDir()
	for _, file := range []string{"schemathesis.toml", "hooks.py"} {
		copyFile(t, filepath.Join(openapiTools, file), filepath.Join(dir, file))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, openapiPython(t), "-m", "schemathesis.cli", "run", "http://"+d.API+schemasPath+"openapi.yaml",
		"--url", "http://"+d.API, "--header", "Authorization: apiKey "+integratorKey, "--max-examples", "50",
		"--seed", "1", "--workers", "2", "--continue-on-failure", "--no-color")
	cmd.Dir = dir
	cmd.Env = append(cmd.Environ(), "COLUMNS=140")
	text, err := cmd.CombinedOutput()
	require.NoError(t, ctx.Err(), "schemathesis takes longer than usual")
	if err != nil {
		t.Fatalf("%v\n%s", err, text) // testify cannot print long lines
	}
	require.Equal(t, http.StatusMultiStatus, d.exchange(http.MethodPost, ingest.Path, pack(`{"measurements":[]}`)).status, "the daemon still works")
}

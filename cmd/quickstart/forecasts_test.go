package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"trafficd/cmd/internal/launch"
)

// TestKeepForecasts: new forecasts are published when the last ones are a period old, also after a failure.
func TestKeepForecasts(t *testing.T) {
	q := &quickstart{root: t.TempDir(), options: options{dir: t.TempDir()}}
	q.stores = &launch.Stores{Kafka: &launch.Kafka{Brokers: []string{"127.0.0.1:1"}}}
	q.source.codes = "lines.txt"
	calls := func() []string {
		text, _ := os.ReadFile(q.path("calls"))
		return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	}
	require.NoError(t, os.Mkdir(filepath.Join(q.root, "bin"), 0o755))
	script := "#!/bin/sh\necho \"$@\" >>" + q.path("calls") + "\n"
	require.NoError(t, os.WriteFile(q.bin("trafficctl"), []byte(script), 0o755))

	q.keepForecasts(t.Context())
	require.Equal(t, []string{
		"forecast generate --periods 8 --step 15m0s --output " + q.path(forecastsFile) + " --codes lines.txt",
		"forecast publish " + q.path(forecastsFile) + " --quiet --tombstone-missing --brokers 127.0.0.1:1 --topic forecasts",
	}, calls())
	q.keepForecasts(t.Context())
	require.Len(t, calls(), 2)

	require.NoError(t, os.WriteFile(q.bin("trafficctl"), []byte(script+"exit 1\n"), 0o755))
	q.forecast = time.Now().Add(-forecastStep)
	q.keepForecasts(t.Context())
	q.keepForecasts(t.Context())
	require.Len(t, calls(), 3)
}

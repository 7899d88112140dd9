package main

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// --check-config reports at once everything that is wrong with the files that settings name.
func TestCheckConfigReadsFiles(t *testing.T) {
	cmd := exec.Command(binary, "--check-config", "--set", "api.keys_file=/nowhere/keys.yaml", "--set", "api.tls_cert=/nowhere/crt",
		"--set", "api.tls_key=/nowhere/key", "--set", "kafka.tls.enabled=true", "--set", "kafka.tls.ca=/nowhere/ca",
		"--set", "clickhouse.secure=true", "--set", "clickhouse.ca_file=/dev/null", "--set", "journal.dir=/dev/null/journal",
		"--set", "registry.feeds=[{product_instance: city, file: {path: /nowhere/detectors.csv}}]",
		"--set", "kafka.sasl.mechanism=PLAIN", "--set", "kafka.sasl.username=u", "--set", "kafka.sasl.password=p")
	out, err := cmd.CombinedOutput()
	require.Error(t, err)
	for _, want := range []string{"api.keys_file: ", "api.tls_cert, api.tls_key: ", "kafka: ", "/nowhere/ca", "clickhouse: ", "no PEM certificate", "journal.dir: ", "/nowhere/detectors.csv"} {
		require.Contains(t, string(out), want)
	}
	require.NotContains(t, string(out), "mechanism")
}

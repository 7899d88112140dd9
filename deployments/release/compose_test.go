package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
	"github.com/stretchr/testify/require"
)

const composeDir = root + "/deployments/compose"

// loadCompose loads the project as `docker compose config` does, with its schema.
func loadCompose(t *testing.T, env ...string) (*types.Project, error) {
	t.Helper()
	options, err := cli.NewProjectOptions([]string{composeDir + "/compose.yaml"}, cli.WithEnv(env), cli.WithResolvedPaths(true))
	require.NoError(t, err)
	return options.LoadProject(t.Context())
}

func TestComposeProject(t *testing.T) {
	_, err := loadCompose(t)
	require.ErrorContains(t, err, "required variable")
	p, err := loadCompose(t, "TRAFFICD_IMAGE=trafficd:1", "CLICKHOUSE_PASSWORD=secret", "GRAFANA_PASSWORD=secret")
	require.NoError(t, err)
	require.Equal(t, []string{"clickhouse", "grafana", "kafka", "prometheus", "trafficd"}, p.ServiceNames())

	for _, s := range p.Services {
		for _, v := range s.Volumes {
			if v.Type == types.VolumeTypeBind {
				_, err := os.Stat(v.Source)
				require.NoError(t, err)
			} else {
				require.Contains(t, p.Volumes, v.Source)
			}
		}
		for _, port := range s.Ports {
			require.True(t, port.HostIP == "127.0.0.1" || s.Name == "trafficd" && port.Published == "8080", "only the clients' port is public: %s", s.Name)
		}
		if s.Name != "trafficd" {
			tag := s.Image[strings.LastIndex(s.Image, ":")+1:]
			require.Regexp(t, `^v?\d+\.\d+`, tag, "the versions of images are fixed")
		}
	}
	daemon := p.Services["trafficd"]
	require.True(t, daemon.ReadOnly)
	require.Equal(t, []string{"ALL"}, daemon.CapDrop)

	// The daemon accepts its settings and the files in the folder.
	text, err := os.ReadFile(composeDir + "/config/trafficd.yaml")
	require.NoError(t, err)
	folder, err := filepath.Abs(composeDir + "/config")
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "trafficd.yaml")
	require.NoError(t, os.WriteFile(path, []byte(strings.ReplaceAll(string(text), "/etc/trafficd", folder)), 0o600))
	for name, value := range daemon.Environment {
		t.Setenv(name, *value)
	}
	output(t, hostTrafficd(), "--config", path, "--set", "journal.dir="+t.TempDir(), "--check-config")
}

// Prometheus reads its configuration and the alerts at the places where Compose mounts them.
func TestComposePrometheus(t *testing.T) {
	dir := t.TempDir()
	output(t, "cp", composeDir+"/prometheus.yml", root+"/deployments/observability/prometheus/alerts.yml", dir)
	output(t, "promtool", "check", "config", filepath.Join(dir, "prometheus.yml"))
}

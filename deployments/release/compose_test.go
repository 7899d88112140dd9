package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
	"github.com/stretchr/testify/require"
)

const composeDir = root + "/deployments/compose"

// loadCompose loads the project as `docker compose config` does, with its schema.
func loadCompose(t *testing.T, files []string, env ...string) (*types.Project, error) {
	t.Helper()
	paths := make([]string, len(files))
	for i, file := range files {
		paths[i] = filepath.Join(composeDir, file)
	}
	options, err := cli.NewProjectOptions(paths, cli.WithEnv(env), cli.WithResolvedPaths(true))
	require.NoError(t, err)
	return options.LoadProject(t.Context())
}

func TestComposeProject(t *testing.T) {
	f := func(clients string, files, env, services []string) {
		t.Helper()
		_, err := loadCompose(t, files, env...)
		require.ErrorContains(t, err, "required variable")
		p, err := loadCompose(t, files, append(env, "TRAFFICD_IMAGE=trafficd:1", "CLICKHOUSE_PASSWORD=secret", "GRAFANA_PASSWORD=secret")...)
		require.NoError(t, err)
		require.Equal(t, services, p.ServiceNames())
		requireCompose(t, p, clients)
	}
	f("trafficd", []string{"compose.yaml"}, nil, []string{"alertmanager", "clickhouse", "grafana", "kafka", "prometheus", "trafficd"})
	f("trafficd", []string{"compose.yaml", "forecaster.yaml"}, nil,
		[]string{"alertmanager", "clickhouse", "forecaster", "forecasts", "grafana", "kafka", "prometheus", "trafficd"})
	for _, kind := range []string{"local", "kafka"} {
		f("haproxy", []string{"compose.yaml", "replicas.yaml"}, []string{"JOURNAL_KIND=" + kind},
			[]string{"alertmanager", "clickhouse", "grafana", "haproxy", "kafka", "prometheus", "trafficd", "trafficd-2", "trafficd-3"})
	}
	f("trafficd", []string{"compose.yaml", "feeder.yaml"}, nil,
		[]string{"alertmanager", "clickhouse", "feeder", "grafana", "kafka", "prometheus", "trafficd"})
}

// TestComposeRouting checks the service for Valhalla beside the forecaster: its arguments are those
// of the program, and its files are in the directory that it shares with the engine.
func TestComposeRouting(t *testing.T) {
	files := []string{"compose.yaml", "forecaster.yaml", "routing.yaml"}
	env := []string{"TRAFFICD_IMAGE=trafficd:1", "CLICKHOUSE_PASSWORD=secret", "GRAFANA_PASSWORD=secret"}
	_, err := loadCompose(t, files, env...)
	require.ErrorContains(t, err, "set it to a key with the right forecast")
	p, err := loadCompose(t, files, append(env, "ROUTING_KEY=secret")...)
	require.NoError(t, err)
	s := p.Services["route-follow"]
	require.True(t, s.ReadOnly)
	require.Equal(t, []string{"ALL"}, s.CapDrop)
	require.Positive(t, s.MemLimit)
	require.Len(t, s.Volumes, 1)
	for name, value := range s.Environment {
		t.Setenv(name, *value)
	}
	t.Setenv("TRAFFICD_URL", "http://127.0.0.1:1") // nothing listens there
	// The program accepts the arguments, and reads the files in the directory.
	dir := t.TempDir()
	var args []string
	for _, a := range s.Entrypoint[1:] {
		args = append(args, strings.ReplaceAll(a, s.Volumes[0].Target, dir))
	}
	require.Equal(t, "/usr/bin/trafficctl", s.Entrypoint[0])
	program := filepath.Join(filepath.Dir(hostTrafficd()), "trafficctl")
	out, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "cannot read the matches: open "+dir+"/city.ndjson")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "city.ndjson"), nil, 0o600))
	out, err = exec.CommandContext(t.Context(), program, args...).CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "cannot read --tiles "+dir+"/tiles.tar")
}

// TestComposeFeeder checks that the feeder accepts its environment, that its spool is in a volume,
// and that it, the daemon and Prometheus agree on the addresses.
func TestComposeFeeder(t *testing.T) {
	p, err := loadCompose(t, []string{"compose.yaml", "feeder.yaml"}, "TRAFFICD_IMAGE=trafficd:1", "CLICKHOUSE_PASSWORD=secret", "GRAFANA_PASSWORD=secret")
	require.NoError(t, err)
	s := p.Services["feeder"]
	require.Equal(t, types.ShellCommand{"/usr/bin/feeder", "--config", "/etc/trafficd/feeder.yaml"}, s.Entrypoint)
	path := filepath.Join(t.TempDir(), "feeder.yaml")
	require.NoError(t, os.WriteFile(path, []byte("trafficd: {key_file: /etc/trafficd/feeder.key}\nfeeds: [{name: nl, url: 'http://x', format: ndw}]\n"), 0o600))
	for name, value := range s.Environment {
		t.Setenv(name, *value)
	}
	printed := output(t, filepath.Join(filepath.Dir(hostTrafficd()), "feeder"), "--config", path, "--print-config")
	require.Contains(t, printed, "url: http://trafficd:8080")
	require.Contains(t, printed, "listen: :8083")
	volumes := map[string]string{}
	for _, v := range s.Volumes {
		volumes[v.Target] = v.Type
	}
	require.Equal(t, map[string]string{"/etc/trafficd": types.VolumeTypeBind, "/var/lib/trafficd": types.VolumeTypeVolume}, volumes)
	require.Contains(t, printed, "dir: /var/lib/trafficd/")
	require.Equal(t, uint32(8083), s.Ports[0].Target)
	for _, file := range []string{"compose/prometheus.yml", "README.md", "compose/feeder.yaml"} {
		text, err := os.ReadFile(filepath.Join(root, "deployments", file))
		require.NoError(t, err)
		require.Contains(t, string(text), "feeder:8083", file)
	}
}

// requireCompose checks a project whose clients use the port of one service.
func requireCompose(t *testing.T, p *types.Project, clients string) {
	t.Helper()
	journals := map[string]bool{}
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
			require.True(t, port.HostIP == "127.0.0.1" || s.Name == clients && port.Published == "8080", "only the clients' port is public: %s", s.Name)
		}
		require.Positive(t, s.MemLimit, "%s needs a limit, so that it does not take the memory of the others", s.Name)
		for dependency := range s.DependsOn {
			require.Contains(t, p.Services, dependency)
		}
		if s.Image != "trafficd:1" {
			tag := s.Image[strings.LastIndex(s.Image, ":")+1:]
			require.Regexp(t, `^v?\d+\.\d+`, tag, "the versions of images are fixed")
			continue
		}
		require.True(t, s.ReadOnly)
		require.Equal(t, []string{"ALL"}, s.CapDrop)
		if s.Entrypoint == nil { // a replica of trafficd
			require.Len(t, s.Ports, len(p.Services["trafficd"].Ports))
		}
		for _, v := range s.Volumes {
			if v.Target == "/var/lib/trafficd" {
				require.False(t, journals[v.Source], "each replica has its own volume")
				journals[v.Source] = true
			}
		}
	}
	daemon := p.Services["trafficd"]

	// The daemon accepts its settings and the files in the directory.
	text, err := os.ReadFile(composeDir + "/config/trafficd.yaml")
	require.NoError(t, err)
	directory, err := filepath.Abs(composeDir + "/config")
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "trafficd.yaml")
	require.NoError(t, os.WriteFile(path, []byte(strings.ReplaceAll(string(text), "/etc/trafficd", directory)), 0o600))
	for _, s := range p.Services {
		if s.Image == daemon.Image && s.Entrypoint == nil {
			require.Equal(t, daemon.Environment, s.Environment)
		}
	}
	for name, value := range daemon.Environment {
		t.Setenv(name, *value)
	}
	output(t, hostTrafficd(), "--config", path, "--set", "journal.dir="+t.TempDir(), "--check-config")
}

// TestComposeConfigurations checks that the programs accept their configurations.
func TestComposeConfigurations(t *testing.T) {
	dir := t.TempDir()
	for _, config := range []string{"prometheus.yml", "prometheus-replicas.yml"} {
		output(t, "cp", filepath.Join(composeDir, config), root+"/deployments/observability/prometheus/alerts.yml", dir)
		output(t, "promtool", "check", "config", filepath.Join(dir, config))
	}
	output(t, "haproxy", "-c", "-f", composeDir+"/haproxy.cfg")
	output(t, "amtool", "check-config", composeDir+"/alertmanager.yml")
	output(t, filepath.Join(filepath.Dir(hostTrafficd()), "forecaster"), "--config", composeDir+"/config/forecaster.yaml", "--print-config")
}

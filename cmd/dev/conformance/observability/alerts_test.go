// Package observability tests deployments/observability and deployments/runbook.md: the alerts,
// their sections of the runbook and the dashboards.
package observability

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"trafficd/cmd/dev/needs"
)

const (
	deployments = "../../../../deployments"
	prometheus  = deployments + "/observability/prometheus"
)

// alert is an alerting rule.
type alert struct {
	Alert       string
	Expr        string
	For         string
	Labels      map[string]string
	Annotations map[string]string
}

// readAlerts returns the alerts of alerts.yml.
func readAlerts(t *testing.T) (all []alert) {
	t.Helper()
	var file struct {
		Groups []struct{ Rules []alert }
	}
	parse(t, "alerts.yml", &file)
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			if r.Alert != "" {
				all = append(all, r)
			}
		}
	}
	require.NotEmpty(t, all)
	return all
}

// parse reads a YAML file of the Prometheus directory.
func parse(t *testing.T, name string, into any) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(prometheus, name))
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(text, into))
}

func TestAlertRules(t *testing.T) {
	t.Parallel()
	promtool(t, "check", "config", "prometheus.yml")
	promtool(t, "test", "rules", "alerts_test.yml")
	var cases struct {
		Tests []struct {
			Checks []struct {
				Alertname string
				Expected  []any `yaml:"exp_alerts"`
			} `yaml:"alert_rule_test"`
		}
	}
	parse(t, "alerts_test.yml", &cases)
	fires, silent := map[string]bool{}, map[string]bool{}
	for _, test := range cases.Tests {
		for _, c := range test.Checks {
			if len(c.Expected) > 0 {
				fires[c.Alertname] = true
			} else {
				silent[c.Alertname] = true
			}
		}
	}
	for _, a := range readAlerts(t) {
		require.True(t, fires[a.Alert], "no case in which %s fires", a.Alert)
		require.True(t, silent[a.Alert], "no case in which %s does not fire", a.Alert)
		require.Contains(t, []string{"critical", "warning"}, a.Labels["severity"], a.Alert)
		require.NotEmpty(t, a.Annotations["summary"], a.Alert)
		require.NotEmpty(t, a.Annotations["description"], a.Alert)
		require.Equal(t, "deployments/runbook.md#"+strings.ToLower(a.Alert), a.Annotations["runbook_url"])
	}
}

// promtool runs promtool in the directory of the rules.
func promtool(t *testing.T, args ...string) {
	t.Helper()
	needs.Everything(t, "promtool")
	path, err := exec.LookPath("promtool")
	require.NoError(t, err, "it is in the Debian package prometheus")
	cmd := exec.Command(path, args...)
	cmd.Dir = prometheus
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
}

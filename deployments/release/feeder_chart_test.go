package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// TestChartFeeder checks that the feeder keeps its spool, that it and the daemon may reach each
// other, and that it accepts its settings.
func TestChartFeeder(t *testing.T) {
	objects := render(t, `
feeder: {enabled: true, config: {trafficd: {key_file: /etc/trafficd/files/key}, feeds: [{name: nl, url: "http://x", format: ndw}]}}
networkPolicy: {enabled: true, clients: [{podSelector: {matchLabels: {app: client}}}], egress: [{ports: [{port: 443}]}]}
`)
	var feeder, daemon *apps.StatefulSet
	services := map[string]*core.Service{}
	for _, o := range objects {
		switch o := o.(type) {
		case *apps.StatefulSet:
			if o.Spec.Template.Labels["app.kubernetes.io/name"] == "trafficd-feeder" {
				feeder = o
			} else {
				daemon = o
			}
		case *core.Service:
			services[o.Name] = o
		case *core.ConfigMap:
			if text := o.Data["feeder.yaml"]; text != "" {
				path := filepath.Join(t.TempDir(), "feeder.yaml")
				require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
				printed := output(t, filepath.Join(filepath.Dir(hostTrafficd()), "feeder"), "--config", path, "--print-config")
				require.Contains(t, printed, "dir: /var/lib/trafficd/feeder")
			}
		}
	}
	require.NotNil(t, feeder)
	require.NotNil(t, daemon)
	require.Equal(t, "spool", feeder.Spec.VolumeClaimTemplates[0].Name)
	service := services[feeder.Name]
	require.NotNil(t, service)
	pods := labels.Set(feeder.Spec.Template.Labels)
	require.True(t, labels.SelectorFromSet(service.Spec.Selector).Matches(pods))
	require.False(t, labels.SelectorFromSet(daemon.Spec.Selector.MatchLabels).Matches(pods))
	policies := 0
	for _, o := range objects {
		if p, ok := o.(*networking.NetworkPolicy); ok {
			from, to := p.Spec.Ingress[0].From, p.Spec.Egress[1].To
			other := pods
			if labels.SelectorFromSet(p.Spec.PodSelector.MatchLabels).Matches(pods) {
				other, from = labels.Set(daemon.Spec.Template.Labels), from[:1]
			} else {
				from = from[1:]
			}
			require.True(t, labels.SelectorFromSet(from[0].PodSelector.MatchLabels).Matches(other), "%s: ingress", p.Name)
			require.True(t, labels.SelectorFromSet(to[0].PodSelector.MatchLabels).Matches(other), "%s: egress", p.Name)
			policies++
		}
	}
	require.Equal(t, 2, policies)
}

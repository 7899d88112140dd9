package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/stretchr/testify/require"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"sigs.k8s.io/yaml"
)

const chartDir = root + "/deployments/kubernetes/trafficd"

// everything enables all features that are off by default.
const everything = `
image: {repository: registry.example.com/trafficd, digest: "sha256:` + "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef" + `", pullPolicy: Always}
imagePullSecrets: [registry]
replicas: 3
config:
  registry: {feeds: [{product_instance: city, file: {path: /etc/trafficd/files/detectors.csv, column: code}}]}
  clickhouse: {addresses: ["ch-0:9000", "ch-1:9000"], username: trafficd, cluster: main}
  kafka: {brokers: ["kafka:9092"], create_topic: {partitions: 12, replication_factor: 3}}
  api: {drain_grace: 5s}
keys: {existingSecret: keys, key: all.yaml}
envSecret: passwords
filesConfigMap: detectors
filesSecret: certificates
tlsSecret: certificate
persistence: {size: 100Gi, storageClass: fast}
shutdownSeconds: 120
preStopSeconds: 10
resources: {requests: {cpu: 2, memory: 1Gi}, limits: {memory: 2Gi}}
service: {type: LoadBalancer, port: 443, annotations: {a: b}}
networkPolicy:
  enabled: true
  clients: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: ingress}}}]
  operators: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: monitoring}}}]
  egress: [{ports: [{port: 9000}, {port: 9092}, {port: 53, protocol: UDP}]}]
serviceMonitor: {enabled: true, interval: 30s, labels: {release: prometheus}}
prometheusRule: {enabled: true, labels: {release: prometheus}, runbook: "https://wiki.example.org/runbook.md"}
dashboards: {enabled: true}
forecaster:
  enabled: true
  config: {model: {product_instance: city}, detectors: {path: /etc/trafficd/files/streets.csv}}
extraEnv: [{name: TZ, value: UTC}]
extraVolumes: [{name: basemap, persistentVolumeClaim: {claimName: maps}}]
extraVolumeMounts: [{name: basemap, mountPath: /maps, readOnly: true}]
serviceAccount: {create: true, annotations: {e: f}}
priorityClassName: important
minReadySeconds: 30
ingress: {enabled: true, className: nginx, host: traffic.example.org, tlsSecret: public, annotations: {g: h}}
podAnnotations: {c: d}
nodeSelector: {disk: ssd}
tolerations: [{key: k, operator: Exists}]
affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: kubernetes.io/hostname}]}}
topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule}]
`

// numbers has names that YAML reads as numbers or booleans unless they are quoted.
const numbers = `
keys: {existingSecret: "1"}
envSecret: "2"
filesSecret: "3e3"
tlsSecret: "yes"
imagePullSecrets: ["007"]
persistence: {storageClass: "0x1"}
forecaster: {enabled: true}
`

const minimal = `
replicas: 0
networkPolicy: {enabled: false}
podDisruptionBudget: {enabled: false}
`

// replicas returns the values for three replicas with a kind of journal.
func replicas(t *testing.T, kind string) string {
	t.Helper()
	text, err := os.ReadFile(chartDir + "/values-replicas-" + kind + ".yaml")
	require.NoError(t, err)
	return string(text)
}

// TestChartReplicas checks that one of three replicas may be unavailable, that no two are on the
// same node, and that the journal is of the kind in the file's name.
func TestChartReplicas(t *testing.T) {
	for _, kind := range []string{"local", "kafka"} {
		objects := render(t, replicas(t, kind)+"\nforecaster: {enabled: true}")
		set, budget := one[*apps.StatefulSet](t, objects), one[*policy.PodDisruptionBudget](t, objects)
		require.EqualValues(t, 3, *set.Spec.Replicas)
		require.Equal(t, 1, budget.Spec.MaxUnavailable.IntValue())
		pods, forecaster := labels.Set(set.Spec.Template.Labels), labels.Set(one[*apps.Deployment](t, objects).Spec.Template.Labels)
		require.Len(t, set.Spec.Template.Spec.TopologySpreadConstraints, 2)
		for _, c := range set.Spec.Template.Spec.TopologySpreadConstraints {
			selector := labels.SelectorFromSet(c.LabelSelector.MatchLabels)
			require.True(t, selector.Matches(pods))
			require.False(t, selector.Matches(forecaster))
		}
		for _, o := range objects {
			if m, ok := o.(*core.ConfigMap); ok && m.Data["trafficd.yaml"] != "" {
				require.Contains(t, m.Data["trafficd.yaml"], "kind: "+kind)
			}
		}
	}
}

// TestChartFiles checks that both programs get the files of the config map and of the secret.
func TestChartFiles(t *testing.T) {
	f := func(values string, want ...string) {
		t.Helper()
		objects := render(t, "forecaster: {enabled: true}\n"+values)
		for _, pod := range []core.PodSpec{one[*apps.StatefulSet](t, objects).Spec.Template.Spec, one[*apps.Deployment](t, objects).Spec.Template.Spec} {
			var names []string
			for _, v := range pod.Volumes {
				if v.Name != "files" {
					continue
				}
				require.True(t, slices.ContainsFunc(pod.Containers[0].VolumeMounts, func(m core.VolumeMount) bool { return m.Name == "files" }))
				for _, s := range v.Projected.Sources {
					if s.ConfigMap != nil {
						names = append(names, s.ConfigMap.Name)
					}
					if s.Secret != nil {
						names = append(names, s.Secret.Name)
					}
				}
			}
			require.Equal(t, want, names)
		}
	}
	f("")
	f("filesConfigMap: lists", "lists")
	f("filesSecret: pairs", "pairs")
	f("filesConfigMap: lists\nfilesSecret: pairs", "lists", "pairs")
}

// TestChartExtras checks that the pods of all programs get what may be added to them, and that the
// ingress leads to the clients' port.
func TestChartExtras(t *testing.T) {
	objects := render(t, everything+"\nfeeder: {enabled: true}")
	pods := map[string]core.PodSpec{"forecaster": one[*apps.Deployment](t, objects).Spec.Template.Spec}
	account := one[*core.ServiceAccount](t, objects)
	require.False(t, *account.AutomountServiceAccountToken)
	var clients *core.Service
	for _, o := range objects {
		switch o := o.(type) {
		case *apps.StatefulSet:
			pods[o.Spec.Template.Spec.Containers[0].Name] = o.Spec.Template.Spec
			if o.Name == "city-trafficd" {
				require.EqualValues(t, 30, o.Spec.MinReadySeconds)
			}
		case *core.Service:
			if o.Name == "city-trafficd" {
				clients = o
			}
		}
	}
	require.Len(t, pods, 3)
	for name, pod := range pods {
		container := pod.Containers[0]
		require.Equal(t, account.Name, pod.ServiceAccountName, name)
		require.Equal(t, "important", pod.PriorityClassName, name)
		require.Contains(t, container.Env, core.EnvVar{Name: "TZ", Value: "UTC"}, name)
		require.Equal(t, "passwords", container.EnvFrom[0].SecretRef.Name, name)
		require.Contains(t, container.VolumeMounts, core.VolumeMount{Name: "basemap", MountPath: "/maps", ReadOnly: true}, name)
		require.True(t, slices.ContainsFunc(pod.Volumes, func(v core.Volume) bool { return v.Name == "basemap" && v.PersistentVolumeClaim != nil }), name)
	}
	ingress := one[*networking.Ingress](t, objects)
	rule := ingress.Spec.Rules[0]
	require.Equal(t, "traffic.example.org", rule.Host)
	require.Equal(t, []networking.IngressTLS{{Hosts: []string{rule.Host}, SecretName: "public"}}, ingress.Spec.TLS)
	path := rule.HTTP.Paths[0]
	require.Equal(t, "/", path.Path)
	require.Equal(t, clients.Name, path.Backend.Service.Name)
	require.Equal(t, clients.Spec.Ports[0].Port, path.Backend.Service.Port.Number)
	prefixed := one[*networking.Ingress](t, render(t, "config: {api: {base_path: /traffic}}\ningress: {enabled: true, host: a.example.org}"))
	require.Equal(t, "/traffic", prefixed.Spec.Rules[0].HTTP.Paths[0].Path)
	pod := one[*apps.StatefulSet](t, render(t, "")).Spec.Template.Spec
	require.Equal(t, "default", pod.ServiceAccountName)
	require.Equal(t, "own", one[*apps.StatefulSet](t, render(t, "serviceAccount: {name: own}")).Spec.Template.Spec.ServiceAccountName)
}

// render returns the objects that `helm template` would print, each decoded with the types of its
// API: unknown and duplicate fields are errors.
func render(t *testing.T, values string) []runtime.Object {
	t.Helper()
	texts, err := template(values)
	require.NoError(t, err)
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		apps.AddToScheme, core.AddToScheme, networking.AddToScheme, policy.AddToScheme, monitoring.AddToScheme,
	} {
		require.NoError(t, add(scheme))
	}
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	var objects []runtime.Object
	for name, text := range texts {
		if strings.HasSuffix(name, "NOTES.txt") {
			continue
		}
		for _, one := range strings.Split(text, "\n---\n") {
			if strings.TrimSpace(one) == "" {
				continue
			}
			object, _, err := decoder.Decode([]byte(one), nil, nil)
			require.NoError(t, err, "%s:\n%s", name, one)
			objects = append(objects, object)
		}
	}
	return objects
}

func template(values string) (map[string]string, error) {
	chart, err := loader.Load(chartDir)
	if err != nil {
		return nil, err
	}
	set := map[string]any{}
	if err := yaml.UnmarshalStrict([]byte(values), &set); err != nil {
		return nil, err
	}
	all, err := util.ToRenderValues(chart, set, common.ReleaseOptions{Name: "city", Namespace: "traffic", IsInstall: true}, nil)
	if err != nil {
		return nil, err
	}
	return engine.Engine{Strict: true}.RenderWithContext(context.Background(), chart, all)
}

// one returns the only object of a type.
func one[T any](t *testing.T, objects []runtime.Object) T {
	t.Helper()
	var found []T
	for _, o := range objects {
		if x, ok := o.(T); ok {
			found = append(found, x)
		}
	}
	require.Len(t, found, 1)
	return found[0]
}

func TestChartLint(t *testing.T) {
	for _, values := range []string{"", minimal, everything, replicas(t, "local"), replicas(t, "kafka")} {
		set := map[string]any{}
		require.NoError(t, yaml.Unmarshal([]byte(values), &set))
		linter := lint.RunAll(chartDir, set, "traffic")
		for _, m := range linter.Messages {
			require.Less(t, m.Severity, support.WarningSev, m.Error())
		}
	}
}

func TestChartDecodesStrictly(t *testing.T) {
	f := func(values string, kinds ...string) {
		t.Helper()
		var got []string
		for _, o := range render(t, values) {
			got = append(got, o.GetObjectKind().GroupVersionKind().Kind)
		}
		sort.Strings(got)
		require.Equal(t, kinds, got)
	}
	f("", "ConfigMap", "NetworkPolicy", "PodDisruptionBudget", "Secret", "Service", "Service", "StatefulSet")
	f(minimal, "ConfigMap", "Secret", "Service", "Service", "StatefulSet")
	for _, kind := range []string{"local", "kafka"} {
		f(replicas(t, kind), "ConfigMap", "NetworkPolicy", "PodDisruptionBudget", "Secret", "Service", "Service", "StatefulSet")
	}
	f("config: {registry: null}", "ConfigMap", "NetworkPolicy", "PodDisruptionBudget", "Secret", "Service", "Service", "StatefulSet")
	f(numbers, "ConfigMap", "ConfigMap", "Deployment", "NetworkPolicy", "NetworkPolicy", "PodDisruptionBudget", "Service", "Service", "Service",
		"StatefulSet")
	f(everything, "ConfigMap", "ConfigMap", "ConfigMap", "Deployment", "Ingress", "NetworkPolicy", "NetworkPolicy", "PodDisruptionBudget",
		"PrometheusRule", "Service", "Service", "Service", "ServiceAccount", "ServiceMonitor", "StatefulSet")
}

// TestChartFitsOpenAPI validates the objects with the OpenAPI document of the API server, for the
// oldest Kubernetes that the documents promise and a current one: unlike the API types, it knows
// which fields are required.
func TestChartFitsOpenAPI(t *testing.T) {
	validate := func(values string) string {
		t.Helper()
		texts, err := template(values)
		require.NoError(t, err)
		args := []string{"-m", "kubernetes_validate", "--strict", "--no-warn", "--kubernetes-version", "1.30", "--kubernetes-version", "1.37"}
		for name, text := range texts {
			if strings.HasSuffix(name, ".yaml") {
				file := filepath.Join(t.TempDir(), filepath.Base(name))
				require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
				args = append(args, file)
			}
		}
		out, _ := exec.Command(kubernetesValidate(t), args...).CombinedOutput() // it fails if it prints an error
		return string(out)
	}
	for _, values := range []string{"", minimal, everything, replicas(t, "local"), replicas(t, "kafka")} {
		out := validate(values)
		require.NotContains(t, out, "ERROR")
		for _, version := range []string{"1.30", "1.37"} {
			require.Contains(t, out, "statefulset.yaml passed for resource statefulset/city-trafficd against version "+version)
		}
	}
	require.Contains(t, validate("topologySpreadConstraints: [{topologyKey: zone}]"), "'maxSkew' is a required property")
}

// kubernetesValidate returns a Python interpreter that has the package kubernetes-validate, which
// is fetched once.
func kubernetesValidate(t *testing.T) string {
	t.Helper()
	requirements, err := filepath.Abs("testdata/kubernetes/requirements.txt")
	require.NoError(t, err)
	pins, err := os.ReadFile(requirements)
	require.NoError(t, err)
	cache := os.Getenv("TRAFFICD_CACHE")
	if cache == "" {
		cache = root + "/.cache"
	}
	dir, err := filepath.Abs(fmt.Sprintf("%s/toolkits/kubernetes-validate-%.4x", cache, sha256.Sum256(pins)))
	require.NoError(t, err)
	python := filepath.Join(dir, "bin/python")
	if _, err := os.Stat(filepath.Join(dir, "complete")); err != nil {
		require.NoError(t, os.RemoveAll(dir))
		output(t, "python3", "-m", "venv", dir)
		output(t, python, "-m", "pip", "install", "--quiet", "--require-hashes", "--only-binary", ":all:", "--requirement", requirements)
		require.NoError(t, os.WriteFile(filepath.Join(dir, "complete"), nil, 0o600))
	}
	return python
}

// TestChartIsConsistent checks what the API types cannot: references between objects, and promises
// of the documents.
func TestChartIsConsistent(t *testing.T) {
	for _, values := range []string{"", minimal, everything, replicas(t, "local"), replicas(t, "kafka")} {
		objects := render(t, values)
		set := one[*apps.StatefulSet](t, objects)
		pod := set.Spec.Template.Spec
		container := pod.Containers[0]
		podLabels := labels.Set(set.Spec.Template.Labels)
		selects := func(selector map[string]string) {
			t.Helper()
			require.True(t, labels.SelectorFromSet(selector).Matches(podLabels))
		}

		require.Equal(t, apps.RetainPersistentVolumeClaimRetentionPolicyType, set.Spec.PersistentVolumeClaimRetentionPolicy.WhenDeleted)
		require.Equal(t, apps.RetainPersistentVolumeClaimRetentionPolicyType, set.Spec.PersistentVolumeClaimRetentionPolicy.WhenScaled)
		selects(set.Spec.Selector.MatchLabels)

		require.True(t, *pod.SecurityContext.RunAsNonRoot)
		require.Equal(t, core.SeccompProfileTypeRuntimeDefault, pod.SecurityContext.SeccompProfile.Type)
		require.EqualValues(t, imageUser, *pod.SecurityContext.RunAsUser)
		require.True(t, *container.SecurityContext.ReadOnlyRootFilesystem)
		require.False(t, *container.SecurityContext.AllowPrivilegeEscalation)
		require.Equal(t, []core.Capability{"ALL"}, container.SecurityContext.Capabilities.Drop)
		require.False(t, *pod.AutomountServiceAccountToken)

		ports := map[string]int32{}
		for _, p := range container.Ports {
			ports[p.Name] = p.ContainerPort
		}
		for _, probe := range []*core.Probe{container.StartupProbe, container.LivenessProbe, container.ReadinessProbe} {
			require.Contains(t, ports, probe.HTTPGet.Port.StrVal)
		}
		var headless string
		for _, o := range objects {
			service, ok := o.(*core.Service)
			if !ok || strings.HasSuffix(service.Name, "-forecaster") { // see below
				continue
			}
			selects(service.Spec.Selector)
			for _, p := range service.Spec.Ports {
				require.Contains(t, ports, p.TargetPort.StrVal)
			}
			if service.Spec.ClusterIP == core.ClusterIPNone {
				headless = service.Name
			}
		}
		require.Equal(t, headless, set.Spec.ServiceName)

		mounts := map[string]string{"journal": ""}
		for _, v := range pod.Volumes {
			mounts[v.Name] = ""
		}
		for _, m := range container.VolumeMounts {
			require.Contains(t, mounts, m.Name)
			mounts[m.Name] = m.MountPath
		}
		for name, path := range mounts {
			require.NotEmpty(t, path, "the volume %s is not mounted", name)
		}

		settings := settingsOf(t, objects, mounts)
		for _, file := range []string{"keys_file", "tls_cert", "tls_key"} {
			if path, ok := settings["api"].(map[string]any)[file]; ok {
				require.True(t, within(path.(string), mounts), "%s", path)
			}
		}
		require.True(t, within(settings["journal"].(map[string]any)["dir"].(string), map[string]string{"": mounts["journal"]}))
		var shutdown int64
		_, err := fmt.Sscanf(settings["shutdown_timeout"].(string), "%ds", &shutdown)
		require.NoError(t, err)
		require.Greater(t, *pod.TerminationGracePeriodSeconds, shutdown+container.Lifecycle.PreStop.Sleep.Seconds)
	}

	objects := render(t, everything)
	monitor, rules := one[*monitoring.ServiceMonitor](t, objects), one[*monitoring.PrometheusRule](t, objects)
	require.Equal(t, "ops", monitor.Spec.Endpoints[0].Port)
	selector, err := meta.LabelSelectorAsSelector(&monitor.Spec.Selector)
	require.NoError(t, err)
	forecaster := one[*apps.Deployment](t, objects)
	scraped := map[string]string{} // the Kubernetes service of each job; the alerts expect trafficd
	for _, o := range objects {
		service, ok := o.(*core.Service)
		if ok && selector.Matches(labels.Set(service.Labels)) {
			scraped[service.Labels[monitor.Spec.JobLabel]] = service.Name
			pods := one[*apps.StatefulSet](t, objects).Spec.Template
			if service.Name == forecaster.Name {
				pods = forecaster.Spec.Template
			}
			require.True(t, labels.SelectorFromSet(service.Spec.Selector).Matches(labels.Set(pods.Labels)))
		}
		if policy, ok := o.(*networking.NetworkPolicy); ok && policy.Name != forecaster.Name {
			rules := policy.Spec.Egress
			require.True(t, labels.SelectorFromSet(rules[len(rules)-1].To[0].PodSelector.MatchLabels).
				Matches(labels.Set(forecaster.Spec.Template.Labels)), "the web page asks the forecaster")
		}
		if policy, ok := o.(*networking.NetworkPolicy); ok && policy.Name == forecaster.Name {
			require.True(t, labels.SelectorFromSet(policy.Spec.PodSelector.MatchLabels).Matches(labels.Set(forecaster.Spec.Template.Labels)))
			require.True(t, labels.SelectorFromSet(policy.Spec.Ingress[0].From[0].PodSelector.MatchLabels).
				Matches(labels.Set(one[*apps.StatefulSet](t, objects).Spec.Template.Labels)), "the web page asks the forecaster")
		}
		if config, ok := o.(*core.ConfigMap); ok && config.Data["trafficd.yaml"] != "" {
			require.Contains(t, config.Data["trafficd.yaml"], "forecaster: "+forecaster.Name+":8081")
		}
	}
	require.Equal(t, map[string]string{"trafficd": "city-trafficd-replicas", "trafficd-forecaster": forecaster.Name}, scraped)

	require.False(t, labels.SelectorFromSet(one[*apps.StatefulSet](t, objects).Spec.Selector.MatchLabels).
		Matches(labels.Set(forecaster.Spec.Template.Labels)), "clients must not reach the forecaster")
	require.True(t, labels.SelectorFromSet(forecaster.Spec.Selector.MatchLabels).Matches(labels.Set(forecaster.Spec.Template.Labels)))
	for _, o := range objects {
		if config, ok := o.(*core.ConfigMap); ok && config.Data["forecaster.yaml"] != "" {
			path := filepath.Join(t.TempDir(), "forecaster.yaml")
			require.NoError(t, os.WriteFile(path, []byte(config.Data["forecaster.yaml"]), 0o600))
			output(t, filepath.Join(filepath.Dir(hostTrafficd()), "forecaster"), "--config", path, "--print-config")
		}
	}
	require.NotEmpty(t, rules.Spec.Groups)
	require.Equal(t, "https://wiki.example.org/runbook.md#trafficddown", rules.Spec.Groups[0].Rules[0].Annotations["runbook_url"])
	require.Equal(t, "prometheus", rules.Labels["release"])
	one[*policy.PodDisruptionBudget](t, objects)
}

// settingsOf returns the rendered trafficd.yaml, after the daemon has checked it.
func settingsOf(t *testing.T, objects []runtime.Object, mounts map[string]string) map[string]any {
	t.Helper()
	for _, o := range objects {
		if config, ok := o.(*core.ConfigMap); ok && config.Data["trafficd.yaml"] != "" {
			require.Equal(t, configFile, mounts["config"])
			path := filepath.Join(t.TempDir(), "trafficd.yaml")
			require.NoError(t, os.WriteFile(path, []byte(config.Data["trafficd.yaml"]), 0o600))
			output(t, hostTrafficd(), "--config", path, "--print-config")
			settings := map[string]any{}
			require.NoError(t, yaml.UnmarshalStrict([]byte(config.Data["trafficd.yaml"]), &settings))
			return settings
		}
	}
	t.Fatal("no config map has trafficd.yaml")
	return nil
}

func within(path string, mounts map[string]string) bool {
	for _, m := range mounts {
		if strings.HasPrefix(path, m+"/") {
			return true
		}
	}
	return false
}

func TestChartRejects(t *testing.T) {
	f := func(values string, want ...string) {
		t.Helper()
		_, err := template(values)
		require.Error(t, err)
		for _, w := range want {
			require.ErrorContains(t, err, w)
		}
	}
	f("replica: 1", "additional properties 'replica' not allowed")
	f("image: {tags: x}", "additional properties 'tags' not allowed")
	f(`replicas: "1"`, "/replicas", "want integer")
	f("image: {digest: abc}", "/image/digest")
	f("persistence: {size: much}", "/persistence/size")
	f("service: {type: Balancer}", "/service/type")
	f("config: {journal: {dir: /tmp}}", "/config", "'not' failed")
	f("config: {api: {listen: ':1'}}", "/config", "'not' failed")
	f("shutdownSeconds: 0", "/shutdownSeconds")
	f("ingress: {enabled: true}", "/ingress")
	f("serviceAccount: {named: x}", "additional properties 'named' not allowed")
}

package config

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"trafficd/cmd/internal/conf"
)

func TestDefaultsNeedNoFile(t *testing.T) {
	c, origins, err := Load(conf.Options{})
	require.NoError(t, err)
	want := Default()
	want.complete()
	require.Equal(t, want, *c)
	require.Empty(t, origins)
}

func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "trafficd.yaml")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func TestPrintedConfigurationLoads(t *testing.T) {
	c, origins, err := Load(conf.Options{
		File: file(t, `
registry:
  feeds:
    - product_instance: a
      file: {path: a.csv, column: REPORT_ID}
    - product_instance: b
      http: {url: "https://example.org/detectors", interval: 5m, authorization: Bearer hunter2}
api:
  keys:
    - {name: me, sha256: "`+strings.Repeat("0a", 32)+`", product_instance: a, rights: [ingest]}
pipeline:
  validate:
    measure_types: [{code: speed, min: 0, max: 300}, {code: flow, min: 0}]
    quality_max: 1
kafka:
  sasl: {mechanism: plain, username: u, password: hunter2}
`),
		Set: []string{"clickhouse.enabled=false", "api.listen=:9"},
	})
	require.NoError(t, err)
	var first, second bytes.Buffer
	require.NoError(t, conf.Print(&first, c, origins))
	require.Contains(t, first.String(), "listen: :9 # from --set\n")
	require.NotContains(t, first.String(), "hunter2")
	// Secrets are not printed, so they must be set again.
	again, _, err := Load(conf.Options{File: file(t, first.String()), Environ: []string{"TRAFFICD_KAFKA__SASL__PASSWORD=hunter2"}})
	require.NoError(t, err, first.String())
	again.Registry.Feeds[1].HTTP.Authorization = "Bearer hunter2"
	require.NoError(t, conf.Print(&second, again, nil))
	var plain bytes.Buffer
	require.NoError(t, conf.Print(&plain, c, nil))
	require.Equal(t, plain.String(), second.String())
	require.Equal(t, c.Registry, again.Registry)
	require.Equal(t, c.Pipeline.Validate, again.Pipeline.Validate)
	require.Equal(t, c.Kafka, again.Kafka)
}

// TestContractLimits compares the defaults in table 6.4 of the contract with those of the
// settings, as they are printed.
func TestContractLimits(t *testing.T) {
	var printed bytes.Buffer
	c := Default()
	require.NoError(t, conf.Print(&printed, &c, nil))
	var root yaml.Node
	require.NoError(t, yaml.Unmarshal(printed.Bytes(), &root))
	defaults := map[string]string{}
	var walk func(n *yaml.Node, key string)
	walk = func(n *yaml.Node, key string) {
		switch n.Kind {
		case yaml.MappingNode:
			for i := 0; i+1 < len(n.Content); i += 2 {
				walk(n.Content[i+1], strings.TrimPrefix(key+"."+n.Content[i].Value, "."))
			}
		case yaml.SequenceNode:
			var items []string
			for _, item := range n.Content {
				items = append(items, item.Value)
			}
			defaults[key] = "[" + strings.Join(items, ", ") + "]"
		default:
			defaults[key] = n.Value
		}
	}
	walk(root.Content[0], "")

	text, err := os.ReadFile("../../../schemas/contract/contract.md")
	require.NoError(t, err)
	_, table, _ := strings.Cut(string(text), "\n### 6.4 ")
	table, _, _ = strings.Cut(table, "\n### ")
	compared := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\|[^|]*\\| `([a-z._]+)` \\| ([^|]*) \\|$").FindAllStringSubmatch(table, -1) {
		key, documented := row[1], row[2]
		require.Contains(t, defaults, key)
		require.Equal(t, defaults[key], documented, key)
		compared[key] = true
	}
	require.Len(t, compared, strings.Count(table, "| `"), "each row with a setting is compared")
}

func TestValidateNamesKeyAndOrigin(t *testing.T) {
	f := func(set, env []string, want ...string) {
		t.Helper()
		_, _, err := Load(conf.Options{Set: set, Environ: env})
		require.Error(t, err)
		for _, w := range want {
			require.ErrorContains(t, err, w)
		}
	}
	f([]string{"log.level=loud"}, nil, "log.level is \"loud\"", "from --set")
	f([]string{"log.format=xml"}, nil, "log.format is \"xml\"")
	f([]string{"shutdown_timeout=0s"}, nil, "shutdown_timeout is 0s")
	f([]string{"shutdown_timeout=4s", "api.drain_grace=3s"}, nil, "api.drain_grace is 3s, must be less than three quarters of shutdown_timeout (4s)", "(from --set)")
	f([]string{"memory_limit=1"}, nil, "memory_limit is 1")
	f([]string{"ops.listen=8081"}, nil, "ops.listen", "host:port")
	f(nil, []string{"TRAFFICD_JOURNAL__MAX_BYTES=5"}, "journal.max_bytes", "environment TRAFFICD_JOURNAL__MAX_BYTES")
	f([]string{"kafka.topic=ä"}, nil, "kafka.topic")
	f([]string{"clickhouse.database=1"}, nil, "clickhouse.database")
	f([]string{"api.keys=[{name: a}]"}, nil, "api.keys")
	f([]string{"pipeline.decode.batch_limit=0"}, nil, "pipeline.decode.batch_limit is 0", "(from --set)")
	f([]string{"pipeline.validate.future_tolerance=-1s"}, nil, "pipeline.validate.future_tolerance is -1s")
	f([]string{"journal.kind=kafka", "journal.log.retention=4h59m"}, nil, "journal.log.retention is 4h59m0s, must be at least five times pipeline.idempotency.window (1h0m0s)")
	f([]string{"pipeline.validate.measure_types=[{code: ä}]"}, nil, "pipeline.validate.measure_types[0].code", "(from --set)")
}

// TestAllErrorsAreReported checks that one call reports mistakes of all kinds: in the file,
// unknown keys, wrong types, values out of bounds, several in one section.
func TestAllErrorsAreReported(t *testing.T) {
	_, _, err := Load(conf.Options{
		File: file(t, "nonsense: 1\njournal: {max_bytes: much, max_bytes: 1}\nkafka: {topic: a b, batch_bytes: 1, tls: {cert: x}}\n"),
		Set: []string{
			"nothing", "log.level=loud", "log.format=xml", "ops.listen=8081", "shutdown_timeout=1ms", "memory_limit=1",
			"clickhouse.database=1", "clickhouse.username=", "kafka.brokers=", "kafka.delivery.max_rows=0", "kafka.delivery.linger=1h",
			"pipeline.max_body_bytes=0", "pipeline.idempotency.window=0s", "layers.stale=maybe", "routing.vendor_prefix=x",
			"registry.feeds=[{product_instance: a, file: {column: x}}]", "forecasts.feed=fax", "api.max_connections=0", "ingest.admission_requests=0",
		},
		Environ: []string{"TRAFFICD_KAFKA_TOPIC=x", "TRAFFICD_LAYERS__MAX_STREETS=none"},
	})
	require.Error(t, err)
	for _, want := range []string{
		`unknown key "nonsense"`, `duplicate key "journal.max_bytes"`, `"journal.max_bytes" (`, "--set nothing",
		"log.level is", "log.format is", "ops.listen is", "shutdown_timeout is", "memory_limit is",
		"clickhouse.database is", "clickhouse.username must", "kafka.brokers must", "kafka.delivery.max_rows is", "kafka.delivery.linger is",
		"kafka.topic must", "kafka.batch_bytes is", "kafka.tls.cert and", "kafka.tls.enabled must",
		"pipeline.max_body_bytes is", "pipeline.idempotency.window is", "layers.stale is", "routing.vendor_prefix is",
		"registry.feeds[0].file.path must", "forecasts.feed is", "api.max_connections is", "ingest.admission_requests is",
		`unknown key "kafka_topic"`, `"layers.max_streets" (environment`,
	} {
		require.Contains(t, "\n"+err.Error(), "\n"+want)
	}
}

// TestErrorsDoNotRepeatKeys checks that a key that was set instead of a list of digests is not
// repeated.
func TestErrorsDoNotRepeatKeys(t *testing.T) {
	_, _, err := Load(conf.Options{Set: []string{"api.keys=tfd_Zm9vYmFy"}, Environ: []string{"TRAFFICD_API__KEYS=[tfd_Zm9vYmFy]"}})
	require.ErrorContains(t, err, "api.keys")
	require.NotContains(t, err.Error(), "tfd_")
}

func TestDisabledSinksAreNotValidated(t *testing.T) {
	_, _, err := Load(conf.Options{Set: []string{"kafka.enabled=false", "kafka.brokers=", "clickhouse.enabled=false", "clickhouse.database=1"}})
	require.NoError(t, err)
}

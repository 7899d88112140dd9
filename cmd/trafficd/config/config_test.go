package config

import (
	"bytes"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDefaultsNeedNoFile(t *testing.T) {
	c, origins, err := Load(Options{})
	require.NoError(t, err)
	want := Default()
	want.complete()
	require.Equal(t, want, *c)
	require.Empty(t, origins)
	require.False(t, c.HasKeys())
}

// A field without a tag could not be set, printed or found by nearest.
func TestEveryFieldHasAKey(t *testing.T) {
	var walk func(typ reflect.Type, at string)
	walk = func(typ reflect.Type, at string) {
		for typ.Kind() == reflect.Slice || typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Map {
			typ = typ.Elem()
		}
		if !isSection(typ) {
			return
		}
		fields := fieldsOf(typ)
		squashed := 0
		for i := range typ.NumField() {
			if f := typ.Field(i); f.Anonymous {
				squashed += len(fieldsOf(f.Type)) - 1
			} else if !f.IsExported() || f.Tag.Get("koanf") == "-" {
				squashed--
			}
		}
		require.Equal(t, typ.NumField()+squashed, len(fields), "%s (%s) has a field without a koanf tag", at, typ)
		for _, f := range fields {
			walk(f.typ, join(at, f.name))
		}
	}
	walk(reflect.TypeFor[Config](), "")
}

func TestWhatIsPrintedLoadsAgain(t *testing.T) {
	c, origins, err := Load(Options{
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
	require.NoError(t, Print(&first, c, origins))
	require.Contains(t, first.String(), "listen: :9 # from --set\n")
	require.NotContains(t, first.String(), "hunter2")
	// A secret is left out of the print and has to come from elsewhere again.
	again, _, err := Load(Options{File: file(t, first.String()), Environ: []string{"TRAFFICD_KAFKA__SASL__PASSWORD=hunter2"}})
	require.NoError(t, err, first.String())
	again.Registry.Feeds[1].HTTP.Authorization = "Bearer hunter2"
	require.NoError(t, Print(&second, again, nil))
	var plain bytes.Buffer
	require.NoError(t, Print(&plain, c, nil))
	require.Equal(t, plain.String(), second.String())
	require.Equal(t, c.Registry, again.Registry)
	require.Equal(t, c.Pipeline.Validate, again.Pipeline.Validate)
	require.Equal(t, c.Kafka, again.Kafka)
}

func TestValidateNamesKeyAndOrigin(t *testing.T) {
	f := func(set, env []string, want ...string) {
		t.Helper()
		_, _, err := Load(Options{Set: set, Environ: env})
		require.Error(t, err)
		for _, w := range want {
			require.ErrorContains(t, err, w)
		}
	}
	f([]string{"log.level=loud"}, nil, "log.level is \"loud\"", "from --set")
	f([]string{"log.format=xml"}, nil, "log.format is \"xml\"")
	f([]string{"shutdown_timeout=0s"}, nil, "shutdown_timeout is 0s")
	f([]string{"memory_limit=1"}, nil, "memory_limit is 1")
	f([]string{"ops.listen=8081"}, nil, "ops.listen", "host:port")
	f(nil, []string{"TRAFFICD_JOURNAL__SEGMENT_BYTES=5"}, "journal.segment_bytes", "environment TRAFFICD_JOURNAL__SEGMENT_BYTES")
	f([]string{"kafka.topic=ä"}, nil, "kafka.topic")
	f([]string{"clickhouse.database=1"}, nil, "clickhouse.database")
	f([]string{"api.keys=[{name: a}]"}, nil, "api.keys")
	// all at once
	f([]string{"log.level=loud", "clickhouse.database=1", "kafka.brokers="}, nil, "log.level", "clickhouse.database", "kafka.brokers")
}

func TestADisabledSinkIsNotValidated(t *testing.T) {
	_, _, err := Load(Options{Set: []string{"kafka.enabled=false", "kafka.brokers=", "clickhouse.enabled=false", "clickhouse.database=1"}})
	require.NoError(t, err)
}

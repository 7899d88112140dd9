package conf

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// sample is a configuration with a field of each type that the sections use.
type sample struct {
	Timeout time.Duration `setting:"timeout"`
	Store   sampleStore   `setting:"store"`
	Feeds   []sampleFeed  `setting:"feeds"`
}

// sampleStore can be disabled, like the sinks.
type sampleStore struct {
	Enabled      bool `setting:"enabled"`
	SampleCommon `setting:",squash"`
}

type SampleCommon struct {
	Addresses []string      `setting:"addresses"`
	Password  string        `setting:"password"`
	MaxBytes  int64         `setting:"max_bytes"`
	Rows      int           `setting:"rows"`
	Share     float64       `setting:"share"`
	Create    *sampleCreate `setting:"create"`
}

type sampleCreate struct {
	Partitions int `setting:"partitions"`
}

type sampleFeed struct {
	Name string     `setting:"name"`
	HTTP sampleHTTP `setting:"http"`
}

type sampleHTTP struct {
	Interval time.Duration `setting:"interval"`
	Token    string        `setting:"token"`
}

func sampleDefault() sample {
	return sample{
		Timeout: 30 * time.Second,
		Store:   sampleStore{Enabled: true, SampleCommon: SampleCommon{Addresses: []string{"one:9000", "two:9000"}, MaxBytes: 1 << 30, Rows: 10}},
	}
}

func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "trafficd.yaml")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func TestPrecedence(t *testing.T) {
	f := func(yaml string, env, set []string, flags []Flag, want int, wantFrom string) {
		t.Helper()
		c := sampleDefault()
		o := Options{Environ: env, Set: set, Flags: flags}
		if yaml != "" {
			o.File = file(t, yaml)
		}
		origins, err := Load(&c, o)
		require.NoError(t, err)
		require.Equal(t, want, c.Store.Rows)
		require.Contains(t, origins["store.rows"], wantFrom)
	}
	yaml, env, set := "store:\n  rows: 2\n", []string{"TRAFFICD_STORE__ROWS=3"}, []string{"store.rows=4"}
	f("# defaults only", nil, nil, nil, 10, "")
	f(yaml, nil, nil, nil, 2, "trafficd.yaml, line 2")
	f(yaml, env, nil, nil, 3, "environment TRAFFICD_STORE__ROWS")
	f(yaml, env, set, nil, 4, "--set")
	f(yaml, env, set, []Flag{{Name: "rows", Key: "store.rows", Value: "5"}}, 5, "--rows")
	f("# defaults only", nil, []string{"store.rows=6", "store.rows=7"}, nil, 7, "--set")
}

func TestValues(t *testing.T) {
	f := func(yaml, set string, change func(*sample)) {
		t.Helper()
		want := sampleDefault()
		change(&want)
		fromFile, fromText := sampleDefault(), sampleDefault()
		_, err := Load(&fromFile, Options{File: file(t, yaml)})
		require.NoError(t, err)
		require.Equal(t, want, fromFile)
		if set != "" {
			_, err = Load(&fromText, Options{Set: []string{set}})
			require.NoError(t, err)
			require.Equal(t, want, fromText)
		}
	}
	same := func(*sample) {}
	f("# only a comment\n", "", same)
	f("store:\n", "", same) // an empty section
	f("---\ntimeout: 1m30s\n...\n---\n# nothing more\n", "", func(s *sample) { s.Timeout = 90 * time.Second })
	f("store:\n  rows:\n", "", same)
	f("timeout: 1m30s", "timeout=1m30s", func(s *sample) { s.Timeout = 90 * time.Second })
	f("store: {addresses: [a]}", "store.addresses=a", func(s *sample) { s.Store.Addresses = []string{"a"} })
	f("store: {addresses: [a, b, c]}", "store.addresses=a, b,c", func(s *sample) { s.Store.Addresses = []string{"a", "b", "c"} })
	f("store: {addresses: []}", "store.addresses=", func(s *sample) { s.Store.Addresses = []string{} })
	f("store: {addresses: [a]}", "store.addresses=[a]", func(s *sample) { s.Store.Addresses = []string{"a"} })
	f("store: {password: '12=3'}", "store.password=12=3", func(s *sample) { s.Store.Password = "12=3" })
	f("store: {max_bytes: 64MiB}", "store.max_bytes=64MiB", func(s *sample) { s.Store.MaxBytes = 64 << 20 })
	f("store: {max_bytes: 9223372036854775807}", "store.max_bytes=9223372036854775807", func(s *sample) { s.Store.MaxBytes = math.MaxInt64 })
	f("store: {max_bytes: 1e6}", "store.max_bytes=1e6", func(s *sample) { s.Store.MaxBytes = 1_000_000 })
	f("store: {max_bytes: -1}", "store.max_bytes=-1", func(s *sample) { s.Store.MaxBytes = -1 })
	f("store: {share: 1}", "store.share=1", func(s *sample) { s.Store.Share = 1 })
	f("store: {share: 0.25}", "store.share=0.25", func(s *sample) { s.Store.Share = 0.25 })
	f("store: {enabled: false}", "store.enabled=false", func(s *sample) { s.Store.Enabled = false })
	f("store: {create: {partitions: 6}}", "store.create={partitions: 6}", func(s *sample) { s.Store.Create = &sampleCreate{Partitions: 6} })
	f("feeds: [{name: x, http: {interval: 5s}}]", "feeds=[{name: x, http: {interval: 5s}}]", func(s *sample) {
		s.Feeds = []sampleFeed{{Name: "x", HTTP: sampleHTTP{Interval: 5 * time.Second}}}
	})
}

func TestErrors(t *testing.T) {
	f := func(o Options, want ...string) {
		t.Helper()
		c := sampleDefault()
		_, err := Load(&c, o)
		require.Error(t, err)
		for _, w := range want {
			require.Contains(t, err.Error(), w)
		}
	}
	yaml := func(text string) Options { return Options{File: file(t, text)} }
	set := func(s ...string) Options { return Options{Set: s} }
	env := func(s ...string) Options { return Options{Environ: s} }

	// Errors about unknown keys name their origin and the nearest key.
	f(yaml("store:\n  row: 2\n"), `unknown key "store.row"`, "trafficd.yaml, line 2", `did you mean "store.rows"?`)
	f(yaml("stroe:\n  rows: 2\n"), `unknown key "stroe"`, "line 1", `did you mean "store"?`)
	f(set("store.rwos=1"), `unknown key "store.rwos" (--set)`, `did you mean "store.rows"?`)
	f(yaml("STORE: {Rows: 2}\n"), `unknown key "STORE"`, `did you mean "store"?`)
	f(set("Store.Rows=1"), `unknown key "Store.Rows"`, `did you mean "store.rows"?`)
	f(yaml("feeds: [{HTTP: {interval: 5s}}]"), `unknown key "feeds[0].HTTP"`, `did you mean "feeds[0].http"?`)
	f(env("TRAFFICD_STORE__ROWZ=1"), `"store.rowz"`, "did you mean TRAFFICD_STORE__ROWS?")
	f(env("TRAFFICD_STORE_ROWS=1"), "environment TRAFFICD_STORE_ROWS", "did you mean TRAFFICD_STORE__ROWS?")
	f(yaml("store: {host: x}"), `unknown key "store.host"`, "line 1): the keys there are enabled, addresses, password, max_bytes, rows, share, create")
	f(yaml("feeds: [{name: x}, {http: {interva: 5s}, path: y}]"),
		`unknown key "feeds[1].http.interva" (`, `line 1): did you mean "feeds[1].http.interval"?`,
		`unknown key "feeds[1].path" (`, "line 1): the keys there are name, http")

	// Wrong values.
	f(set("timeout=5"), `"timeout" (--set) cannot be 5: must be a duration with its unit`)
	f(set("timeout=soon"), `cannot be "soon"`, "duration with its unit")
	f(set("store.rows=1.5"), "must be a whole number")
	f(yaml("store: {rows: yes}"), "store.rows", "line 1", "must be a whole number")
	f(set("store.max_bytes=9999999999GiB"), "must be a whole number")
	f(set("store.max_bytes="), "store.max_bytes", "empty")
	f(set("store.enabled=maybe"), `"store.enabled" (--set) cannot be "maybe": must be true or false`)
	f(yaml("store: {addresses: {a: 1}}"), `"store.addresses" (`, "line 1) cannot be this value: must be a list, such as [a, b]")
	f(yaml("store: {addresses: 127.0.0.1}"), `"store.addresses" (`, `line 1) cannot be "127.0.0.1": must be a list, such as [a, b]`)
	f(yaml("store: {addresses: [a, 9000]}"), `"store.addresses[1]" (`, "line 1) cannot be 9000: must be text in quotes")
	f(yaml("store: {password: 1, share: a}"), `"store.password" (`, "cannot be this value: must be text in quotes", `"store.share" (`, "must be a number")
	f(yaml("store: {create: 6}"), `"store.create" (`, "must be a section, such as {partitions: …}")
	f(yaml("feeds: {name: x}"), `"feeds" (`, "must be a list, such as [{name: …}]")
	f(yaml("feeds: [x, {name: 2026-12-25, http: {interval: 5}}]"), `"feeds[0]" (`, "must be a section, such as {name: …}",
		`"feeds[1].name" (`, "must be text in quotes", `"feeds[1].http.interval" (`, "cannot be 5: must be a duration with its unit")
	f(yaml("store: [1]"), `"store"`, "section")
	f(set("store=1"), `"store" (--set) is a section`)
	f(set("rows"), "must be section.key=value")
	f(yaml("store: {rows: 1, rows: 2}"), `duplicate key "store.rows"`)
	f(yaml("timeout"), "cannot parse the configuration", "trafficd.yaml: it must contain keys")
	f(yaml("store: {"), "cannot parse the configuration")
	f(yaml(""), "trafficd.yaml is empty")
	f(yaml("timeout: 5s\n---\ntimeout: 6s\n"), "trafficd.yaml", "more than one YAML document")
	f(Options{File: "/nonexistent/trafficd.yaml"}, "cannot read the configuration", "/nonexistent/trafficd.yaml")

	// All errors are reported together.
	o := set("store.rows=x", "nothing.here=1", "timeout=1")
	o.File = file(t, "store: {share: much}")
	f(o, "store.share", "store.rows", "nothing.here", "timeout")
}

func TestSecretsStayOutOfErrors(t *testing.T) {
	const feeds = "[{name: 1, http: {token: [hunter2]}}]"
	for _, o := range []Options{
		{File: file(t, "store: {password: [hunter2]}\nfeeds: "+feeds)},
		{Environ: []string{"TRAFFICD_STORE__PASSWORD__X=hunter2", "TRAFFICD_FEEDS=" + feeds}},
		{Set: []string{"store.password.x=hunter2", "feeds=" + feeds}},
		{Set: []string{"store.password.x=hunter2", "feeds=[{http: {token: hunter2}"}}, // invalid YAML
	} {
		c := sampleDefault()
		_, err := Load(&c, o)
		require.ErrorContains(t, err, "store.password")
		require.ErrorContains(t, err, "feeds")
		require.NotContains(t, err.Error(), "hunter2")
	}
}

func TestUnrelatedVariables(t *testing.T) {
	c := sampleDefault()
	origins, err := Load(&c, Options{Environ: []string{
		"TRAFFICD_PORT=tcp://10.0.0.1:80", "TRAFFICD_KEY=abc", "TRAFFICD_SERVICE_HOST=10.0.0.1", "HOME=/", "STORE__ROWS=5", "TRAFFICD_TIMEOUT=5s",
	}})
	require.NoError(t, err)
	require.Equal(t, Origins{"timeout": "environment TRAFFICD_TIMEOUT"}, origins)
	require.Equal(t, 5*time.Second, c.Timeout)
}

func TestPrefix(t *testing.T) {
	c := sampleDefault()
	_, err := Load(&c, Options{Prefix: "OTHER_", Environ: []string{"TRAFFICD_TIMEOUT=5s", "OTHER_STORE__ROWS=3", "OTHER_STORE__ROWZ=3"}})
	require.ErrorContains(t, err, "did you mean OTHER_STORE__ROWS?")
	require.Equal(t, sampleDefault().Timeout, c.Timeout)
	require.EqualValues(t, 3, c.Store.Rows)
}

func TestPrintLoadRoundTrip(t *testing.T) {
	f := func(change func(*sample)) {
		t.Helper()
		want := sampleDefault()
		change(&want)
		var first, second bytes.Buffer
		require.NoError(t, Print(&first, &want, nil))
		var got sample // without defaults: everything must have been printed
		_, err := Load(&got, Options{File: file(t, first.String())})
		require.NoError(t, err, first.String())
		require.NoError(t, Print(&second, &got, nil))
		require.Equal(t, first.String(), second.String())
		require.Equal(t, fmt.Sprintf("%+v", want.Store.Addresses), fmt.Sprintf("%+v", got.Store.Addresses))
		require.Equal(t, want.Store.MaxBytes, got.Store.MaxBytes)
	}
	f(func(*sample) {})
	f(func(s *sample) { s.Store.Addresses = []string{} })
	f(func(s *sample) { s.Store.MaxBytes = 1<<30 + 1 })
	f(func(s *sample) { s.Store.Addresses = []string{"yes", "012", "", "a: b", "#"} })
	f(func(s *sample) { s.Store.Create = &sampleCreate{Partitions: 3} })
	f(func(s *sample) {
		s.Feeds = []sampleFeed{{Name: "1"}, {Name: "ü", HTTP: sampleHTTP{Interval: time.Minute}}}
	})
}

func TestPrintMasksSecretsAndNamesOrigins(t *testing.T) {
	c := sampleDefault()
	c.Store.Password = "hunter2"
	c.Feeds = []sampleFeed{{Name: "https://me:hunter2@example.org/a?b=c", HTTP: sampleHTTP{Token: "hunter2"}}}
	var out bytes.Buffer
	require.NoError(t, Print(&out, &c, Origins{"store.password": "environment X", "store.rows": "--set", "feeds": "a.yaml, line 7"}))
	require.NotContains(t, out.String(), "hunter2")
	require.Contains(t, out.String(), `password: "" # secret, not shown; from environment X`)
	require.Contains(t, out.String(), `name: https://me@example.org/a?b= # secret, not shown`)
	require.Contains(t, out.String(), `token: "" # secret, not shown`)
	require.Contains(t, out.String(), "rows: 10 # from --set")
	require.Contains(t, out.String(), "feeds: # from a.yaml, line 7\n")
	require.Contains(t, out.String(), "max_bytes: 1GiB\n")
}

func TestNearest(t *testing.T) {
	keys := schema{
		{name: "kafka"},
		{name: "kafka.brokers"},
		{name: "kafka.request_timeout"},
		{name: "kafka.tls"},
		{name: "kafka.sasl"},
		{name: "kafka.topic"},
		{name: "clickhouse"},
		{name: "clickhouse.addresses"},
		{name: "clickhouse.cluster"},
		{name: "clickhouse.table"},
		{name: "clickhouse.username"},
		{name: "journal"},
		{name: "journal.dir"},
	}
	f := func(wrong, want string, others ...string) {
		t.Helper()
		near, keys := keys.nearest(wrong)
		require.Equal(t, want, near)
		require.Equal(t, others, keys)
	}
	f("kafka.broker", "kafka.brokers")
	f("kafak.topic", "kafka.topic")
	f("kafka_request_timeout", "kafka.request_timeout")
	f("kafka.topic.name", "kafka.topic")
	f("journal.directory", "journal.dir")
	f("clickhouse.user", "clickhouse.username")
	f("clickhouse.addr", "clickhouse.addresses")
	f("clickhouse.host", "", "addresses", "cluster", "table", "username")
	f("kafka.bootstrap_servers", "", "brokers", "request_timeout", "tls", "sasl", "topic")
	f("kafka.ssl", "", "brokers", "request_timeout", "tls", "sasl", "topic")
	f("something.else.entirely", "", "kafka", "clickhouse", "journal")
}

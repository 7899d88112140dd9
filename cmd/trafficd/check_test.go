package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"trafficd/cmd/dev/devstores/stores"
	"trafficd/cmd/dev/launch"
)

// checkConfig runs trafficd --check-config with settings in an empty directory. It returns the
// standard output or, if not ok, the errors.
func checkConfig(t *testing.T, mode string, settings ...string) (out string, ok bool) {
	t.Helper()
	args := []string{mode}
	for _, s := range settings {
		args = append(args, "--set", s)
	}
	cmd := exec.Command(binary, args...)
	cmd.Dir = t.TempDir()
	out, ok = output(cmd)
	left, readErr := os.ReadDir(cmd.Dir)
	require.NoError(t, readErr)
	require.Empty(t, left, "a check creates nothing")
	return out, ok
}

// output returns the standard output of a command or, if it fails, its errors.
func output(cmd *exec.Cmd) (out string, ok bool) {
	text, err := cmd.Output()
	if failed, failure := errors.AsType[*exec.ExitError](err); failure {
		text = failed.Stderr
	}
	return string(text), err == nil
}

// requireProblems checks that the output has one line for each problem, which starts with one of
// want, and no others.
func requireProblems(t *testing.T, out string, want ...string) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(out), "\n")
	require.Equal(t, "trafficd: cannot use the configuration:", lines[0])
	for _, w := range want {
		require.Contains(t, "\n"+out, "\n  "+w)
	}
	require.Len(t, lines[1:], len(want), out)
}

// TestCheckConfigReportsEverythingAtOnce checks that one run reports mistakes of all kinds: keys,
// types, bounds, files, certificates, directories, stores.
func TestCheckConfigReportsEverythingAtOnce(t *testing.T) {
	out, _ := checkConfig(t, "--check-config=deep",
		"kafka.toppic=x", "nonsense", "api.listen=:99999", "ui.forecaster=http://forecaster:8081",
		"journal.max_bytes=much", "log.level=loud", "memory_limit=1", "ops.listen=8081",
		"pipeline.max_body_bytes=0", "layers.stale=maybe", "routing.vendor_prefix=x", "clickhouse.write_timeout=0s", "kafka.batch_bytes=1",
		"api.keys_file=/nowhere/keys.yaml", "api.tls_cert=/nowhere/crt", "api.tls_key=/nowhere/key",
		"kafka.tls.enabled=true", "kafka.tls.ca=/nowhere/ca", "clickhouse.tls.enabled=true", "clickhouse.tls.ca=/dev/null",
		"journal.dir=/dev/null/journal", "dead_letters=/dev/null/dead.ndjson",
		"registry.feeds=[{product_instance: a, file: {path: /nowhere/a.csv}}, {product_instance: b, http: {url: 'http://127.0.0.1:1/'}}, {product_instance: c, clickhouse: {address: '127.0.0.1:1', query: SELECT 1, tls: {enabled: true, ca: /nowhere/b}}}]",
		"forecasts.feed=kafka", "forecasts.kafka.brokers=127.0.0.1:1",
		"kafka.sasl.mechanism=PLAIN", "kafka.sasl.username=u", "kafka.sasl.password=p")
	requireProblems(t, out,
		"--set nonsense", `unknown key "kafka.toppic"`, `"journal.max_bytes" (--set) cannot be "much"`,
		"log.level is ", "memory_limit is ", "ops.listen is ", "api.listen is ", "ui.forecaster is ",
		"pipeline.max_body_bytes is ", "layers.stale is ", "routing.vendor_prefix is ",
		"clickhouse.write_timeout is ", "kafka.batch_bytes is ",
		"api.keys_file: cannot read the keys file: open /nowhere/keys.yaml", "api.tls_cert and api.tls_key: cannot load the certificate /nowhere/crt (api.tls_cert) with the key /nowhere/key (api.tls_key): ",
		"kafka.tls.ca: cannot read the CA certificates: open /nowhere/ca", "clickhouse.tls.ca: no CA certificate in",
		"journal.dir: cannot write to /dev/null/journal: stat /dev/null/journal: not a directory (from --set)", "dead_letters: ",
		"registry.feeds[0].file: cannot read /nowhere/a.csv: no such file or directory (from --set)", "registry.feeds[1].http: ",
		"registry.feeds[2].clickhouse.tls.ca: ", "forecasts.kafka.brokers: cannot connect to 127.0.0.1:1: ",
	)
}

// TestCheckConfigReportsNoConsequences checks that an error is reported once: stores are not
// checked with the defaults of settings that are invalid, and files without a path are not read.
func TestCheckConfigReportsNoConsequences(t *testing.T) {
	f := func(settings []string, want ...string) {
		t.Helper()
		out, _ := checkConfig(t, "--check-config=deep", append(settings, "clickhouse.enabled=false")...)
		requireProblems(t, out, want...)
	}
	unreachable := "kafka.brokers: cannot connect to 127.0.0.1:1: "
	f([]string{"kafka.brokers=127.0.0.1:1"}, unreachable)
	f([]string{"kafka.brokers=127.0.0.1:1", "pipeline.max_body_bytes=0"}, unreachable, "pipeline.max_body_bytes is 0")
	f([]string{"kafka.brokers=[9092]"}, `"kafka.brokers[0]" (--set) cannot be 9092: must be text in quotes`)
	f([]string{"kafka.broker=a:1"}, `unknown key "kafka.broker" (--set): did you mean "kafka.brokers"?`)
	f([]string{"kafak.brokers=a:1"}, `unknown key "kafak.brokers" (--set): did you mean "kafka.brokers"?`)
	f([]string{"kafka.delivery.max_rows=0"}, "kafka.delivery.max_rows is 0")
	f([]string{"kafka.tls.enabled=true", "kafka.tls.cert=c.pem"}, "kafka.tls.cert and tls.key must be set together")
	f([]string{"kafka.enabled=false", "journal.kind=kafka", "journal.log.brokers=[9092]"}, `"journal.log.brokers[0]" (--set) cannot be 9092: must be text in quotes`)
	f([]string{"kafka.enabled=false", "forecasts.feed=file"}, "forecasts.file.path must be set")
	f([]string{"kafka.enabled=false", "registry.feeds=[{product_instance: a, file: {}}]"}, "registry.feeds[0].file.path must be set")
}

// TestCheckConfigShowsAbsolutePaths checks that errors about files with relative paths show where
// they are expected.
func TestCheckConfigShowsAbsolutePaths(t *testing.T) {
	cmd := exec.Command(binary, "--check-config", "--set", "api.keys_file=keys.yaml", "--set", "dead_letters=missing/dead.ndjson",
		"--set", "registry.feeds=[{product_instance: a, file: {path: detectors.csv}}]")
	cmd.Dir = t.TempDir()
	out, _ := output(cmd)
	requireProblems(t, out,
		"api.keys_file: cannot read the keys file: open "+cmd.Dir+"/keys.yaml: no such file or directory (from --set)",
		"dead_letters: cannot write the dead-letter file: write to "+cmd.Dir+"/missing: no such file or directory (from --set)",
		"registry.feeds[0].file: cannot read "+cmd.Dir+"/detectors.csv: no such file or directory (from --set)")
	cmd = exec.Command(binary, "--config", "trafficd.yaml", "--check-config")
	cmd.Dir = t.TempDir()
	out, _ = output(cmd)
	requireProblems(t, out, "cannot read the configuration: open "+cmd.Dir+"/trafficd.yaml: no such file or directory")
}

func TestCheckConfigAcceptsOnlyDeep(t *testing.T) {
	for _, mode := range []string{"deeper", ""} {
		out, ok := checkConfig(t, "--check-config="+mode, "kafka.toppic=x") // a daemon would not start either
		require.False(t, ok)
		require.Contains(t, out, fmt.Sprintf(`invalid argument %q for "--check-config" flag: must be files (the default) or deep`, mode))
	}
}

// TestCheckConfigReportsDeadLetterFile checks that a dead-letter file that the daemon could not
// write is reported.
func TestCheckConfigReportsDeadLetterFile(t *testing.T) {
	f := func(path, want string) {
		t.Helper()
		out, ok := checkConfig(t, "--check-config", "dead_letters="+path)
		require.Equal(t, want == "", ok, out)
		if want != "" {
			requireProblems(t, out, "dead_letters: "+want)
		}
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "dead.ndjson")
	f("", "")
	f(file, "")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	f(file, "")
	f(dir, "cannot write the dead-letter file: open "+dir+": is a directory")
	f(filepath.Join(dir, "missing", "dead.ndjson"), "cannot write the dead-letter file: write to "+filepath.Join(dir, "missing")+": no such file or directory")
}

// TestCheckConfigWarns checks that a check says what is allowed but dangerous, and what the lists
// contain.
func TestCheckConfigWarns(t *testing.T) {
	list := filepath.Join(t.TempDir(), "list.csv")
	require.NoError(t, os.WriteFile(list, []byte("detectorCode;longitude;latitude\n1;10.2;56.1\n2;10,2;56,1\n3;;\n4,71E+05;10.3;56.2\n"), 0o600))
	f := func(want []string, settings ...string) {
		t.Helper()
		out, ok := checkConfig(t, "--check-config=deep", append(settings, "clickhouse.enabled=false", "kafka.enabled=false", "journal.min_free_bytes=0")...)
		require.True(t, ok, out)
		require.Equal(t, append(want, "the configuration is valid"), slices.DeleteFunc(strings.Split(strings.TrimSpace(out), "\n"),
			func(line string) bool { return strings.Contains(line, "is in a temporary directory") }))
	}
	off := "warning: no sink enabled: accepted measurements are discarded; set clickhouse.enabled or kafka.enabled"
	f([]string{off})
	for _, open := range []string{"0.0.0.0:8081", ":8081", "[::]:8081"} {
		f([]string{off, "warning: ops.listen: " + open + " accepts connections from all networks, without a key: " +
			"let a firewall restrict them, or use 127.0.0.1"}, "ops.listen="+open)
	}
	f([]string{
		off,
		"city: 4 detectors (1, 2, … 4,71E+05), 2 without coordinates",
		`warning: city: line 3: longitude is "10,2", must be a number of degrees such as 56.15`,
		`warning: city: line 5: the code "4,71E+05" looks like a longer number that a spreadsheet has rounded: format the column as text`,
	}, "registry.feeds=[{product_instance: city, file: {path: "+list+", separator: ';'}}]")

	out, ok := checkConfig(t, "--check-config", "journal.dir=/tmp/trafficd/journal", "dead_letters=/tmpfile/../var/tmp/dead.ndjson", "journal.min_free_bytes=0")
	require.True(t, ok, out)
	require.Contains(t, out, "warning: journal.dir: /tmp/trafficd/journal is in a temporary directory")
	require.Contains(t, out, "warning: dead_letters: /var/tmp/dead.ndjson is in a temporary directory")
}

// TestCheckConfigReadsFiles checks that lists, forecasts and keys in files are checked without
// connecting to the stores, even if the files have just been written.
func TestCheckConfigReadsFiles(t *testing.T) {
	dir := t.TempDir()
	file := func(name, content string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		return path
	}
	f := func(settings []string, want ...string) {
		t.Helper()
		out, ok := checkConfig(t, "--check-config", settings...)
		require.Equal(t, len(want) == 0, ok, out)
		if len(want) > 0 {
			requireProblems(t, out, want...)
		}
	}
	list, empty := file("detectors.csv", "detectorCode,lane\nD1,1\n"), file("empty.csv", "detectorCode\n")
	feed := func(path, column string) string {
		return fmt.Sprintf("registry.feeds=[{product_instance: city, file: {column: %s, path: %s}}]", column, path)
	}
	f([]string{feed(list, "detectorCode")})
	f([]string{feed(list, "code")}, `registry.feeds[0].file: cannot read `+list+`: `)
	f([]string{feed(empty, "detectorCode")}, `registry.feeds[0].file: product instance city: the list has no detector codes`)
	forecasts := file("forecasts.ndjson", "{")
	f([]string{"forecasts.feed=file", "forecasts.file.path=" + forecasts}, "forecasts.file: cannot use "+forecasts+": ")

	keys := file("keys.yaml", "keys: [{name: acme, product_instance: town, rights: [ingest], sha256: "+strings.Repeat("0a", 32)+"}]")
	f([]string{feed(list, "detectorCode"), "api.keys_file=" + keys},
		`registry.feeds: product instance "town": key "acme" has the ingest right, but no feed in registry.feeds has its product instance`)
	f([]string{strings.Replace(feed(list, "detectorCode"), "city", "town", 1), "api.keys_file=" + keys})
	f([]string{strings.Replace(feed(list, "detectorCode"), "product_instance: city", "instance_column: lane", 1), "api.keys_file=" + keys})
	f([]string{"api.keys_file=" + file("bad.yaml", "{}")}, `api.keys_file: cannot use the keys file `+dir+`/bad.yaml: missing list "keys"`)
	f([]string{"ops.listen=127.0.0.1:8080"}, `ops.listen is "127.0.0.1:8080", must not be api.listen`)
	f([]string{"ops.listen=127.0.0.1:0", "api.listen=127.0.0.1:0"})
}

func TestDeepCheckClickHouse(t *testing.T) {
	store := stores.StartClickHouse(t)
	f := func(settings []string, want ...string) {
		t.Helper()
		out, ok := checkConfig(t, "--check-config=deep", append([]string{"kafka.enabled=false", "clickhouse.addresses=" + store.TCP}, settings...)...)
		require.Equal(t, len(want) == 0, ok, out)
		if len(want) > 0 {
			requireProblems(t, out, want...)
		}
	}
	f(nil) // it may create the tables
	require.Equal(t, "0", store.Query(t, "SELECT count() FROM system.databases WHERE name = 'trafficd'"))
	f([]string{"clickhouse.migrate=false"}, "clickhouse.migrate: table `trafficd`.`measurements` does not exist on "+store.TCP+": run trafficd migrate")
	f([]string{"clickhouse.username=reader", "clickhouse.password=reader"},
		`clickhouse.username: user "reader" lacks a grant on `+store.TCP+": GRANT INSERT ON `trafficd`.`measurements` TO reader",
		`clickhouse.username: user "reader" lacks a grant on `+store.TCP+": GRANT CREATE ARBITRARY TEMPORARY TABLE ON *.* TO reader",
		`clickhouse.username: user "reader" lacks a grant on `+store.TCP+": GRANT TABLE ENGINE ON * TO reader",
		`clickhouse.username: user "reader" lacks a grant on `+store.TCP+": GRANT INSERT ON `trafficd`.`measurements_blocks` TO reader",
		`clickhouse.username: user "reader" lacks a grant on `+store.TCP+": GRANT INSERT ON `trafficd`.`measurements_by_time` TO reader",
		`clickhouse.username: user "reader" lacks a grant on `+store.TCP+": GRANT INSERT ON `trafficd`.`measurements_hours` TO reader",
		`clickhouse.username: user "reader" lacks a grant on `+store.TCP+": GRANT INSERT ON `trafficd`.`measurements_last` TO reader",
		`clickhouse.username: user "reader" lacks a grant on `+store.TCP+": GRANT INSERT ON `trafficd`.`measurements_registry` TO reader",
		`clickhouse.username: user "reader" lacks a grant on `+store.TCP+": GRANT INSERT ON `trafficd`.`measurements_units` TO reader",
		`clickhouse.username: user "reader" lacks a grant on `+store.TCP+": GRANT INSERT ON `trafficd`.`measurements_receipts` TO reader",
		`clickhouse.username: user "reader" lacks a grant on `+store.TCP+": GRANT CREATE DATABASE ON `trafficd`.* TO reader",
		`clickhouse.username: user "reader" lacks a grant on `+store.TCP+": GRANT CREATE TABLE ON `trafficd`.* TO reader",
		`clickhouse.username: user "reader" lacks a grant on `+store.TCP+": GRANT CREATE VIEW ON `trafficd`.* TO reader",
		`clickhouse.username: user "reader" lacks a grant on `+store.TCP+": GRANT DROP VIEW ON `trafficd`.* TO reader",
		`clickhouse.username: user "reader" lacks a grant on `+store.TCP+": GRANT DROP TABLE ON `trafficd`.* TO reader",
		`clickhouse.username: user "reader" lacks a grant on `+store.TCP+": GRANT ALTER TABLE ON `trafficd`.* TO reader",
		`clickhouse.username: user "reader" lacks a grant on `+store.TCP+": GRANT INSERT ON `trafficd`.schema_migrations TO reader")
	f([]string{"clickhouse.addresses=127.0.0.1:1"}, "clickhouse.addresses: cannot connect to 127.0.0.1:1: ")
	f([]string{"clickhouse.addresses=" + store.HTTP}, "clickhouse.addresses: cannot connect to "+store.HTTP)

	migrate := exec.Command(binary, "migrate", "--set", "clickhouse.addresses="+store.TCP)
	text, err := migrate.CombinedOutput()
	require.NoError(t, err, string(text))
	f([]string{"clickhouse.migrate=false"})
	store.Query(t, "ALTER TABLE trafficd.measurements MODIFY COLUMN value Float32")
	f(nil, "clickhouse.table: "+store.TCP+": cannot insert into `trafficd`.`measurements`: unexpected column: value is Float32 in the table, must be Float64")
	store.Query(t, "ALTER TABLE trafficd.measurements MODIFY COLUMN value Float64 CODEC(ZSTD(1))")
	store.Query(t, "DROP TABLE trafficd.measurements")
	store.Query(t, "DROP TABLE trafficd.measurements_last")
	f(nil, "clickhouse.table: measurements, measurements_last of database trafficd on "+store.TCP+" do not exist any more: restore them, or run trafficd migrate")
	f([]string{"clickhouse.migrate=false"}, "clickhouse.migrate: table `trafficd`.`measurements` does not exist on "+store.TCP+": run trafficd migrate")
	text, err = exec.Command(binary, migrate.Args[1:]...).CombinedOutput()
	require.NoError(t, err, string(text))
	require.Contains(t, string(text), "creating dropped tables again")
	f(nil)
	store.Query(t, "DROP TABLE trafficd.measurements_last")
	f([]string{"clickhouse.migrate=false"}, "clickhouse.migrate: table `trafficd`.`measurements_last` does not exist on "+store.TCP+": run trafficd migrate")
	text, err = exec.Command(binary, migrate.Args[1:]...).CombinedOutput()
	require.NoError(t, err, string(text))

	address, ca, other := terminateTLS(t, store.TCP)
	f([]string{"clickhouse.addresses=" + address, "clickhouse.tls.enabled=true", "clickhouse.tls.ca=" + ca})
	f([]string{"clickhouse.addresses=" + address, "clickhouse.tls.enabled=true", "clickhouse.tls.ca=" + other},
		"clickhouse.tls.enabled, tls.ca, tls.cert and tls.server_name: cannot establish TLS with "+address+": tls: failed to verify certificate")

	feed := "registry.feeds=[{product_instance: a, clickhouse: {address: '" + store.TCP + "', username: %s, password: '', query: %s}}]"
	f([]string{fmt.Sprintf(feed, "default", "SELECT toString(number) FROM numbers(3)")})
	f([]string{fmt.Sprintf(feed, "default", "SELECT number FROM numbers(3)")}, "registry.feeds[0].clickhouse: cannot query ClickHouse at "+store.TCP+": the first column and the column of the product instance must hold strings")
	f([]string{fmt.Sprintf(feed, "default", "SELECT '' WHERE 0")}, "registry.feeds[0].clickhouse: product instance a: the list has no detector codes")
	f([]string{"forecasts.feed=clickhouse", "forecasts.clickhouse.address=" + store.TCP, "forecasts.clickhouse.username=default", "forecasts.clickhouse.query=SELECT 1 AS street"},
		"forecasts.clickhouse: cannot query ClickHouse at "+store.TCP)

	f([]string{"clickhouse.username=trafficd", "clickhouse.password=wrong"}, "clickhouse.username and password: "+store.TCP+` rejects user "trafficd"`)
	f([]string{"clickhouse.enabled=false", fmt.Sprintf(feed, "reader", "SELECT 1")}, "registry.feeds[0].clickhouse.username and password: ")
	f([]string{"clickhouse.tls.enabled=true"}, "clickhouse.")
	f(nil) // the store still runs
}

// terminateTLS forwards TLS connections to an address. It returns its own address, and the files of
// its certificate authority and of another one.
func terminateTLS(t *testing.T, to string) (address, ca, other string) {
	t.Helper()
	config, ca, other := authorities(t)
	l, err := tls.Listen("tcp", "127.0.0.1:0", config)
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() { // until Close
		for c, err := l.Accept(); err == nil; c, err = l.Accept() {
			server, err := net.Dial("tcp", to)
			if err != nil {
				_ = c.Close()
				continue
			}
			go func() { _, _ = io.Copy(server, c); _ = server.Close() }()
			go func() { _, _ = io.Copy(c, server); _ = c.Close() }()
		}
	}()
	return l.Addr().String(), ca, other
}

// authorities returns a server certificate for 127.0.0.1, and the files of its authority and of
// another one.
func authorities(t *testing.T) (config *tls.Config, ca, other string) {
	t.Helper()
	dir := t.TempDir()
	ca, other = filepath.Join(dir, "ca.pem"), filepath.Join(dir, "other.pem")
	writeCertificate(t, other, filepath.Join(dir, "other.key"), 2)
	writeCertificate(t, ca, filepath.Join(dir, "ca.key"), 1)
	pair, err := tls.LoadX509KeyPair(ca, filepath.Join(dir, "ca.key"))
	require.NoError(t, err)
	return &tls.Config{Certificates: []tls.Certificate{pair}}, ca, other
}

// deepKafka checks a configuration whose only sink is Kafka.
func deepKafka(t *testing.T, settings []string, want ...string) {
	t.Helper()
	out, ok := checkConfig(t, "--check-config=deep", append([]string{"clickhouse.enabled=false"}, settings...)...)
	require.Equal(t, len(want) == 0, ok, out)
	if len(want) > 0 {
		requireProblems(t, out, want...)
	}
}

func TestDeepCheckKafka(t *testing.T) {
	t.Parallel()
	k := stores.StartKafka(t, stores.Topic("measurements", 2))
	brokers := "kafka.brokers=" + strings.Join(k.Brokers, ",")
	create := func(topic, setting, value string) {
		t.Helper()
		require.NoError(t, launch.CreateTopic(t.Context(), k.Brokers, topic, 1, map[string]*string{setting: &value}))
	}
	create("expiring", "cleanup.policy", "delete")
	create("compacted", "cleanup.policy", "compact")
	create("small", "max.message.bytes", "10000")
	create("strict", "min.insync.replicas", "7")
	deepKafka(t, []string{brokers})
	deepKafka(t, []string{brokers + ",127.0.0.1:1"}, "kafka.brokers: cannot connect to 127.0.0.1:1: ")
	deepKafka(t, []string{brokers, "kafka.topic=missing"}, `kafka.topic: topic "missing" does not exist: create it, or set kafka.create_topic.partitions`)
	deepKafka(t, []string{brokers, "kafka.topic=missing", "kafka.create_topic.partitions=3"})
	deepKafka(t, []string{brokers, "kafka.topic=missing", "kafka.create_topic.partitions=3", "kafka.create_topic.replication_factor=9"}, `kafka.create_topic: cannot create topic "missing": `)
	deepKafka(t, []string{brokers, "kafka.topic=compacted"}, `kafka.topic: topic "compacted" has cleanup.policy compact, `)
	deepKafka(t, []string{brokers, "kafka.topic=small"}, `kafka.batch_bytes is 921600, but topic "small" has max.message.bytes 10000: `)
	deepKafka(t, []string{brokers, "kafka.topic=strict"}, `kafka.topic: topic "strict" has `)
	deepKafka(t, []string{brokers, "kafka.tls.enabled=true"}, "kafka.") // brokers differ: a timeout, an EOF

	forecasts := []string{"kafka.enabled=false", "forecasts.feed=kafka", "forecasts.kafka.brokers=" + k.Brokers[0]}
	deepKafka(t, append(forecasts, "forecasts.kafka.topic=compacted"))
	deepKafka(t, append(forecasts, "forecasts.kafka.topic=expiring"), `forecasts.kafka.topic: topic "expiring" has cleanup.policy delete, `)
	deepKafka(t, append(forecasts, "forecasts.kafka.topic=missing"), `forecasts.kafka.topic: topic "missing" does not exist`)
	require.Zero(t, k.Count(t, "measurements"))
}

func TestDeepCheckKafkaSecurity(t *testing.T) {
	t.Parallel()
	config, ca, other := authorities(t)
	allow := func(operation kmsg.ACLOperation, resource kmsg.ACLResourceType, name string) kfake.ACL {
		return kfake.ACL{Resource: resource, Name: name, Pattern: kmsg.ACLResourcePatternTypeLiteral, Operation: operation, Allow: true}
	}
	describe := allow(kmsg.ACLOperationDescribe, kmsg.ACLResourceTypeTopic, "measurements")
	const topic = kmsg.ACLResourceTypeTopic
	c := stores.StartKfake(t, kfake.SeedTopics(1, "measurements"), kfake.SeedTopics(6, "trafficd.log"), kfake.TLS(config), kfake.EnableSASL(), kfake.EnableACLs(),
		kfake.Superuser("PLAIN", "admin", "secret"),
		kfake.User("PLAIN", "blind", "secret"),
		kfake.User("PLAIN", "viewer", "secret", describe,
			allow(kmsg.ACLOperationDescribe, topic, "trafficd.log"), allow(kmsg.ACLOperationDescribe, topic, "missing")),
		kfake.User("PLAIN", "replica", "secret", allow(kmsg.ACLOperationRead, topic, "trafficd.log"),
			allow(kmsg.ACLOperationDescribeConfigs, topic, "trafficd.log"),
			allow(kmsg.ACLOperationWrite, topic, "trafficd.log"), allow(kmsg.ACLOperationRead, kmsg.ACLResourceTypeGroup, "trafficd.kafka")))
	settings := func(more ...string) []string {
		return append([]string{
			"kafka.brokers=" + c.ListenAddrs()[0], "kafka.tls.enabled=true", "kafka.tls.ca=" + ca,
			"kafka.sasl.mechanism=plain", "kafka.sasl.username=admin", "kafka.sasl.password=secret",
		}, more...)
	}
	deepKafka(t, settings())
	deepKafka(t, settings("kafka.tls.ca="+other), "kafka.tls.enabled, tls.ca, tls.cert and tls.server_name: cannot establish TLS with "+c.ListenAddrs()[0]+": ")
	deepKafka(t, settings("kafka.sasl.password=wrong"), "kafka.sasl and tls.enabled: "+c.ListenAddrs()[0]+" closes the connection: ")
	deepKafka(t, settings("kafka.sasl.mechanism=scram-sha-512"), "kafka.sasl")
	deepKafka(t, settings("kafka.sasl.username=blind"), `kafka.topic: cannot describe topic "measurements": `)
	deepKafka(t, settings("kafka.sasl.username=viewer"),
		`kafka.topic: cannot read the settings of topic "measurements": `,
		"kafka.sasl.username: cannot get a producer ID from ", `kafka.sasl.username: cannot write to topic "measurements": `,
		`kafka.sasl.username: cannot read topic "measurements": `)

	log := func(user, topic string, want ...string) {
		t.Helper()
		deepKafka(t, settings("journal.kind=kafka", "journal.log.brokers="+c.ListenAddrs()[0], "journal.log.topic="+topic,
			"journal.log.max_frame_bytes=900KiB", // kfake's topics take no larger messages
			"journal.log.tls.enabled=true", "journal.log.tls.ca="+ca,
			"journal.log.sasl.mechanism=plain", "journal.log.sasl.username="+user, "journal.log.sasl.password=secret"), want...)
	}
	log("replica", "trafficd.log")
	log("viewer", "trafficd.log", `journal.log.group: cannot read the cursors of group "trafficd.kafka": `,
		`journal.log.topic: cannot read the settings of topic "trafficd.log": `,
		`journal.log.sasl.username: cannot write to topic "trafficd.log": `, `journal.log.sasl.username: cannot read topic "trafficd.log": `)
	log("viewer", "missing", `journal.log.group: cannot read the cursors of group "trafficd.kafka": `, `journal.log.topic: cannot create topic "missing": `)
}

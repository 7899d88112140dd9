package kafka

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"trafficd/cmd/dev/launch"
)

func TestProperties(t *testing.T) {
	f := func(opts launch.Options, id int, want ...string) {
		t.Helper()
		opts.KafkaPorts, opts.Controllers, opts.Partitions = []int{1, 2, 3}[:opts.Brokers], []int{11, 12, 13}[:opts.Brokers], 6
		lines := strings.Split(string(node{opts: opts, id: id, dir: "/d"}.properties()), "\n")
		for _, line := range want {
			require.Contains(t, lines, line)
		}
		last := map[string]int{}
		for i, line := range lines {
			key, _, _ := strings.Cut(line, "=")
			last[key] = i
		}
		for key, value := range opts.Properties {
			require.Equal(t, key+"="+value, lines[last[key]], "the caller's value comes last")
		}
	}
	f(launch.Options{Brokers: 1}, 1, "node.id=1", "num.partitions=6", "offsets.topic.replication.factor=1", "default.replication.factor=1", "log.dirs=/d/data",
		"listeners=PLAINTEXT://127.0.0.1:1,CONTROLLER://127.0.0.1:11", "controller.quorum.voters=1@127.0.0.1:11")
	f(launch.Options{Brokers: 3}, 3, "node.id=3", "offsets.topic.replication.factor=3", "advertised.listeners=PLAINTEXT://127.0.0.1:3",
		"controller.quorum.voters=1@127.0.0.1:11,2@127.0.0.1:12,3@127.0.0.1:13")
	f(launch.Options{Brokers: 2, Advertised: []string{"127.0.0.1:7001", "127.0.0.1:7002"}}, 2,
		"listeners=PLAINTEXT://127.0.0.1:2,CONTROLLER://127.0.0.1:12", "advertised.listeners=PLAINTEXT://127.0.0.1:7002")
	f(launch.Options{Brokers: 1, Properties: map[string]string{"producer.id.expiration.ms": "1000", "num.partitions": "2"}}, 1,
		"producer.id.expiration.ms=1000", "num.partitions=2")
}

func TestCheckSize(t *testing.T) {
	opts := launch.Options{Dir: t.TempDir(), Brokers: 3}
	require.NoError(t, checkSize(opts), "empty")
	require.NoError(t, os.Mkdir(filepath.Join(opts.Dir, "node-1"), 0o755))
	require.ErrorContains(t, checkSize(opts), "it contains a cluster of 1")
	opts.Brokers = 1
	require.NoError(t, checkSize(opts))
}

func TestApacheVersion(t *testing.T) {
	require.Regexp(t, `^\d+\.\d+\.\d+$`, apacheVersion())
}

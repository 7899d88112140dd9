package kafka

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"trafficd/cmd/internal/launch"
)

func TestProperties(t *testing.T) {
	f := func(brokers int, set map[string]string, want ...string) {
		t.Helper()
		a := &apache{cfg: Config{Dir: "/d", Brokers: brokers, Ports: []int{1, 2, 3}[:brokers], Partitions: 6, Properties: set}, controllers: []int{11, 12, 13}[:brokers]}
		lines := strings.Split(string(a.properties(brokers)), "\n")
		for _, line := range want {
			require.Contains(t, lines, line)
		}
	}
	f(1, nil, "node.id=1", "num.partitions=6", "offsets.topic.replication.factor=1", "default.replication.factor=1", "log.dirs=/d/node-1/data",
		"listeners=PLAINTEXT://127.0.0.1:1,CONTROLLER://127.0.0.1:11", "controller.quorum.voters=1@127.0.0.1:11")
	f(3, nil, "node.id=3", "offsets.topic.replication.factor=3", "advertised.listeners=PLAINTEXT://127.0.0.1:3",
		"controller.quorum.voters=1@127.0.0.1:11,2@127.0.0.1:12,3@127.0.0.1:13")
	f(1, map[string]string{"producer.id.expiration.ms": "1000", "num.partitions": "2"}, "producer.id.expiration.ms=1000", "num.partitions=2")
}

func TestCheckSize(t *testing.T) {
	dir := t.TempDir()
	a := &apache{cfg: Config{Dir: dir, Brokers: 3}}
	require.NoError(t, a.checkSize(), "empty")
	require.NoError(t, os.Mkdir(filepath.Join(dir, "node-1"), 0o755))
	require.ErrorContains(t, a.checkSize(), "it contains a cluster of 1")
	a.cfg.Brokers = 1
	require.NoError(t, a.checkSize())
}

func TestApacheVersion(t *testing.T) {
	require.Regexp(t, `^\d+\.\d+\.\d+$`, apacheVersion())
}

func TestMavenLog(t *testing.T) {
	var l mavenLog
	for _, line := range []string{"[INFO] Downloaded from a: x (1 kB)\n", "[INFO] Copying x.jar to y\n", "[ERROR] no such\n", "[INFO] fine\n"} {
		_, err := l.Write([]byte(line))
		require.NoError(t, err)
	}
	require.EqualValues(t, 2, l.files())
	require.Equal(t, "[ERROR] no such\n", l.errors())
}

func TestAdvertised(t *testing.T) {
	f := func(advertised []string, want ...string) {
		t.Helper()
		a := &apache{cfg: Config{Brokers: 2, Ports: []int{9001, 9002}, Advertised: advertised}, controllers: []int{9003, 9004}}
		for i, w := range want {
			p := a.network(i + 1)
			require.Equal(t, "PLAINTEXT://"+w, p["advertised.listeners"])
			require.Contains(t, p["listeners"], []string{"127.0.0.1:9001", "127.0.0.1:9002"}[i])
		}
	}
	f(nil, "127.0.0.1:9001", "127.0.0.1:9002")
	f([]string{"127.0.0.1:7001", "127.0.0.1:7002"}, "127.0.0.1:7001", "127.0.0.1:7002")
}

func TestAdvertisedBounds(t *testing.T) {
	c := Config{Kind: launch.Apache, Brokers: 2, Partitions: 1, Advertised: []string{"127.0.0.1:7001"}}
	require.ErrorContains(t, c.validate(), "cannot advertise 1 addresses for 2 brokers")
	c.Advertised = append(c.Advertised, "127.0.0.1:7002")
	require.NoError(t, c.validate())
	c.Kind = launch.Kfake
	require.ErrorContains(t, c.validate(), "cannot advertise another address with kfake")
}

func TestNodeBounds(t *testing.T) {
	good := Config{Kind: launch.Apache, Brokers: 3, Partitions: 1, Node: 2, Ports: []int{1, 2, 3}, Controllers: []int{4, 5, 6}}
	require.NoError(t, good.validate())
	require.Equal(t, []int{2}, good.nodes())
	require.Equal(t, []int{1, 2, 3}, Config{Brokers: 3}.nodes())
	f := func(want string, change func(*Config)) {
		t.Helper()
		c := good
		change(&c)
		require.ErrorContains(t, c.validate(), want)
	}
	f("node 4 of 3", func(c *Config) { c.Node = 4 })
	f("node -1 of 3", func(c *Config) { c.Node = -1 })
	f("with broker kind apache", func(c *Config) { c.Kind = launch.Kfake })
	f("without the others' ports", func(c *Config) { c.Ports = []int{1, 2} })
	f("without the others' ports", func(c *Config) { c.Ports = []int{0, 2, 3} })
	f("without the others' ports", func(c *Config) { c.Controllers = nil })
}

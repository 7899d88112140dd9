package kafka

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
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

func TestRefusesAFolderOfAnotherSize(t *testing.T) {
	dir := t.TempDir()
	a := &apache{cfg: Config{Dir: dir, Brokers: 3}}
	require.NoError(t, a.checkSize(), "empty")
	require.NoError(t, os.Mkdir(filepath.Join(dir, "node-1"), 0o755))
	require.ErrorContains(t, a.checkSize(), "it holds a cluster of 1")
	a.cfg.Brokers = 1
	require.NoError(t, a.checkSize())
}

func TestApacheVersionIsThePomsOne(t *testing.T) {
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

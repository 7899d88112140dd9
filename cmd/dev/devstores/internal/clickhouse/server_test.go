package clickhouse

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"trafficd/cmd/dev/launch"
)

func TestFindServerChecksVersion(t *testing.T) {
	f := func(script, want string) {
		t.Helper()
		bin := t.TempDir()
		program := filepath.Join(bin, "clickhouse")
		if script != "" {
			require.NoError(t, os.WriteFile(program, []byte("#!/bin/sh\n"+script), 0o755))
		}
		t.Setenv("PATH", bin)
		found, err := findServer(t.Context())
		if want != "" {
			require.ErrorContains(t, err, want)
			return
		}
		require.NoError(t, err)
		require.Equal(t, program, found)
	}
	f("echo 'ClickHouse server version 26.3.1.100 (official build).'", "")
	f("echo 'ClickHouse server version 24.1.1.1.'", "")
	f("echo 'ClickHouse server version 18.16.1.'", "its version 18.16.1 is older than 24.1")
	f("echo hello", "cannot find a version")
	f("exit 1", "cannot get the version")
	f("", "cannot find a ClickHouse server")
}

// TestServerCommand checks that the server has no watchdog, its own directory, and only the
// configuration that devstores wrote.
func TestServerCommand(t *testing.T) {
	h, err := makeHome(t.TempDir())
	require.NoError(t, err)
	cmd := engine{KindServer, "/opt/clickhouse"}.command(h, 9001, 8124, launch.Options{})
	require.Equal(t, []string{"/opt/clickhouse", "server", "--config-file=" + h.path("config.xml")}, cmd.Args)
	require.Equal(t, string(h), cmd.Dir)
	require.Contains(t, cmd.Env, "CLICKHOUSE_WATCHDOG_ENABLE=0")
}

func TestConfigContainsPortsAndDirectory(t *testing.T) {
	h, err := makeHome(filepath.Join(t.TempDir(), "a & b"))
	require.NoError(t, err)
	require.NoError(t, h.writeConfig(launch.Options{MergeTree: map[string]string{"parts_to_delay_insert": "7"}}, 9001, 8124))
	written, err := os.ReadFile(h.path("config.xml"))
	require.NoError(t, err)
	for _, want := range []string{
		"<tcp_port>9001</tcp_port>", "<http_port>8124</http_port>", "<listen_host>127.0.0.1</listen_host>",
		"<parts_to_delay_insert>7</parts_to_delay_insert>", "<path>" + strings.ReplaceAll(string(h), "&", "&amp;") + "/data/</path>",
	} {
		require.Contains(t, string(written), want)
	}
}

// TestRemovePartLog checks that a directory is removed with its contents, and that a symbolic link
// and its target are kept.
func TestRemovePartLog(t *testing.T) {
	h, err := makeHome(t.TempDir())
	require.NoError(t, err)
	require.NoError(t, h.removePartLog(), "no log before the first start")

	system := h.path("data/data/system")
	log, other := filepath.Join(system, "part_log"), filepath.Join(system, "query_log")
	require.NoError(t, os.MkdirAll(filepath.Join(log, "all_1_1_0"), 0o755))
	require.NoError(t, os.MkdirAll(other, 0o755))
	require.NoError(t, h.removePartLog())
	require.NoDirExists(t, log)
	require.DirExists(t, other)

	require.NoError(t, os.Symlink(other, log))
	require.NoError(t, h.removePartLog())
	_, err = os.Readlink(log)
	require.NoError(t, err)
	require.DirExists(t, other)
}

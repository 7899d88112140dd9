// Package setup tests .ci/setup, the script that installs what `make run` and `make test` need.
package setup

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"trafficd/cmd/dev/needs"
)

// machine is a PATH with the commands of a minimal system and fakes of those that would change it.
type machine struct {
	t    *testing.T
	dir  string
	bin  string
	env  []string
	path string // of the script
}

func newMachine(t *testing.T, uid string) *machine {
	t.Helper()
	m := &machine{t: t, dir: t.TempDir(), env: []string{"UID_OF_TEST=" + uid}}
	m.bin = filepath.Join(m.dir, "bin")
	require.NoError(t, os.Mkdir(m.bin, 0o755))
	for _, name := range []string{"bash", "cat", "dirname", "env", "touch", "grep"} {
		require.NoError(t, os.Symlink(needs.Program(t, name), filepath.Join(m.bin, name)))
	}
	m.command("go", "exit 0")
	m.command("id", `echo "$UID_OF_TEST"`)
	m.command("apt-get", `echo "apt-get $*" >>"$MACHINE/log"
case $* in *install*) touch "$MACHINE/installed" ;; esac`)
	m.command("sudo", `echo "sudo $*" >>"$MACHINE/log"
while [ "$1" = -n ]; do shift; done
exec "$@"`)
	script, err := os.ReadFile("../../../.ci/setup")
	require.NoError(t, err)
	m.path = filepath.Join(m.dir, "setup")
	require.NoError(t, os.WriteFile(m.path, script, 0o755))
	m.needs(`[ -e "$MACHINE/installed" ] || echo "kcat   a Kafka client
xz-utils   packs data"`)
	return m
}

func (m *machine) command(name, script string) {
	m.t.Helper()
	require.NoError(m.t, os.WriteFile(filepath.Join(m.bin, name), []byte("#!/usr/bin/env bash\n"+script+"\n"), 0o755))
}

func (m *machine) needs(script string) {
	m.t.Helper()
	require.NoError(m.t, os.WriteFile(filepath.Join(m.dir, "needs"), []byte("#!/usr/bin/env bash\n"+script+"\n"), 0o755))
}

// run returns what the script printed, and the installation commands it called.
func (m *machine) run(env ...string) (output, calls string, err error) {
	m.t.Helper()
	cmd := exec.Command(filepath.Join(m.bin, "bash"), m.path, "test")
	cmd.Env = append(append([]string{"PATH=" + m.bin, "MACHINE=" + m.dir}, m.env...), env...)
	text, err := cmd.CombinedOutput()
	log, _ := os.ReadFile(filepath.Join(m.dir, "log"))
	return string(text), string(log), err
}

func TestNothingMissing(t *testing.T) {
	m := newMachine(t, "0")
	m.needs("exit 0")
	output, calls, err := m.run()
	require.NoError(t, err)
	require.Empty(t, output)
	require.Empty(t, calls)
}

func TestRootInstalls(t *testing.T) {
	m := newMachine(t, "0")
	output, calls, err := m.run()
	require.NoError(t, err, output)
	require.Contains(t, output, "make test needs Debian packages")
	require.Contains(t, output, "kcat   a Kafka client\nxz-utils   packs data\n")
	require.Equal(t, "apt-get update -q\napt-get install -y -q --no-install-recommends kcat xz-utils\n", calls)
	output, _, err = m.run()
	require.NoError(t, err)
	require.Empty(t, output, "the second time nothing is missing")
}

// TestOthersInstallWithSudo checks that sudo does not wait for a password without a terminal.
func TestOthersInstallWithSudo(t *testing.T) {
	_, calls, err := newMachine(t, "1000").run()
	require.NoError(t, err)
	require.Contains(t, calls, "sudo -n apt-get update")
	require.Contains(t, calls, "sudo -n env DEBIAN_FRONTEND=noninteractive apt-get install")
}

func TestSetupStops(t *testing.T) {
	f := func(change func(*machine), env string, want ...string) {
		t.Helper()
		m := newMachine(t, "1000")
		change(m)
		output, calls, err := m.run(env)
		require.Error(t, err)
		for _, w := range want {
			require.Contains(t, output, w)
		}
		require.NotContains(t, strings.ReplaceAll(calls, "sudo -n ", ""), "apt-get install -y")
	}
	remove := func(name string) func(*machine) {
		return func(m *machine) { require.NoError(t, os.Remove(filepath.Join(m.bin, name))) }
	}
	f(func(*machine) {}, "SETUP=no", "SETUP=no: nothing was installed", "apt-get install -y -q --no-install-recommends kcat xz-utils")
	f(remove("apt-get"), "", "kcat   a Kafka client", "apt-get is not available")
	f(remove("sudo"), "", "As root: apt-get install --no-install-recommends kcat xz-utils")
	f(remove("go"), "", "Go is missing")
	f(func(m *machine) { m.command("apt-get", "echo no network >&2; exit 100") }, "", "no network", "apt-get update failed")
}

func TestStillMissing(t *testing.T) {
	m := newMachine(t, "0")
	m.needs("echo 'kcat   a Kafka client'")
	output, _, err := m.run()
	require.Error(t, err)
	require.Contains(t, output, "still missing after the installation:\n\nkcat")
}

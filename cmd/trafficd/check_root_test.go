package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"trafficd/cmd/dev/needs"
)

// TestCheckConfigAsServiceUser checks that a check as root reports files that only root can read.
func TestCheckConfigAsServiceUser(t *testing.T) {
	needs.Everything(t, "root")
	require.Zero(t, os.Geteuid(), "run all tests as root")
	dir := t.TempDir()
	require.NoError(t, os.Chmod(filepath.Dir(dir), 0o755))
	require.NoError(t, os.Chmod(dir, 0o755))
	list, users := filepath.Join(dir, "list.csv"), filepath.Join(dir, "passwd")
	require.NoError(t, os.WriteFile(list, []byte("detectorCode\nD1\n"), 0o600))
	require.NoError(t, os.WriteFile(users, []byte("root:x:0:0::/:/bin/sh\ntrafficd:x:4711:4711::/:/bin/false\n"), 0o644))
	program := filepath.Join(dir, "trafficd")
	require.NoError(t, exec.Command("cp", binary, program).Run())
	check := func() (string, error) {
		cmd := exec.Command("unshare", "--mount", "sh", "-c", `mount --bind "$1" /etc/passwd && shift && exec "$@"`, "sh", users, program,
			"--check-config", "--set", "registry.feeds=[{product_instance: city, file: {path: "+list+"}}]",
			"--set", "journal.dir="+filepath.Join(dir, "journal"))
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	out, err := check()
	require.Error(t, err)
	require.Contains(t, out, "checking as the user trafficd\n")
	require.Contains(t, out, "registry.feeds[0].file: cannot read "+list+": permission denied")
	require.Contains(t, out, "journal.dir: cannot write to "+dir+": permission denied")
	require.NoError(t, os.Chmod(list, 0o644))
	require.NoError(t, os.Chmod(dir, 0o777))
	out, err = check()
	require.NoError(t, err, out)
	require.Contains(t, out, "city: 1 detector (D1), 1 without coordinates\n")
}

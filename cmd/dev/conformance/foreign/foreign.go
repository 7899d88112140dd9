// Package foreign fetches and runs the programs of others with which conformance tests the daemon.
package foreign

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"trafficd/cmd/dev/daemontest"
	"trafficd/cmd/dev/launch"
	"trafficd/cmd/dev/needs"
)

// Fetched returns the cached directory with the packages of name. The file pins fixes their
// versions, and its digest is part of the directory's name. If the entry is missing, fill is called
// with an empty directory.
func Fetched(t *testing.T, name, pins string, fill func(dir string)) string {
	t.Helper()
	needs.Everything(t, "packages from a registry ("+name+")")
	text, err := os.ReadFile(pins)
	require.NoError(t, err)
	root := cacheRoot(t)
	require.NoError(t, os.MkdirAll(root, 0o755))
	dir := filepath.Join(root, fmt.Sprintf("%s-%x", name, sha256.Sum256(text))[:len(name)+9])
	defer lock(t, dir+".lock")()
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		return dir
	}
	unfinished := dir + ".unfinished" // always the same name, so that the remains of a killed run are removed
	require.NoError(t, os.RemoveAll(unfinished))
	require.NoError(t, os.Mkdir(unfinished, 0o755))
	fill(unfinished)
	require.NoError(t, os.Rename(unfinished, dir))
	return dir
}

// cacheRoot returns the cache for toolkits, which is next to the cache of the stores (package
// devstores).
func cacheRoot(t *testing.T) string {
	t.Helper()
	base := os.Getenv("TRAFFICD_CACHE")
	if base == "" {
		module, err := launch.ModuleRoot()
		require.NoError(t, err)
		base = filepath.Join(module, ".cache")
	}
	root, err := filepath.Abs(filepath.Join(base, "toolkits"))
	require.NoError(t, err)
	return root
}

// lock prevents concurrent test runs from filling the same entry. The kernel releases it if its
// holder dies.
func lock(t *testing.T, path string) (unlock func()) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	require.NoError(t, err)
	require.NoError(t, syscall.Flock(int(f.Fd()), syscall.LOCK_EX))
	return func() { f.Close() }
}

// Fetch runs a package manager, which downloads, and prints progress.
func Fetch(t *testing.T, what, program string, args ...string) {
	t.Helper()
	started := time.Now()
	fmt.Fprintf(os.Stderr, "fetching %s with %s …\n", what, program)
	alive := time.NewTicker(5 * time.Second)
	defer alive.Stop()
	ended := make(chan error, 1)
	go func() {
		cmd := exec.Command(program, args...)
		// A Node.js that is not Debian's trusts only its own authorities, not those of the system.
		const authorities = "/etc/ssl/certs/ca-certificates.crt"
		if _, err := os.Stat(authorities); err == nil && os.Getenv("NODE_EXTRA_CA_CERTS") == "" {
			cmd.Env = append(os.Environ(), "NODE_EXTRA_CA_CERTS="+authorities)
		}
		text, err := cmd.CombinedOutput()
		if err != nil {
			err = fmt.Errorf("cannot fetch %s with %s: %w\n%s", what, program, err, daemontest.LastBytes(text, 4000))
		}
		ended <- err
	}()
	for {
		select {
		case err := <-ended:
			require.NoError(t, err)
			fmt.Fprintf(os.Stderr, "fetching %s: done in %.1f s\n", what, time.Since(started).Seconds())
			return
		case <-alive.C:
			fmt.Fprintf(os.Stderr, "fetching %s: %.0f s\n", what, time.Since(started).Seconds())
		}
	}
}

// CopyFile copies a file.
func CopyFile(t *testing.T, from, to string) {
	t.Helper()
	text, err := os.ReadFile(from)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(to, text, 0o644))
}

// Jars returns the class path of the dependencies that a Maven project names.
func Jars(t *testing.T, toolkit, pom string) string {
	dir := Fetched(t, toolkit, pom, func(dir string) {
		Fetch(t, toolkit, "mvn", "--batch-mode", "--strict-checksums", "--file", pom, "dependency:copy-dependencies", "-DoutputDirectory="+dir)
	})
	return filepath.Join(dir, "*")
}

// Java returns a command for a short program: the optimising compiler of the JVM would not pay off.
func Java(args ...string) *exec.Cmd {
	return exec.Command("java", append([]string{"-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"}, args...)...)
}

// RunSilent runs a program, which must succeed without output. Any output would be a warning.
func RunSilent(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	text, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s: %s", cmd.Path, daemontest.LastBytes(text, 4000))
	require.Empty(t, string(text), cmd.Path)
}

// Trafficctl returns the path of the program.
func Trafficctl(t *testing.T) string {
	t.Helper()
	path, err := launch.Program(t.Context(), "trafficctl")
	require.NoError(t, err)
	return path
}

// Run runs a program and returns its standard output.
func Run(t *testing.T, program string, args ...string) []byte {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		t.Fatalf("%s: %v\n%s%s", cmd, exit, out, exit.Stderr)
	}
	require.NoError(t, err, "%s is missing: .ci/needs names its package", program)
	return out
}

// Snippets returns the fenced blocks of a document by language. Each language occurs once.
func Snippets(t *testing.T, document string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(document)
	require.NoError(t, err)
	found := make(map[string]string)
	for _, m := range regexp.MustCompile("(?ms)^```([a-z]+)\n(.*?)^```$").FindAllStringSubmatch(string(text), -1) {
		require.NotContains(t, found, m[1], document)
		found[m[1]] = m[2]
	}
	return found
}

// RunDocumented runs a program that a document shows and requires its output and no warnings.
func RunDocumented(t *testing.T, cmd *exec.Cmd, want string, env ...string) {
	t.Helper()
	cmd.Env = append(cmd.Environ(), env...)
	var warnings bytes.Buffer
	cmd.Stderr = &warnings
	got, err := cmd.Output()
	require.NoError(t, err, "%s%s", got, warnings.String())
	require.Equal(t, want, string(got))
	require.Empty(t, warnings.String())
}

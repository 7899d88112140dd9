package main

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"trafficd/cmd/dev/needs"
)

// toolkits is the directory of the programs that use SOAP toolkits.
const toolkits = "testdata/toolkits"

// fetched returns the cached directory with the packages of name. The file pins fixes their
// versions, and its digest is part of the directory's name. If the entry is missing, fill is called
// with an empty directory.
func fetched(t *testing.T, name, pins string, fill func(dir string)) string {
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
		base = "../../.cache"
	}
	root, err := filepath.Abs(filepath.Join(base, "toolkits"))
	require.NoError(t, err)
	return root
}

// lock prevents concurrent test runs from filling the same entry. The kernel releases it if its
// holder dies.
func lock(t *testing.T, path string) (unlock func() error) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	require.NoError(t, err)
	require.NoError(t, syscall.Flock(int(f.Fd()), syscall.LOCK_EX))
	return f.Close
}

// fetch runs a package manager, which downloads, and prints progress.
func fetch(t *testing.T, what, program string, args ...string) {
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
			err = fmt.Errorf("cannot fetch %s with %s: %w\n%s", what, program, err, lastBytes(text, 4000))
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

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	text, err := os.ReadFile(from)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(to, text, 0o644))
}

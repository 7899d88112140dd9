package clickhouse

import (
	"archive/tar"
	"bytes"
	"crypto/sha512"
	"encoding/base64"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/stretchr/testify/require"

	"trafficd/cmd/devstores/internal/cache"
)

// fakeNPM puts an npm on PATH that "fetches" tarball, or fails when that is nil.
func fakeNPM(t *testing.T, tarball []byte) {
	t.Helper()
	bin := t.TempDir()
	script := "#!/bin/sh\necho no such version >&2; exit 1\n"
	if tarball != nil {
		file := filepath.Join(bin, "package.tgz")
		require.NoError(t, os.WriteFile(file, tarball, 0o644))
		// npm pack --silent --cache C --pack-destination D NAME
		script = fmt.Sprintf("#!/bin/sh\ncp %q \"$6\"\n", file)
	}
	require.NoError(t, os.WriteFile(filepath.Join(bin, "npm"), []byte(script), 0o755))
	t.Setenv("PATH", bin+":/usr/bin:/bin")
	t.Setenv(cache.Env, filepath.Join(bin, "cache"))
}

func tarball(t *testing.T, member, content string) []byte {
	t.Helper()
	var packed bytes.Buffer
	zip := gzip.NewWriter(&packed)
	all := tar.NewWriter(zip)
	require.NoError(t, all.WriteHeader(&tar.Header{Name: "package/other", Mode: 0o644}))
	require.NoError(t, all.WriteHeader(&tar.Header{Name: member, Mode: 0o644, Size: int64(len(content))}))
	_, err := io.WriteString(all, content)
	require.NoError(t, err)
	require.NoError(t, all.Close())
	require.NoError(t, zip.Close())
	return packed.Bytes()
}

func integrity(packed []byte) string {
	digest := sha512.Sum512(packed)
	return "sha512-" + base64.StdEncoding.EncodeToString(digest[:])
}

func TestFetch(t *testing.T) {
	good := tarball(t, "package/lib.so", "the engine")
	f := func(packed []byte, integrity, want string) {
		t.Helper()
		fakeNPM(t, packed)
		dir := t.TempDir()
		a := archive{name: "lib@1", integrity: integrity, member: "package/lib.so", packed: 1, unpacked: 1}
		err := a.fetch(t.Context(), dir, io.Discard)
		left, readErr := os.ReadDir(dir)
		require.NoError(t, readErr)
		if want != "" {
			require.ErrorContains(t, err, want)
			return // what is left goes with the cache's unfinished entry
		}
		require.NoError(t, err)
		require.Len(t, left, 1, "the library only")
		content, err := os.ReadFile(filepath.Join(dir, "lib.so"))
		require.NoError(t, err)
		require.Equal(t, "the engine", string(content))
	}
	f(good, integrity(good), "")
	f(good, "sha512-other", "cannot trust lib@1: its integrity is "+integrity(good)+", expected sha512-other")
	f(nil, "", "cannot fetch lib@1 with npm pack: exit status 1: no such version")
	other := tarball(t, "package/other.so", "something else")
	f(other, integrity(other), "there is no package/lib.so in it")
	for n := 0; n < len(good); n += 16 {
		f(good[:n], integrity(good), "cannot trust")
	}
}

// TestMismatchLeavesNothingInTheCache goes the whole way with the pinned integrity and another package.
func TestMismatchLeavesNothingInTheCache(t *testing.T) {
	fakeNPM(t, tarball(t, libraryArchive.member, "not ours"))
	var log strings.Builder
	_, err := fetchLibrary(t.Context(), &log)
	require.ErrorContains(t, err, "nothing of it was kept")
	require.ErrorContains(t, err, libraryArchive.integrity)
	left, err := os.ReadDir(os.Getenv(cache.Env))
	require.NoError(t, err)
	require.Len(t, left, 1, "the lock file")
	require.Equal(t, "libchdb-"+libraryVersion+".lock", left[0].Name())
	require.Contains(t, log.String(), "fetching "+libraryArchive.name)
}

func TestFetchWithoutNPM(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	t.Setenv(cache.Env, t.TempDir())
	_, err := fetchLibrary(t.Context(), io.Discard)
	require.ErrorContains(t, err, "install npm, or put a clickhouse program")
}

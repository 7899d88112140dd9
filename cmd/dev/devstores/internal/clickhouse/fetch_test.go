package clickhouse

import (
	"archive/tar"
	"bytes"
	"crypto/sha512"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/stretchr/testify/require"

	"trafficd/cmd/dev/devstores/internal/cache"
)

// registry serves one package as an npm registry does.
type registry struct {
	packed    []byte
	version   string // default: the pinned one
	integrity string
	tarball   string // URL prefix of the tarball; default: the server's
	token     string // required unless empty
	requests  []string
}

func (r *registry) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.requests = append(r.requests, req.URL.EscapedPath())
	if r.token != "" && req.Header.Get("Authorization") != r.token {
		http.Error(w, "unauthorized", http.StatusUnauthorized)
		return
	}
	if strings.HasSuffix(req.URL.Path, ".tgz") {
		w.Write(r.packed)
		return
	}
	prefix := r.tarball
	if prefix == "" {
		prefix = "http://" + req.Host + "/"
	}
	version := r.version
	if version == "" {
		version = libraryVersion
	}
	fmt.Fprintf(w, `{"versions":{%q:{"dist":{"tarball":"%spkg/-/pkg.tgz","integrity":%q}}}}`, version, prefix, r.integrity)
}

// isolate hides the machine's npm settings from the test and sets the given environment variables.
func isolate(t *testing.T, settings map[string]string) {
	t.Helper()
	for _, line := range os.Environ() {
		if name, _, _ := strings.Cut(line, "="); strings.HasPrefix(strings.ToLower(name), "npm_config_") {
			t.Setenv(name, "")
		}
	}
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("npm_config_globalconfig", filepath.Join(home, "global"))
	t.Setenv(cache.Env, filepath.Join(home, "cache"))
	for name, value := range settings {
		t.Setenv(name, value)
	}
}

func serve(t *testing.T, r *registry) string {
	t.Helper()
	server := httptest.NewServer(r)
	t.Cleanup(server.Close)
	return server.URL
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
	f := func(r registry, pinned, want string) {
		t.Helper()
		isolate(t, map[string]string{"npm_config_registry": serve(t, &r)})
		dir := t.TempDir()
		err := archive{name: "@scope/lib", integrity: pinned, member: "package/lib.so"}.fetch(t.Context(), dir, io.Discard)
		left, readErr := os.ReadDir(dir)
		require.NoError(t, readErr)
		if want != "" {
			require.ErrorContains(t, err, want)
			require.Empty(t, left)
			return
		}
		require.NoError(t, err)
		require.Len(t, left, 1, "the library only")
		content, err := os.ReadFile(filepath.Join(dir, "lib.so"))
		require.NoError(t, err)
		require.Equal(t, "the engine", string(content))
		require.Equal(t, []string{"/@scope%2flib", "/pkg/-/pkg.tgz"}, r.requests)
	}
	f(registry{packed: good}, integrity(good), "")
	f(registry{packed: good, integrity: integrity(good)}, "", "")
	f(registry{packed: good, tarball: defaultRegistry}, integrity(good), "") // a mirror that does not rewrite URLs
	f(registry{packed: good, integrity: integrity(good)}, "sha512-other", "integrity is "+integrity(good)+", expected sha512-other")
	f(registry{packed: good, integrity: "sha512-other"}, "", "expected sha512-other")
	f(registry{packed: good}, "", "expected ;")
	f(registry{packed: good, version: "1.0.0"}, integrity(good), "has no version")
	f(registry{packed: good, token: "Bearer secret"}, integrity(good), "401 Unauthorized")
	other := tarball(t, "package/other.so", "something else")
	f(registry{packed: other}, integrity(other), "no package/lib.so in the archive")
	for n := 0; n < len(good); n += 16 {
		f(registry{packed: good[:n]}, integrity(good), "the download was discarded")
	}
}

func TestFetchUsesNPMSettings(t *testing.T) {
	good := tarball(t, "package/lib.so", "the engine")
	a := archive{name: "@scope/lib", integrity: integrity(good), member: "package/lib.so"}
	f := func(r registry, path, npmrc string, env map[string]string) {
		t.Helper()
		server := serve(t, &r)
		replace := strings.NewReplacer("REGISTRY", server+path, "HOST", strings.TrimPrefix(server, "http:")+path).Replace
		for name, value := range env {
			env[name] = replace(value)
		}
		isolate(t, env)
		require.NoError(t, os.WriteFile(filepath.Join(os.Getenv("HOME"), ".npmrc"), []byte(replace(npmrc)), 0o600))
		require.NoError(t, a.fetch(t.Context(), t.TempDir(), io.Discard))
	}
	bearer := registry{packed: good, token: "Bearer secret"}
	f(registry{packed: good}, "", "registry=REGISTRY\n", nil)
	f(registry{packed: good}, "", "# a comment\n; another\nregistry = \"REGISTRY/\"\n", nil)
	f(registry{packed: good}, "", "registry=http://127.0.0.1:1/\n@scope:registry=REGISTRY\n", nil)
	f(registry{packed: good}, "", "registry=http://127.0.0.1:1/\n", map[string]string{"NPM_CONFIG_REGISTRY": "REGISTRY"})
	f(bearer, "", "registry=REGISTRY\nHOST/:_authToken=secret\n", nil)
	f(bearer, "", "registry=REGISTRY\nHOST/:_authToken=${A_TOKEN}\n", map[string]string{"A_TOKEN": "secret"})
	basic := registry{packed: good, token: "Basic " + base64.StdEncoding.EncodeToString([]byte("me:secret"))}
	password := base64.StdEncoding.EncodeToString([]byte("secret"))
	f(basic, "", "registry=REGISTRY\nHOST/:username=me\nHOST/:_password="+password+"\n", nil)
	f(basic, "", "registry=REGISTRY\nHOST/:_auth="+strings.TrimPrefix(basic.token, "Basic ")+"\n", nil)
}

func TestNPMCredentialsStayWithTheirRegistry(t *testing.T) {
	c := npmConfig{"//a.example/npm/:_authToken": "one", "//a.example/:_authToken": "two"}
	f := func(address, want string) {
		t.Helper()
		u, err := url.Parse(address)
		require.NoError(t, err)
		require.Equal(t, want, c.authorization(u))
	}
	f("https://a.example/npm/@scope%2flib", "Bearer one")
	f("https://a.example/npm/lib/-/lib.tgz", "Bearer one")
	f("https://a.example/other", "Bearer two")
	f("https://a.example", "Bearer two")
	f("https://a.example:8443/npm/lib", "")
	f("https://b.example/npm/lib", "")
}

// TestMismatchLeavesNothingInTheCache checks a download from a registry that returns a package
// whose digest differs from the pinned one.
func TestMismatchLeavesNothingInTheCache(t *testing.T) {
	a, ok := libraries[runtime.GOOS+"/"+runtime.GOARCH]
	require.True(t, ok)
	isolate(t, map[string]string{"npm_config_registry": serve(t, &registry{packed: tarball(t, a.member, "another"), integrity: "sha512-another"})})
	var log strings.Builder
	_, err := fetchLibrary(t.Context(), &log)
	require.ErrorContains(t, err, "the download was discarded")
	require.ErrorContains(t, err, a.integrity)
	require.ErrorContains(t, err, "put a clickhouse binary, version 24.1 or newer, on PATH")
	left, err := os.ReadDir(os.Getenv(cache.Env))
	require.NoError(t, err)
	require.Len(t, left, 1, "the lock file")
	require.Equal(t, "libchdb-"+libraryVersion+".lock", left[0].Name())
	require.Contains(t, log.String(), "downloading "+a.name)
}

// slowReader fills n more buffers, ten a second.
type slowReader struct{ n int }

func (s *slowReader) Read(b []byte) (int, error) {
	if s.n == 0 {
		return 0, io.EOF
	}
	s.n--
	time.Sleep(100 * time.Millisecond)
	return len(b), nil
}

func TestProgressWithoutATerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		var dst bytes.Buffer
		require.NoError(t, copyWithProgress(&dst, &slowReader{50}, &log, "fetching x", 178e6))
		require.Equal(t, 50<<15, dst.Len(), "io.Copy has a buffer of 32 KiB")
		require.Equal(t, "fetching x …\nfetching x: 0 of 178 MB\nfetching x: 1 of 178 MB\nfetching x: done in 5.0 s\n", log.String())
	})
}

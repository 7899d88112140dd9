package main

import (
	"debug/elf"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"github.com/stretchr/testify/require"
)

// images returns the image in the OCI layout for each architecture.
func images(t *testing.T) map[string]v1.Image {
	t.Helper()
	dir := t.TempDir()
	output(t, "tar", "-xf", filepath.Join(built.out, "trafficd-"+testVersion+"-image.oci.tar"), "-C", dir)
	outer, err := layout.ImageIndexFromPath(dir)
	require.NoError(t, err)
	require.NoError(t, validate.Index(outer))
	manifest, err := outer.IndexManifest()
	require.NoError(t, err)
	require.Equal(t, testVersion, manifest.Manifests[0].Annotations["org.opencontainers.image.ref.name"])
	index, err := outer.ImageIndex(manifest.Manifests[0].Digest)
	require.NoError(t, err)
	manifest, err = index.IndexManifest()
	require.NoError(t, err)
	list := map[string]v1.Image{}
	for _, m := range manifest.Manifests {
		list[m.Platform.Architecture], err = index.Image(m.Digest)
		require.NoError(t, err)
	}
	return list
}

func TestImages(t *testing.T) {
	machines := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}
	list := images(t)
	require.Len(t, list, len(architectures))
	for _, arch := range architectures {
		config, err := list[arch].ConfigFile()
		require.NoError(t, err)
		require.Equal(t, arch, config.Architecture)
		require.Equal(t, "65532:65532", config.Config.User)
		require.Equal(t, testVersion, config.Config.Labels["org.opencontainers.image.version"])
		dir := t.TempDir()
		unpackImage(t, list[arch], dir)
		for _, name := range programs {
			program, err := elf.Open(filepath.Join(dir, "usr/bin", name))
			require.NoError(t, err)
			require.Equal(t, machines[arch], program.Machine)
			libraries, err := program.ImportedLibraries()
			require.NoError(t, err)
			require.Empty(t, libraries, "the programs are static")
			program.Close()
		}
		// The archive for `docker load` contains the same image.
		loadable, err := tarball.ImageFromPath(filepath.Join(built.out, "trafficd-"+testVersion+"-image-"+arch+".tar"), nil)
		require.NoError(t, err)
		require.NoError(t, validate.Image(loadable, validate.Fast))
		want, err := list[arch].ConfigName()
		require.NoError(t, err)
		got, err := loadable.ConfigName()
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
}

func unpackImage(t *testing.T, image v1.Image, to string) {
	t.Helper()
	content := mutate.Extract(image)
	defer content.Close()
	unpack := exec.Command("tar", "-x", "--preserve-permissions", "--no-same-owner", "-C", to)
	unpack.Stdin = content
	text, err := unpack.CombinedOutput()
	require.NoError(t, err, "%s", text)
}

// TestImageRuns starts the daemon as in a container with a read-only root: with only the files of
// the image, as its user without capabilities, and with a writable volume for the journal. It uses
// the image's health check.
func TestImageRuns(t *testing.T) {
	image := images(t)[runtime.GOARCH]
	config, err := image.ConfigFile()
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o755))
	unpackImage(t, image, dir)
	journal := t.TempDir()
	require.NoError(t, os.Chown(journal, imageUser, imageUser), "run the test as root")

	api, ops := freeAddress(t), freeAddress(t)
	inside := func(command ...string) *exec.Cmd {
		script := `mount --bind "$0" "$0" && mount --bind "$1" "$0/var/lib/trafficd" && mount -o remount,bind,ro "$0" &&
root=$0 && shift && exec setpriv --no-new-privs /usr/sbin/chroot --userspec=65532:65532 "$root" "$@"`
		args := append([]string{"--mount", "--propagation", "private", "sh", "-c", script, dir, journal}, command...)
		cmd := exec.Command("unshare", args...)
		cmd.Env = append(config.Config.Env, "TRAFFICD_API__LISTEN="+api, "TRAFFICD_OPS__LISTEN="+ops, "TRAFFICD_LOG__FORMAT=json")
		return cmd
	}
	var log strings.Builder
	daemon := inside(append(config.Config.Entrypoint, config.Config.Cmd...)...)
	daemon.Stdout, daemon.Stderr = &log, &log
	require.NoError(t, daemon.Start())
	ended := make(chan error, 1)
	go func() { ended <- daemon.Wait() }()
	t.Cleanup(func() { _ = daemon.Process.Kill() })

	check := config.Config.Healthcheck.Test
	require.Equal(t, "CMD", check[0])
	healthy := false
	for range 600 { // a minute
		text, err := inside(check[1:]...).CombinedOutput()
		if healthy = err == nil; healthy {
			require.Equal(t, "ok\n", string(text))
			break
		}
		select {
		case err := <-ended:
			t.Fatalf("the daemon has exited: %v\n%s", err, log.String())
		case <-time.After(100 * time.Millisecond):
		}
	}
	require.True(t, healthy)
	require.Eventually(t, func() bool { // the health check may pass before the daemon has started
		r, err := http.Get("http://" + ops + "/readyz")
		if err != nil {
			return false
		}
		defer r.Body.Close()
		body, err := io.ReadAll(r.Body)
		return err == nil && strings.Contains(string(body), "no API keys") // the image has none
	}, time.Minute, 20*time.Millisecond)

	get := func(address, path string) (int, string) {
		t.Helper()
		r, err := http.Get("http://" + address + path)
		require.NoError(t, err)
		defer r.Body.Close()
		body, err := io.ReadAll(r.Body)
		require.NoError(t, err)
		return r.StatusCode, string(body)
	}
	status, body := get(api, "/schemas/openapi.yaml")
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, body, "openapi: 3.1")
	status, _ = get(ops, "/readyz")
	require.Equal(t, http.StatusServiceUnavailable, status)
	_, body = get(ops, "/metrics")
	require.Contains(t, body, fmt.Sprintf("version=%q", "0123abc"))

	text, err := inside("/usr/bin/trafficctl", "key", "new", "--name", "a", "--product-instance", "p", "--rights", "ingest", "--file", "/etc/trafficd/keys.yaml").CombinedOutput()
	require.Error(t, err)
	require.Regexp(t, "read-only file system|permission denied", string(text))
	text, err = inside("/usr/bin/trafficctl", "journal", "ls", "/var/lib/trafficd/journal").CombinedOutput()
	require.NoError(t, err, "%s", text)

	require.NoError(t, daemon.Process.Signal(os.Interrupt))
	require.NoError(t, <-ended, log.String())
}

// freeAddress returns a free port of a random loopback address, so that no outgoing connection
// takes it before the daemon listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", fmt.Sprintf("127.%d.%d.%d:0", 1+rand.IntN(254), rand.IntN(256), 1+rand.IntN(254)))
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}

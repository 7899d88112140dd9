package clickhouse

import (
	"archive/tar"
	"cmp"
	"context"
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"trafficd/cmd/dev/devstores/internal/cache"
	"trafficd/cmd/dev/devstores/internal/clickhouse/replication"
	"trafficd/cmd/dev/must"
)

// libraryVersion is pinned, because the registry's "latest" is older and cannot serve connections.
const libraryVersion = replication.Version

// archive is an npm package that contains the engine.
type archive struct {
	name      string
	integrity string // "sha512-" and the digest in base64, as in npm's lock files; empty = the registry's
	member    string // name of the file to extract
}

// libraries maps platforms to the engine's packages. Without an integrity here, a package is
// verified against that which the registry returns over TLS, as npm does without a lock file.
var libraries = map[string]archive{
	"linux/amd64": {
		name:      "@chdb/lib-linux-x64-gnu",
		integrity: "sha512-XP97mMqnc5tZpKQywR8N7cLTsHNiTmHr30pC5mzo3jWmukjKn2IBa60c2B/gWUNcuFjOMjWoorQICCqBVj5wpw==",
		member:    "package/libchdb.so",
	},
	"linux/arm64":  {name: "@chdb/lib-linux-arm64-gnu", member: "package/libchdb.so"},
	"darwin/arm64": {name: "@chdb/lib-darwin-arm64", member: "package/libchdb.so"},
}

// fetchLibrary returns the path of the engine's library, which it downloads unless it is cached.
func fetchLibrary(ctx context.Context, log io.Writer) (string, error) {
	platform := runtime.GOOS + "/" + runtime.GOARCH
	a, ok := libraries[platform]
	if !ok {
		return "", fmt.Errorf("cannot download ClickHouse for %s; put a clickhouse binary on PATH", platform)
	}
	dir, err := cache.Entry(ctx, "libchdb-"+libraryVersion, log, func(dir string) error {
		if err := a.fetch(ctx, dir, log); err != nil {
			return fmt.Errorf("cannot fetch %s@%s: %w; alternatively, put a clickhouse binary, version %d.1 or newer, on PATH",
				a.name, libraryVersion, err, oldest)
		}
		return nil
	})
	return filepath.Join(dir, filepath.Base(a.member)), err
}

// fetch downloads the archive, verifies its digest, and unpacks its member into dir.
func (a archive) fetch(ctx context.Context, dir string, log io.Writer) (err error) {
	defer must.Return(&err)
	npm := must.Get(readNPMConfig(os.Environ()))
	found := must.Get(npm.find(ctx, a.name, libraryVersion))
	resp, err := npm.get(ctx, found.Tarball)
	must.Do(err)
	defer resp.Body.Close()
	tarball := must.Get(os.CreateTemp(dir, "*.tgz"))
	defer os.Remove(tarball.Name())
	defer tarball.Close()
	digest := sha512.New()
	must.Do(copyWithProgress(io.MultiWriter(tarball, digest), resp.Body, log, "downloading "+a.name, resp.ContentLength))
	want := cmp.Or(a.integrity, found.Integrity)
	if got := "sha512-" + base64.StdEncoding.EncodeToString(digest.Sum(nil)); got != want {
		return fmt.Errorf("integrity is %s, expected %s; the download was discarded", got, want)
	}
	must.Get(tarball.Seek(0, io.SeekStart))
	return a.unpack(tarball, filepath.Join(dir, filepath.Base(a.member)), log)
}

// unpack writes the member to file and syncs it, so that the entry is not incomplete after a power
// failure.
func (a archive) unpack(tarball io.Reader, file string, log io.Writer) (err error) {
	defer must.Return(&err, "cannot unpack")
	members := tar.NewReader(must.Get(gzip.NewReader(tarball)))
	header, err := members.Next()
	for err == nil && header.Name != a.member {
		header, err = members.Next()
	}
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("cannot unpack: no %s in the archive", a.member)
	}
	must.Do(err)
	dst := must.Get(os.Create(file))
	defer dst.Close()
	must.Do(copyWithProgress(dst, members, log, "unpacking "+filepath.Base(a.member), header.Size))
	return dst.Sync()
}

// copyWithProgress copies src to dst. It shows a progress bar if log is a terminal, and otherwise
// logs a line every two seconds.
func copyWithProgress(dst io.Writer, src io.Reader, log io.Writer, what string, total int64) error {
	begin := time.Now()
	var progress io.Writer
	finish := func() error { return nil }
	if f, ok := log.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		bar := progressbar.NewOptions64(total, progressbar.OptionSetWriter(log), progressbar.OptionSetDescription(what),
			progressbar.OptionShowBytes(true), progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionSetWidth(30),
			progressbar.OptionClearOnFinish())
		progress, finish = bar, bar.Finish
	} else {
		progress = &progressLines{log: log, what: what, total: total, shown: begin}
		fmt.Fprintf(log, "%s …\n", what)
	}
	_, err := io.Copy(io.MultiWriter(dst, progress), src)
	if err = errors.Join(err, finish()); err != nil {
		return err
	}
	fmt.Fprintf(log, "%s: done in %.1f s\n", what, time.Since(begin).Seconds())
	return nil
}

// progressLines is a writer that logs how much was written to it.
type progressLines struct {
	log      io.Writer
	what     string
	n, total int64
	shown    time.Time
}

func (p *progressLines) Write(b []byte) (int, error) {
	p.n += int64(len(b))
	if time.Since(p.shown) >= 2*time.Second {
		p.shown = time.Now()
		fmt.Fprintf(p.log, "%s: %d of %d MB\n", p.what, p.n/1e6, p.total/1e6)
	}
	return len(b), nil
}

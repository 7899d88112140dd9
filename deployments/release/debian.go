package main

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/goreleaser/nfpm/v2"
	"github.com/goreleaser/nfpm/v2/deb"
)

const maintainer = "trafficd maintainers <maintainers@trafficd.invalid>"

// writePackages writes the Debian packages.
func (r *release) writePackages() error {
	if err := r.writeDebianChangelog(); err != nil {
		return fmt.Errorf("cannot write the changelog of the Debian packages: %w", err)
	}
	for _, arch := range architectures {
		if err := r.writePackage(arch); err != nil {
			return fmt.Errorf("cannot write the Debian package for %s: %w", arch, err)
		}
	}
	return nil
}

// writeDebianChangelog writes the changelog in Debian's format. It contains only the version,
// because the package also contains CHANGELOG.md.
func (r *release) writeDebianChangelog() error {
	return r.create(filepath.Join(r.build, "changelog.gz"), func(w io.Writer) error {
		z, _ := gzip.NewWriterLevel(w, gzip.BestCompression) // fails only for an unknown level
		_, err := fmt.Fprintf(z, "trafficd (%s) unstable; urgency=medium\n\n  * See CHANGELOG.md.\n\n -- %s  %s\n",
			strings.Replace(r.version, "-", "~", 1), maintainer, r.date.Format(time.RFC1123Z))
		return errors.Join(err, z.Close())
	})
}

func (r *release) writePackage(arch string) error {
	text, err := os.ReadFile(filepath.Join(r.root, "deployments/debian/nfpm.yaml"))
	if err != nil {
		return err
	}
	values := map[string]string{
		"VERSION": r.version, "ARCH": arch, "DATE": r.date.Format(time.RFC3339), "ROOT": r.root, "BUILD": r.build, "MAINTAINER": maintainer,
	}
	config, err := nfpm.Parse(strings.NewReader(os.Expand(string(text), func(name string) string { return values[name] })))
	if err != nil {
		return err
	}
	info, err := config.Get("deb")
	if err != nil {
		return err
	}
	if err := nfpm.PrepareForPackager(info, "deb"); err != nil {
		return err
	}
	return r.create(deb.Default.ConventionalFileName(info), func(w io.Writer) error { return deb.Default.Package(info, w) })
}

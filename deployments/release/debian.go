package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/goreleaser/nfpm/v2"
	"github.com/goreleaser/nfpm/v2/deb"
)

// writePackages writes the Debian packages.
func (r *release) writePackages() error {
	for _, arch := range architectures {
		if err := r.writePackage(arch); err != nil {
			return fmt.Errorf("cannot write the Debian package for %s: %w", arch, err)
		}
	}
	return nil
}

func (r *release) writePackage(arch string) error {
	text, err := os.ReadFile(filepath.Join(r.root, "deployments/debian/nfpm.yaml"))
	if err != nil {
		return err
	}
	values := map[string]string{
		"VERSION": r.version, "ARCH": arch, "DATE": r.date.Format(time.RFC3339), "ROOT": r.root, "BUILD": r.build,
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
	f, err := os.Create(filepath.Join(r.out, deb.Default.ConventionalFileName(info)))
	if err != nil {
		return err
	}
	defer f.Close()
	if err := deb.Default.Package(info, f); err != nil {
		return err
	}
	return f.Close()
}

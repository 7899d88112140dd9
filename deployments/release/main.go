// Command release builds the release artefacts: programs, Debian packages, container images, a Helm
// chart, an SBOM and checksums, and with a key their signature and attestations. The same commit
// and Go version produce the same bytes on every machine, which `release verify` checks.
package main

import (
	"crypto/ecdsa"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// architectures lists the architectures that artefacts are built for.
var architectures = []string{"amd64", "arm64"}

// release holds the state that the steps share.
type release struct {
	root    string            // root directory of the repository
	out     string            // directory for the artefacts
	build   string            // temporary directory for the programs, by architecture, and intermediate files
	stamp   string            // version that the programs print
	version string            // semantic version of the artefacts
	date    time.Time         // date of the commit
	key     *ecdsa.PrivateKey // signs; nil: no signatures
}

func main() {
	const root, out = "../..", "../../dist"
	stamp := flag.String("version", "", "version and date, as in the Makefile: v1.2.3 of 2026-11-22")
	dist := flag.String("dist", "", "with verify: absolute path of the directory with the release")
	key := flag.String("key", "", "with verify: absolute path of the publisher's public key, a PEM file")
	flag.Usage = func() {
		fmt.Fprintln(os.Stderr, "usage: release --version 'v1.2.3 of 2026-11-22' image|package|release")
		fmt.Fprintln(os.Stderr, "       release --dist DIR --key FILE verify")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.Arg(0) == "verify" {
		if err := verify(root, *dist, *key, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "release:", err)
			os.Exit(1)
		}
		fmt.Println("the release is signed, complete and built from its commit")
		return
	}
	if err := run(root, out, *stamp, flag.Arg(0)); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
	artefacts, _ := filepath.Glob(out + "/*") // fails only for an invalid pattern
	for _, path := range artefacts {
		fmt.Println(path)
	}
}

func run(root, out, stamp, what string) error {
	r, err := newRelease(root, out, stamp)
	if err != nil {
		return err
	}
	defer os.RemoveAll(r.build)
	return r.make(what)
}

func (r *release) make(what string) error {
	steps := map[string][]func() error{
		"image":   {r.emptyOut, r.buildPrograms, r.writeImages},
		"package": {r.emptyOut, r.buildPrograms, r.writeDocuments, r.writeManPages, r.writePackages},
		"release": {
			r.checkChangelog, r.emptyOut, r.buildPrograms, r.writeDocuments, r.writeManPages, r.writeArchives, r.writePackages, r.writeImages,
			r.writeChart, r.writeSBOM, r.copyChangelog, r.writeAttestations, r.writeChecksums, r.signChecksums,
		},
	}[what]
	if steps == nil {
		return fmt.Errorf("cannot make %q: must be image, package or release", what)
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func newRelease(root, out, stamp string) (*release, error) {
	version, date, err := parseStamp(stamp)
	if err != nil {
		return nil, err
	}
	r := &release{stamp: stamp, version: version, date: date}
	if r.key, err = readKey(root); err != nil {
		return nil, err
	}
	if r.root, err = filepath.Abs(root); err != nil {
		return nil, err
	}
	if r.out, err = filepath.Abs(out); err != nil {
		return nil, err
	}
	r.build, err = os.MkdirTemp("", "trafficd-release-")
	return r, err
}

func (r *release) emptyOut() error {
	if err := errors.Join(os.RemoveAll(r.out), os.MkdirAll(r.out, 0o755)); err != nil {
		return fmt.Errorf("cannot empty the directory for the artefacts: %w", err)
	}
	return nil
}

// checkChangelog returns an error unless the tree is clean and CHANGELOG.md describes the version.
func (r *release) checkChangelog() error {
	if strings.Contains(r.stamp, "+changes") {
		return fmt.Errorf("cannot release %s: the tree has uncommitted changes", r.stamp)
	}
	text, err := os.ReadFile(filepath.Join(r.root, "CHANGELOG.md"))
	if err != nil {
		return fmt.Errorf("cannot release: %w", err)
	}
	heading := "## " + r.version
	if isSnapshot(r.version) {
		heading = "## Unreleased"
	}
	isHeading := func(line string) bool { return line == heading || strings.HasPrefix(line, heading+" ") }
	if !slices.ContainsFunc(strings.Split(string(text), "\n"), isHeading) {
		return fmt.Errorf("cannot release %s: CHANGELOG.md has no heading %q", r.version, heading)
	}
	return nil
}

func (r *release) copyChangelog() error {
	text, err := os.ReadFile(filepath.Join(r.root, "CHANGELOG.md"))
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.out, "CHANGELOG.md"), relink(text, "CHANGELOG.md", nil), 0o644)
}

// writeChecksums writes SHA256SUMS, for `sha256sum --check`.
func (r *release) writeChecksums() error {
	files, err := r.subjects()
	if err != nil {
		return err
	}
	var list strings.Builder
	for _, f := range files {
		fmt.Fprintf(&list, "%s  %s\n", f.Digest["sha256"], f.Name)
	}
	return os.WriteFile(filepath.Join(r.out, checksums), []byte(list.String()), 0o644)
}

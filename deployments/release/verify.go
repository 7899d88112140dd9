package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// verifier checks a signed release, without a network.
type verifier struct {
	root string // of a clone of the repository
	dist string
	key  *ecdsa.PublicKey
	out  io.Writer

	sums map[string]string // by the names in SHA256SUMS

	commit, stamp, goVersion string // of the provenance
}

// verify checks the release in dist, then builds its commit again in a new clone and compares.
func verify(root, dist, keyFile string, out io.Writer) error {
	v := &verifier{root: root, dist: dist, out: out}
	if dist == "" || keyFile == "" {
		return errors.New("cannot verify a release: usage: make verify-release DIST=directory KEY=public-key.pem")
	}
	var err error
	if v.key, err = readPublicKey(keyFile); err != nil {
		return err
	}
	if err := v.check(); err != nil {
		return err
	}
	tree, err := os.MkdirTemp("", "trafficd-verify-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tree)
	if _, err := git(root, "clone", "--quiet", "--shared", "--no-checkout", ".", tree); err != nil {
		return err
	}
	if _, err := git(tree, "checkout", "--quiet", "--detach", v.commit); err != nil {
		return err
	}
	return v.rebuild(tree)
}

func readPublicKey(path string) (*ecdsa.PublicKey, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read the public key: %w", err)
	}
	if block, _ := pem.Decode(text); block != nil {
		if parsed, err := x509.ParsePKIXPublicKey(block.Bytes); err == nil {
			if key, ok := parsed.(*ecdsa.PublicKey); ok {
				return key, nil
			}
		}
	}
	return nil, fmt.Errorf("cannot use the public key %s: it must be the PEM file of an ECDSA key, which the publisher has given you", path)
}

func (v *verifier) ok(what string, args ...any) { fmt.Fprintf(v.out, "ok: "+what+"\n", args...) }

// check checks all but that the artefacts can be built again.
func (v *verifier) check() error {
	for _, step := range []func() error{v.checkSignature, v.checkSums, v.checkProvenance, v.checkSBOM} {
		if err := step(); err != nil {
			return fmt.Errorf("%w; do not install this release, get it again from the publisher", err)
		}
	}
	return v.checkSource()
}

func (v *verifier) read(name string) ([]byte, error) {
	text, err := os.ReadFile(filepath.Join(v.dist, name))
	if errors.Is(err, os.ErrNotExist) {
		err = fmt.Errorf("%w: the release is incomplete or not signed", err)
	}
	return text, err
}

func (v *verifier) checkSignature() error {
	text, err := v.read(checksums)
	if err != nil {
		return err
	}
	signature, err := v.read(signatureFile)
	if err != nil {
		return err
	}
	if !valid(v.key, text, signature) {
		return fmt.Errorf("cannot verify %s: %s is not a signature of it with this key", checksums, signatureFile)
	}
	bundled, err := v.read(checksums + bundleEnd)
	if err != nil {
		return err
	}
	if !bytes.Equal(bundled, checksumsBundle(v.key, text, signature)) {
		return fmt.Errorf("cannot verify %s: %s is not the bundle of this signature", checksums, checksums+bundleEnd)
	}
	v.sums = map[string]string{}
	for line := range strings.Lines(string(text)) {
		sum, name, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "  ")
		v.sums[name] = sum
	}
	v.ok("signature of %s", checksums)
	return nil
}

func (v *verifier) checkSums() error {
	entries, err := os.ReadDir(v.dist)
	if err != nil {
		return err
	}
	own := []string{checksums, signatureFile, checksums + bundleEnd}
	for _, e := range entries {
		if _, listed := v.sums[e.Name()]; !listed && !slices.Contains(own, e.Name()) {
			return fmt.Errorf("unexpected file %s, which %s does not list", e.Name(), checksums)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(v.sums)) {
		sum, err := sumOf(filepath.Join(v.dist, name))
		if err != nil {
			return fmt.Errorf("cannot verify %s, which %s lists: %w", name, checksums, err)
		}
		if sum != v.sums[name] {
			return fmt.Errorf("%s was changed: its SHA-256 digest is %s, must be %s", name, sum, v.sums[name])
		}
		v.ok("checksum of %s", name)
	}
	return nil
}

// attestation returns the predicate of the statement in the file with the given end, which must be
// signed and be about exactly the artefacts.
func (v *verifier) attestation(end, predicateType string) (json.RawMessage, error) {
	var name string
	subjects := map[string]string{}
	for own, sum := range v.sums {
		if strings.HasSuffix(own, end) {
			name = own
		}
		if !isAttestation(own) {
			subjects[own] = sum
		}
	}
	if name == "" {
		return nil, fmt.Errorf("no file *%s: the release is incomplete", end)
	}
	text, err := v.read(name)
	if err != nil {
		return nil, err
	}
	var b sigstoreBundle
	var s statement
	if json.Unmarshal(text, &b) != nil || b.Envelope == nil {
		return nil, fmt.Errorf("cannot read %s: it must be a Sigstore bundle with a DSSE envelope", name)
	}
	e := b.Envelope
	if e.PayloadType != payloadType || len(e.Signatures) != 1 || !valid(v.key, e.signed(), e.Signatures[0].Sig) {
		return nil, fmt.Errorf("cannot verify %s: it is not signed with this key", name)
	}
	if err := json.Unmarshal(e.Payload, &s); err != nil {
		return nil, fmt.Errorf("cannot read the statement in %s: %w", name, err)
	}
	if s.Type != statementType || s.PredicateType != predicateType {
		return nil, fmt.Errorf("%s is a %s about a %s, must be a %s about a %s", name, s.Type, s.PredicateType, statementType, predicateType)
	}
	stated := map[string]string{}
	for _, own := range s.Subject {
		stated[own.Name] = own.Digest["sha256"]
	}
	if !maps.Equal(stated, subjects) {
		return nil, fmt.Errorf("%s is about other files than %s", name, checksums)
	}
	v.ok("signature and %d subjects of %s", len(subjects), name)
	return s.Predicate, nil
}

func (v *verifier) checkProvenance() error {
	predicate, err := v.attestation(provenanceEnd, provenanceType)
	if err != nil {
		return err
	}
	var p provenance
	if err := json.Unmarshal(predicate, &p); err != nil {
		return fmt.Errorf("cannot read the provenance: %w", err)
	}
	for _, d := range p.BuildDefinition.Dependencies {
		switch d.Name {
		case "source":
			v.commit = d.Digest["gitCommit"]
		case "go":
			v.goVersion = "go" + strings.TrimPrefix(d.URI, "pkg:generic/go@")
		}
	}
	v.stamp = p.BuildDefinition.ExternalParameters["version"]
	return nil
}

// checkSource returns an error unless this clone and this Go can build the release again.
func (v *verifier) checkSource() error {
	described, _, _ := strings.Cut(v.stamp, " of ")
	if _, err := git(v.root, "cat-file", "-e", v.commit+"^{commit}"); err != nil || v.commit == "" {
		return fmt.Errorf("this clone does not have the commit %q of the provenance: run git fetch --tags", v.commit)
	}
	if named, err := git(v.root, "rev-parse", "--verify", "--quiet", described+"^{commit}"); err != nil || named != v.commit {
		return fmt.Errorf("the version %q is not that of the commit %s of the provenance in this clone: run git fetch --tags", v.stamp, v.commit)
	}
	if v.goVersion != runtime.Version() {
		return fmt.Errorf("the release was built with %s, this is %s: install %[1]s, others build other bytes", v.goVersion, runtime.Version())
	}
	v.ok("commit %s, version %s, %s", v.commit, described, v.goVersion)
	return nil
}

func (v *verifier) checkSBOM() error {
	predicate, err := v.attestation(sbomEnd, sbomType)
	if err != nil {
		return err
	}
	for name := range v.sums {
		if !strings.HasSuffix(name, ".cdx.json") {
			continue
		}
		text, err := v.read(name)
		if err != nil {
			return err
		}
		var file, attested bytes.Buffer
		if json.Compact(&file, text) != nil || json.Compact(&attested, predicate) != nil || !bytes.Equal(file.Bytes(), attested.Bytes()) {
			return fmt.Errorf("the attested SBOM is not %s", name)
		}
		v.ok("attested SBOM equals %s", name)
		return nil
	}
	return errors.New("no file *.cdx.json: the release is incomplete")
}

// rebuild builds the release in tree, which has the commit, with the commit's own release program,
// and compares the artefacts.
func (v *verifier) rebuild(tree string) error {
	fmt.Fprintf(v.out, "building %s again, in a few minutes\n", v.commit)
	cmd := exec.Command("go", "run", ".", "--version", v.stamp, "release")
	cmd.Dir = filepath.Join(tree, "deployments/release")
	cmd.Env = append(cmd.Environ(), "GOPROXY=off", "GOFLAGS=", keyVariable+"=")
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("cannot build the release again: %w\n%s\n"+
			"if modules are missing, run go mod download in this clone and in its deployments/release", err, text)
	}
	return v.compare(tree)
}

// compare compares the artefacts with those that were built in tree.
func (v *verifier) compare(tree string) error {
	for _, name := range slices.Sorted(maps.Keys(v.sums)) {
		if isAttestation(name) {
			continue
		}
		sum, err := sumOf(filepath.Join(tree, "dist", name))
		if err != nil {
			return fmt.Errorf("the release has a file that its commit does not build: %w", err)
		}
		if sum != v.sums[name] {
			return fmt.Errorf("%s was not built from the commit: built again, its SHA-256 digest is %s, not %s; ask the publisher",
				name, sum, v.sums[name])
		}
		v.ok("built again, bit by bit: %s", name)
	}
	return nil
}

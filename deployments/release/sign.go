package main

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/sha256"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// keyVariable names the environment variable with the private key, or with the path of its file,
// which may be relative to the root of the repository.
const keyVariable = "RELEASE_KEY"

// readKey returns the private key in the environment, or nil if there is none.
func readKey(root string) (*ecdsa.PrivateKey, error) {
	text := []byte(os.Getenv(keyVariable))
	if len(text) == 0 {
		return nil, nil
	}
	if !bytes.Contains(text, []byte("-----BEGIN")) {
		path := string(text)
		if !filepath.IsAbs(path) {
			path = filepath.Join(root, path)
		}
		var err error
		if text, err = os.ReadFile(path); err != nil {
			return nil, fmt.Errorf("cannot read the key (%s): %w", keyVariable, err)
		}
	}
	var parsed any
	block, _ := pem.Decode(text)
	if block != nil {
		parsed, _ = x509.ParsePKCS8PrivateKey(block.Bytes)
	}
	if key, ok := parsed.(*ecdsa.PrivateKey); ok && key.Curve == elliptic.P256() {
		return key, nil
	}
	return nil, fmt.Errorf("cannot use the key (%s): it must be an ECDSA key on P-256, in PEM without a password; "+
		"create one with openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out FILE", keyVariable)
}

// sign returns a signature as `openssl dgst` and cosign verify it. It is deterministic (RFC 6979).
func (r *release) sign(text []byte) ([]byte, error) {
	digest := sha256.Sum256(text)
	return r.key.Sign(nil, digest[:], crypto.SHA256)
}

func valid(key *ecdsa.PublicKey, text, signature []byte) bool {
	digest := sha256.Sum256(text)
	return ecdsa.VerifyASN1(key, digest[:], signature)
}

// statement is an in-toto attestation, version 1.
type statement struct {
	Type          string          `json:"_type"`
	Subject       []subject       `json:"subject"`
	PredicateType string          `json:"predicateType"`
	Predicate     json.RawMessage `json:"predicate"`
}

type subject struct {
	Name   string            `json:"name,omitempty"`
	URI    string            `json:"uri,omitempty"`
	Digest map[string]string `json:"digest,omitempty"`
}

// provenance is the predicate of SLSA, version 1.
type provenance struct {
	BuildDefinition struct {
		BuildType          string            `json:"buildType"`
		ExternalParameters map[string]string `json:"externalParameters"`
		Dependencies       []subject         `json:"resolvedDependencies"`
	} `json:"buildDefinition"`
	RunDetails struct {
		Builder struct {
			ID string `json:"id"`
		} `json:"builder"`
	} `json:"runDetails"`
}

// sigstoreBundle is a Sigstore bundle with a signature of a file or an attestation, the only format
// that cosign reads since version 3.
type sigstoreBundle struct {
	MediaType string `json:"mediaType"`
	Material  struct {
		PublicKey struct {
			Hint []byte `json:"hint"`
		} `json:"publicKey"`
	} `json:"verificationMaterial"`
	Message  *message  `json:"messageSignature,omitempty"`
	Envelope *envelope `json:"dsseEnvelope,omitempty"`
}

type message struct {
	Digest struct {
		Algorithm string `json:"algorithm"`
		Digest    []byte `json:"digest"`
	} `json:"messageDigest"`
	Signature []byte `json:"signature"`
}

// newBundle returns a bundle without content. The hint is the digest of the key, as cosign has it.
func newBundle(key *ecdsa.PublicKey) (b sigstoreBundle) {
	der, _ := x509.MarshalPKIXPublicKey(key) // fails only for unknown curves
	hint := sha256.Sum256(der)
	b.MediaType, b.Material.PublicKey.Hint = "application/vnd.dev.sigstore.bundle.v0.3+json", hint[:]
	return b
}

// checksumsBundle returns the bundle of the signature of SHA256SUMS.
func checksumsBundle(key *ecdsa.PublicKey, text, signature []byte) []byte {
	b, digest := newBundle(key), sha256.Sum256(text)
	b.Message = &message{Signature: signature}
	b.Message.Digest.Algorithm, b.Message.Digest.Digest = "SHA2_256", digest[:]
	content, _ := json.Marshal(b) // its types cannot fail
	return append(content, '\n')
}

// envelope is a DSSE envelope.
type envelope struct {
	PayloadType string              `json:"payloadType"`
	Payload     []byte              `json:"payload"`
	Signatures  []envelopeSignature `json:"signatures"`
}

type envelopeSignature struct {
	Sig []byte `json:"sig"`
}

// signed returns what the signature of the envelope signs (DSSE, version 1).
func (e envelope) signed() []byte {
	return fmt.Appendf(nil, "DSSEv1 %d %s %d %s", len(e.PayloadType), e.PayloadType, len(e.Payload), e.Payload)
}

const (
	statementType  = "https://in-toto.io/Statement/v1"
	payloadType    = "application/vnd.in-toto+json"
	provenanceType = "https://slsa.dev/provenance/v1"
	sbomType       = "https://cyclonedx.org/bom"
	releaseURI     = "pkg:golang/trafficd/deployments/release" // this program, in the module at the commit
	checksums      = "SHA256SUMS"
	signatureFile  = checksums + ".sig"
	bundleEnd      = ".sigstore.json"
	provenanceEnd  = ".provenance" + bundleEnd
	sbomEnd        = ".sbom" + bundleEnd
)

// isAttestation reports whether a file is about the artefacts, not one of them.
func isAttestation(name string) bool { return strings.HasSuffix(name, bundleEnd) }

// writeAttestations writes how the artefacts were built, and what they contain, if there is a key.
func (r *release) writeAttestations() error {
	if r.key == nil {
		fmt.Fprintf(os.Stderr, "release: not signed, because %s is not set: no signature, provenance and attestation of the SBOM\n", keyVariable)
		return nil
	}
	subjects, err := r.subjects()
	if err != nil {
		return err
	}
	commit, err := git(r.root, "rev-parse", "HEAD")
	if err != nil {
		return err
	}
	var p provenance
	p.BuildDefinition.BuildType = releaseURI
	p.BuildDefinition.ExternalParameters = map[string]string{"version": r.stamp}
	p.BuildDefinition.Dependencies = []subject{
		{Name: "source", Digest: map[string]string{"gitCommit": commit}},
		{Name: "go", URI: "pkg:generic/go@" + strings.TrimPrefix(runtime.Version(), "go")},
	}
	p.RunDetails.Builder.ID = releaseURI
	predicate, err := json.Marshal(p)
	if err != nil {
		return err
	}
	sbom, err := os.ReadFile(filepath.Join(r.out, r.sbomName()))
	if err != nil {
		return err
	}
	return errors.Join(r.attest(provenanceEnd, statement{statementType, subjects, provenanceType, predicate}),
		r.attest(sbomEnd, statement{statementType, subjects, sbomType, sbom}))
}

// subjects returns the artefacts with their digests.
func (r *release) subjects() (list []subject, err error) {
	entries, err := os.ReadDir(r.out) // sorted
	for _, e := range entries {
		var sum string
		if sum, err = sumOf(filepath.Join(r.out, e.Name())); err != nil {
			break
		}
		list = append(list, subject{Name: e.Name(), Digest: map[string]string{"sha256": sum}})
	}
	return list, err
}

// sumOf returns the SHA-256 digest of a file in hexadecimal.
func sumOf(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	_, err = io.Copy(h, f)
	return fmt.Sprintf("%x", h.Sum(nil)), err
}

// attest writes a signed statement.
func (r *release) attest(end string, s statement) error {
	payload, err := json.Marshal(s)
	if err != nil {
		return err
	}
	e := &envelope{PayloadType: payloadType, Payload: payload}
	signature, err := r.sign(e.signed())
	if err != nil {
		return err
	}
	e.Signatures = []envelopeSignature{{Sig: signature}}
	b := newBundle(&r.key.PublicKey)
	b.Envelope = e
	text, err := json.Marshal(b)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.out, "trafficd-"+r.version+end), append(text, '\n'), 0o644)
}

// signChecksums signs SHA256SUMS, if there is a key.
func (r *release) signChecksums() error {
	if r.key == nil {
		return nil
	}
	text, err := os.ReadFile(filepath.Join(r.out, checksums))
	if err != nil {
		return err
	}
	signature, err := r.sign(text)
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(filepath.Join(r.out, signatureFile), signature, 0o644),
		os.WriteFile(filepath.Join(r.out, checksums+bundleEnd), checksumsBundle(&r.key.PublicKey, text, signature), 0o644))
}

// git runs git in a directory and returns its trimmed output.
func git(dir string, args ...string) (string, error) {
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	text, err := cmd.Output()
	if err != nil {
		var detail string
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			detail = ": " + strings.TrimSpace(string(exit.Stderr))
		}
		return "", fmt.Errorf("git %s: %w%s", args[0], err, detail)
	}
	return strings.TrimSpace(string(text)), nil
}

package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func newSigningKey() *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	return key
}

// setKey sets RELEASE_KEY to the text of a key.
func setKey(key *ecdsa.PrivateKey) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		panic(err)
	}
	_ = os.Setenv(keyVariable, string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})))
}

// writePublicKey writes a public key as `openssl pkey -pubout` does.
func writePublicKey(t *testing.T, key *ecdsa.PublicKey) (path string) {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(key)
	require.NoError(t, err)
	path = filepath.Join(t.TempDir(), "release.pub")
	require.NoError(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), 0o600))
	return path
}

func verifierOf(dist string) (*verifier, *bytes.Buffer) {
	out := new(bytes.Buffer)
	return &verifier{root: root, dist: dist, key: &built.key.PublicKey, out: out}, out
}

// checkAll checks a release whose version is not that of the commit, as in these tests.
func checkAll(dist string) error {
	v, _ := verifierOf(dist)
	for _, step := range []func() error{v.checkSignature, v.checkSums, v.checkProvenance, v.checkSBOM} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// TestOpenSSLVerifies checks that openssl verifies the signature.
func TestOpenSSLVerifies(t *testing.T) {
	require.Equal(t, "Verified OK\n", output(t, "openssl", "dgst", "-sha256", "-verify", writePublicKey(t, &built.key.PublicKey),
		"-signature", filepath.Join(built.out, signatureFile), filepath.Join(built.out, checksums)))
	again, err := built.sign([]byte("text"))
	require.NoError(t, err)
	same, err := built.sign([]byte("text"))
	require.NoError(t, err)
	require.Equal(t, again, same, "signatures are reproducible too")
}

// TestTampering changes one byte of each file of the release, adds and removes one, and lets the
// publisher sign statements that are wrong.
func TestTampering(t *testing.T) {
	require.NoError(t, checkAll(built.out))
	for name := range sums(t, built.out) {
		flip := func() {
			f, err := os.OpenFile(filepath.Join(built.out, name), os.O_RDWR, 0)
			require.NoError(t, err)
			defer f.Close()
			info, err := f.Stat()
			require.NoError(t, err)
			var b [1]byte
			_, err = f.ReadAt(b[:], info.Size()/2)
			require.NoError(t, err)
			b[0] ^= 1
			_, err = f.WriteAt(b[:], info.Size()/2)
			require.NoError(t, err)
		}
		flip()
		err := checkAll(built.out)
		flip()
		switch name {
		case checksums, signatureFile, checksums + bundleEnd:
			require.ErrorContains(t, err, "cannot verify SHA256SUMS")
		default:
			require.ErrorContains(t, err, name+" was changed")
		}
	}
	require.NoError(t, checkAll(built.out))
	path := filepath.Join(built.out, "extra.deb")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	require.ErrorContains(t, checkAll(built.out), "unexpected file extra.deb")
	require.NoError(t, os.Remove(path))
	require.NoError(t, os.Rename(filepath.Join(built.out, "CHANGELOG.md"), filepath.Join(built.build, "away")))
	require.ErrorContains(t, checkAll(built.out), "cannot verify CHANGELOG.md, which SHA256SUMS lists")
	require.NoError(t, os.Rename(filepath.Join(built.build, "away"), filepath.Join(built.out, "CHANGELOG.md")))

	v, _ := verifierOf(built.out)
	v.key = &newSigningKey().PublicKey
	require.ErrorContains(t, v.check(), "is not a signature of it with this key; do not install this release")

	own := built.key
	f := func(key *ecdsa.PrivateKey, end, want string, change func(*statement)) {
		t.Helper()
		path := filepath.Join(built.out, "trafficd-"+testVersion+end)
		before := read(t, path)
		var b sigstoreBundle
		var s statement
		require.NoError(t, json.Unmarshal(before, &b))
		require.NoError(t, json.Unmarshal(b.Envelope.Payload, &s))
		change(&s)
		built.key = key
		require.NoError(t, built.attest(end, s))
		built.key = own
		err := errWithSums(t)
		require.NoError(t, os.WriteFile(path, before, 0o600))
		require.NoError(t, errWithSums(t))
		require.ErrorContains(t, err, want)
	}
	f(own, provenanceEnd, "is about other files than SHA256SUMS", func(s *statement) { s.Subject = s.Subject[1:] })
	f(own, sbomEnd, "is about other files than SHA256SUMS", func(s *statement) { s.Subject[0].Digest["sha256"] = strings.Repeat("0", 64) })
	f(own, provenanceEnd, "must be a https://in-toto.io/Statement/v1 about a https://slsa.dev/provenance/v1",
		func(s *statement) { s.PredicateType = sbomType })
	f(own, sbomEnd, "the attested SBOM is not trafficd-", func(s *statement) { s.Predicate = json.RawMessage(`{}`) })
	f(newSigningKey(), provenanceEnd, "it is not signed with this key", func(*statement) {})
}

// errWithSums signs the checksums of the files as they are, and checks the release.
func errWithSums(t *testing.T) error {
	t.Helper()
	for _, name := range []string{checksums, signatureFile, checksums + bundleEnd} {
		require.NoError(t, os.Remove(filepath.Join(built.out, name)))
	}
	require.NoError(t, built.writeChecksums())
	require.NoError(t, built.signChecksums())
	return checkAll(built.out)
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return text
}

// TestSource checks the errors about this clone and this Go, which do not blame the release.
func TestSource(t *testing.T) {
	f := func(want string, change func(*verifier)) {
		t.Helper()
		v, _ := verifierOf(built.out)
		require.NoError(t, v.checkSignature())
		require.NoError(t, v.checkProvenance())
		v.stamp = v.commit + " of 2026-11-22"
		change(v)
		err := v.checkSource()
		if want == "" {
			require.NoError(t, err)
			return
		}
		require.ErrorContains(t, err, want)
	}
	f("", func(*verifier) {})
	f(`does not have the commit "0123`, func(v *verifier) { v.commit = strings.Repeat("0123", 10) })
	f("is not that of the commit", func(v *verifier) { v.stamp = testStamp })
	f("install go1.0", func(v *verifier) { v.goVersion = "go1.0" })
}

// TestKey checks which keys are accepted, and what is said of others.
func TestKey(t *testing.T) {
	f := func(text, want string) {
		t.Helper()
		t.Setenv(keyVariable, text)
		_, err := newRelease(root, t.TempDir(), testStamp)
		require.ErrorContains(t, err, want)
	}
	f("none.pem", "cannot read the key (RELEASE_KEY): open ../../none.pem")
	f("README.md", "openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256")
	f("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", "must be an ECDSA key on P-256, in PEM without a password")
	require.ErrorContains(t, verify(root, "", "", io.Discard), "usage: make verify-release DIST=directory KEY=public-key.pem")
	require.ErrorContains(t, verify(root, built.out, filepath.Join(built.out, checksums), io.Discard), "must be the PEM file of an ECDSA key")
	t.Setenv(keyVariable, "")
	key, err := readKey(root)
	require.NoError(t, err)
	require.Nil(t, key)
}

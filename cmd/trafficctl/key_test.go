package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"trafficd/cmd/trafficctl/internal/keyfile"
	"trafficd/sources/api"
)

var keyFlags = []string{"key", "new", "--product-instance", "north", "--rights", "ingest,forecast", "--timezone", "Europe/Copenhagen", "--items-per-second", "100000"}

// TestKeyNew checks that the entry contains the digest of the key on the first line, not the key
// itself.
func TestKeyNew(t *testing.T) {
	r := requireSuccess(t, "", append(keyFlags, "--name", "acme")...)
	key, entry, ok := strings.Cut(r.out, "\n\n")
	require.True(t, ok)
	require.Contains(t, entry, "sha256: "+keyfile.Digest(key))
	require.NotContains(t, entry, key)
	for _, line := range []string{"- name: acme", "product_instance: north", "rights: [ingest, forecast]", "timezone: Europe/Copenhagen", "items_per_second: 100000"} {
		require.Contains(t, entry, line)
	}
	require.NotContains(t, entry, "requests_per_second", "zero limits are omitted")
}

// TestKeyNewFile checks that with --file, only the key is printed, so that standard output can be
// redirected to a key file.
func TestKeyNewFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys.yaml")
	first := runWith(t, "", append(keyFlags, "--file", path, "--name", "a")...)
	second := runWith(t, "", append(keyFlags, "--file", path, "--name", "b")...)
	require.Zero(t, first.code+second.code, first.err+second.err)
	text := textOf(t, path)
	for _, r := range []result{first, second} {
		require.Contains(t, text, keyfile.Digest(strings.TrimSpace(r.out)))
		require.NotContains(t, text, strings.TrimSpace(r.out))
		require.NotContains(t, r.err, strings.TrimSpace(r.out))
	}
	third := requireFailure(t, "", "already exists", append(keyFlags, "--file", path, "--name", "b")...)
	require.Empty(t, third.out, "a key that is not saved is not printed")
}

// TestKeyNewNotPrinted checks that a key that cannot be printed is not reported as printed.
func TestKeyNewNotPrinted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys.yaml")
	var errs bytes.Buffer
	code := run(t.Context(), append(keyFlags, "--file", path, "--name", "a"), streams{strings.NewReader(""), brokenWriter{}, &errs})
	require.Equal(t, exitFailed, code)
	require.NotContains(t, errs.String(), "added key")
	require.Contains(t, errs.String(), `remove it with trafficctl key revoke "a" --file `+path)
}

// TestKeyNewInvalidEntry checks that an entry that the daemon would not accept is an error, with
// the daemon's reason.
func TestKeyNewInvalidEntry(t *testing.T) {
	f := func(want string, flags ...string) {
		t.Helper()
		valid := []string{"key", "new", "--name", "a", "--product-instance", "p"}
		if !slices.Contains(flags, "--rights") {
			valid = append(valid, "--rights", "ingest")
		}
		r := requireFailure(t, "", "trafficctl: cannot create the key: "+want, append(valid, flags...)...)
		require.Empty(t, r.out)
	}
	requireFailure(t, "", "cannot create the key: --name, --product-instance, --rights required", "key", "new")
	f("--name required", "--name", "")
	f("--product-instance required", "--product-instance", "")
	f("--rights required", "--rights", "")
	f(`--rights has the unknown right "everything"`, "--rights", "ingest,everything")
	f("--timezone is the unknown time zone", "--timezone", "Europe/Atlantis")
	f("--timezone is the unknown time zone", "--timezone", "Local")
	f("--requests-per-second is", "--requests-per-second", "-1")
	f("--items-per-second is", "--items-per-second", "1e-9")
}

// TestKeyNewClient checks that the daemon treats two keys with the same client as one client.
// Without --client, the client is the key's name.
func TestKeyNewClient(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys.yaml")
	for _, flags := range [][]string{{"--name", "acme"}, {"--name", "acme-2027", "--client", "acme"}, {"--name", "other"}} {
		requireSuccess(t, "", append(append(keyFlags, "--file", path), flags...)...)
	}
	ring, err := api.OpenKeyring(api.Config{KeysFile: path}, zerolog.Nop())
	require.NoError(t, err)
	defer ring.Close()
	clients := ring.Clients()
	require.Len(t, clients, 3)
	require.Equal(t, clients[0].Owner, clients[1].Owner)
	require.NotEqual(t, clients[0].Owner, clients[2].Owner)
	require.Equal(t, 1, strings.Count(textOf(t, path), "client: acme\n"), "the default is omitted")
	list := runWith(t, "", "key", "list", "--file", path).out
	require.Regexp(t, `\nacme-2027 +acme +north `, list)
	require.Regexp(t, `\nother +other +north `, list)
}

// TestKeyListAndRevoke checks that a key is listed until it is revoked; an expired one is marked.
func TestKeyListAndRevoke(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys.yaml")
	list := func() string {
		t.Helper()
		r := requireSuccess(t, "", "key", "list", "--file", path)
		return r.out
	}
	for _, name := range []string{"a", "b"} {
		requireSuccess(t, "", append(keyFlags, "--file", path, "--name", name, "--expires", "2999-01-01")...)
	}
	require.Regexp(t, `a +a +north +ingest,forecast +Europe/Copenhagen +- +100000 +2999-01-01T00:00:00Z +[0-9a-f]{12}…`, list())
	require.NoError(t, os.WriteFile(path, []byte("# ours\n"+strings.Replace(textOf(t, path), "2999", "1999", 1)), 0o640))
	require.Contains(t, list(), "1999-01-01T00:00:00Z (expired)")

	requireSuccess(t, "", "key", "revoke", "a", "--file", path)
	require.NotContains(t, list(), "1999")
	require.Contains(t, list(), "b ")
	require.Contains(t, textOf(t, path), "# ours", "comments are kept")
	requireSuccess(t, "", "key", "revoke", "b", "--file", path)
	require.Contains(t, textOf(t, path), "keys: []", "the daemon accepts this form of an empty list")

	f := func(want string, args ...string) {
		t.Helper()
		requireFailure(t, "", want, append([]string{"key"}, args...)...)
	}
	f(`no key is named "a"`, "revoke", "a", "--file", path)
	f("no such file", "revoke", "a", "--file", path+".none")
	f("no such file", "list", "--file", path+".none")
	require.NoError(t, os.WriteFile(path, []byte("clients: []\n"), 0o640))
	f("field clients not found", "list", "--file", path)
	f(`required flag(s) "file" not set`, "list")
	f(`required flag(s) "file" not set`, "revoke", "a")
}

func TestKeyExpires(t *testing.T) {
	now := time.Date(2026, 7, 1, 6, 0, 0, 0, time.UTC)
	f := func(text, want string) {
		t.Helper()
		at, err := parseExpiry(text, now)
		require.NoError(t, err)
		require.Equal(t, want, at)
	}
	f("", "")
	f("48h", "2026-07-03T06:00:00Z")
	f("2027-01-01", "2027-01-01T00:00:00Z")
	f("2027-01-01T02:00:00+02:00", "2027-01-01T00:00:00Z")
	for _, text := range []string{"soon", "-1h", "2026-06-30"} {
		_, err := parseExpiry(text, now)
		require.ErrorContains(t, err, "--expires", text)
	}
}

// TestKeyNewCertificate checks that the entry for a certificate has its fingerprint and that the
// daemon can use it, that no key is printed, and that the message says what the entry accepts.
func TestKeyNewCertificate(t *testing.T) {
	dir := t.TempDir()
	ca, leaf := writeCertificates(t, dir)
	path := filepath.Join(dir, "keys.yaml")
	f := func(name, want string, flags ...string) {
		t.Helper()
		r := requireSuccess(t, "", append(append(keyFlags, "--file", path, "--name", name), flags...)...)
		require.Empty(t, r.out)
		require.Contains(t, r.err, `added "`+name+`" to `+path+"; it accepts "+want)
	}
	f("one", "only the certificate with the subject CN=acme,O=Acme that expires at 2", "--certificate", leaf)
	f("named", "certificates with the subject CN=acme,O=Acme of the CA CN=clients", "--certificate", ca, "--subject", "CN=acme,O=Acme")
	f("all", "every client certificate of the CA CN=clients; --subject restricts it", "--certificate", ca)
	list := requireSuccess(t, "", "key", "list", "--file", path).out
	require.Regexp(t, `\nnamed .* never +[0-9a-f]{12}… +certificate CN=acme,O=Acme\n`, list)
	require.Regexp(t, `\nall .* never +[0-9a-f]{12}… +certificate\n`, list)
	fails := func(want string, flags ...string) {
		t.Helper()
		requireFailure(t, "", want, append(append(keyFlags, "--file", path, "--name", "x"), flags...)...)
	}
	fails("duplicate sha256 or certificate: entry 3", "--certificate", ca)
	fails(`--subject is "CN=other", but the certificate`, "--certificate", leaf, "--subject", "CN=other")
	fails("--subject requires --certificate", "--subject", "CN=acme")
	fails("must begin with a PEM certificate", "--certificate", path)
	fails("cannot read the certificate: open", "--certificate", filepath.Join(dir, "none"))
}

// writeCertificates writes a CA and a client certificate of it, each with its key beside it, and
// returns the paths of the certificates.
func writeCertificates(t *testing.T, dir string) (ca, leaf string) {
	t.Helper()
	write := func(name string, template, parent *x509.Certificate, by *ecdsa.PrivateKey) (string, *ecdsa.PrivateKey) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		require.NoError(t, err)
		template.SerialNumber, template.NotAfter = big.NewInt(1), time.Now().Add(time.Hour)
		if by == nil {
			by = key
		}
		der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, by)
		require.NoError(t, err)
		private, err := x509.MarshalPKCS8PrivateKey(key)
		require.NoError(t, err)
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path+".pem", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
		require.NoError(t, os.WriteFile(path+".key", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600))
		return path + ".pem", key
	}
	root := &x509.Certificate{Subject: pkix.Name{CommonName: "clients"}, IsCA: true, BasicConstraintsValid: true}
	ca, key := write("ca", root, root, nil)
	client := &x509.Certificate{Subject: pkix.Name{CommonName: "acme", Organization: []string{"Acme"}}}
	leaf, _ = write("client", client, root, key)
	return ca, leaf
}

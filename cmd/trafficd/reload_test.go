package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"trafficd/cmd/internal/ops"
	"trafficd/cmd/trafficd/status"
)

// writeCertificate writes a certificate for loopback that is valid for an hour, with a serial
// number, and its key.
func writeCertificate(t *testing.T, cert, key string, serial int64) {
	t.Helper()
	writeCertificateUntil(t, cert, key, serial, time.Now().Add(2*expiresSoon))
}

func writeCertificateUntil(t *testing.T, cert, key string, serial int64, expires time.Time) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(serial), NotAfter: expires, DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	require.NoError(t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	require.NoError(t, err)
	replaceFile(t, key, string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})))
	replaceFile(t, cert, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
}

// TestSIGHUPReloads checks that SIGHUP reloads the settings that can be reloaded, names the
// others, and never stops the daemon.
func TestSIGHUPReloads(t *testing.T) {
	t.Parallel()
	d := newProcess(t)
	file := filepath.Join(d.Dir, "trafficd.yaml")
	feeds := "registry:\n  feeds:\n  - {product_instance: city, file: {path: " + filepath.Join(d.Dir, "detectors.csv") + ", column: code}}\n"
	require.NoError(t, os.WriteFile(file, []byte(feeds), 0o600))
	d.Args = append([]string{"--config", file}, d.Args...)
	for i, a := range d.Args { // the file sets them
		if strings.HasPrefix(a, "registry.feeds=") {
			d.Args[i] = "registry.max_shrink=0.4"
		}
	}
	d.start().Await(http.StatusOK)
	logged := func(text string) {
		t.Helper()
		d.Eventually(func() bool { return strings.Contains(d.Log(), text) }, "%s in the log", text)
	}

	lake := filepath.Join(d.Dir, "lake.csv")
	require.NoError(t, os.WriteFile(lake, []byte("code\nL1\n"), 0o600))
	withKey := func(name string) string {
		return feeds + "  - {product_instance: lake, file: {path: " + lake + ", column: code}}\n" +
			"log: {level: debug}\njournal: {max_bytes: 7GiB}\n" +
			"api: {keys: [{name: " + name + ", sha256: " + strings.Repeat("ab", 32) + ", product_instance: lake, rights: [ingest]}]}\n"
	}
	replaceFile(t, file, withKey("inline"))
	d.signal(syscall.SIGHUP)
	logged(`"changed":["log.level","api.keys","registry.feeds"],"need_restart":["journal.max_bytes"]`)
	logged(`"added":["inline"]`)
	d.Eventually(func() bool {
		_, r := d.Readiness()
		instances, _ := r.Components["registry"].Detail["product_instances"].(map[string]any)
		return len(instances) == 2 && r.Components["registry"].State == ops.OK
	}, "the new product instance")
	settings := func(want string) {
		t.Helper()
		d.Eventually(func() bool {
			_, r := d.Readiness()
			c := r.Components["settings"]
			if want == "" {
				return c.State == ops.OK
			}
			return c.State == ops.Degraded && strings.Contains(strings.Join(c.Reasons, "\n"), want)
		}, "the component settings with %q", want)
		var got status.Status
		_, text := d.Fetch("/status")
		require.NoError(t, json.Unmarshal(text, &got))
		require.Equal(t, want != "", strings.Contains(strings.Join(got.Summary, "\n"), "settings: "), got.Summary)
		require.Equal(t, want != "", d.Metric("trafficd_ops_settings_stale") == 1)
	}
	settings("changed settings are not in use until a restart: journal.max_bytes")
	a, err := d.Post(t.Context(), `{"measurements":[`+item(1, 0)+`]}`, "")
	require.NoError(t, err)
	require.Equal(t, 1, a.Accepted, "the list of the other product instance must stay in use")
	logged(`"level":"debug"`)

	replaceFile(t, file, withKey("city")) // the keys file has this name
	d.signal(syscall.SIGHUP)
	logged(`duplicate name: entry 1 has it too`)
	logged(`"changed":[],"need_restart":["journal.max_bytes"]`)

	replaceFile(t, file, "log: {level: loud}\n")
	d.signal(syscall.SIGHUP)
	logged("cannot reload the settings; the previous ones remain in use")
	settings(`the previous ones remain in use: log.level is "loud"`)
	d.Await(http.StatusOK)
	replaceFile(t, file, feeds)
	d.signal(syscall.SIGHUP)
	settings("")
	d.Terminate()
}

// TestCertificateIsReloaded checks that a renewed certificate is used without a restart.
func TestCertificateIsReloaded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	writeCertificate(t, cert, key, 1)
	d := newProcess(t, "api.tls_cert="+cert, "api.tls_key="+key).start()
	d.Await(http.StatusOK)
	serves := func(serial int64) func() bool {
		return func() bool {
			c, err := tls.Dial("tcp", d.API, &tls.Config{InsecureSkipVerify: true})
			if err != nil {
				return false
			}
			defer c.Close()
			return c.ConnectionState().PeerCertificates[0].SerialNumber.Int64() == serial
		}
	}
	d.Eventually(serves(1), "the first certificate")
	writeCertificate(t, cert, key, 2)
	d.Eventually(serves(2), "the second certificate")
	require.NoError(t, os.WriteFile(cert, []byte("broken"), 0o600))
	d.signal(syscall.SIGHUP)
	d.Eventually(func() bool { return strings.Contains(d.Log(), "cannot update the TLS certificate") }, "the warning")
	require.True(t, serves(2)())
}

// TestReadinessShowsCertificateProblems checks that an expired certificate, and a renewed one that
// does not match the key, are shown in /readyz, /status and --check-config until they are mended.
func TestReadinessShowsCertificateProblems(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	writeCertificateUntil(t, cert, key, 1, time.Now().Add(-time.Minute))
	out, ok := checkConfig(t, "--check-config", "api.tls_cert="+cert, "api.tls_key="+key)
	require.False(t, ok)
	requireProblems(t, out, "api.tls_cert: the TLS certificate of the clients' listener expired at ")

	d := newProcess(t, "api.tls_cert="+cert, "api.tls_key="+key).start()
	reasons := func(want string) {
		t.Helper()
		d.Eventually(func() bool {
			_, r := d.Readiness()
			c := r.Components["certificate"]
			text := strings.Join(c.Reasons, "\n")
			return want == "" && c.State == ops.OK || want != "" && c.State == ops.Degraded && strings.Contains(text, want)
		}, "the component certificate with %q", want)
		var got status.Status
		_, text := d.Fetch("/status")
		require.NoError(t, json.Unmarshal(text, &got))
		require.Equal(t, want != "", strings.Contains(strings.Join(got.Summary, "\n"), "certificate: "), got.Summary)
	}
	d.Await(http.StatusOK)
	reasons("expired at ")
	require.Contains(t, d.Log(), "the TLS certificate needs attention")
	writeCertificate(t, cert, key, 2)
	reasons("")
	require.Zero(t, d.Metric("trafficd_api_certificate_stale"))
	writeCertificateUntil(t, cert, key, 3, time.Now().Add(expiresSoon-time.Hour))
	reasons("expires on ")
	writeCertificate(t, cert, key, 4)
	reasons("")

	other := filepath.Join(dir, "other.key")
	writeCertificate(t, cert, other, 5)
	reasons("private key does not match public key")
	require.Equal(t, 1.0, d.Metric("trafficd_api_certificate_stale"))
	text, err := os.ReadFile(other)
	require.NoError(t, err)
	replaceFile(t, key, string(text))
	reasons("")
	d.Terminate()
}

package main

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"trafficd/cmd/dev/needs"
	"trafficd/schemas/contract"
)

// TestClientCertificates lets openssl issue certificates, and curl and trafficctl send with them. A
// certificate is revoked while a connection is open.
func TestClientCertificates(t *testing.T) {
	openssl, curl := needs.Program(t, "openssl"), needs.Program(t, "curl")
	dir := t.TempDir()
	run := func(name string, args ...string) (string, error) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Dir = dir
		text, err := cmd.CombinedOutput()
		return string(text), err
	}
	must := func(name string, args ...string) string {
		t.Helper()
		text, err := run(name, args...)
		require.NoError(t, err, "%s %s:\n%s", name, strings.Join(args, " "), text)
		return text
	}
	key := []string{"-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"}
	authority := func(name string, extra ...string) {
		args := []string{"req", "-x509", "-days", "30", "-subj", "/CN=" + name, "-keyout", name + ".key", "-out", name + ".pem"}
		must(openssl, slices.Concat(args, key, extra)...)
	}
	client := func(name, ca, subject, notAfter string) {
		must(openssl, append([]string{"req", "-new", "-subj", subject, "-keyout", name + ".key", "-out", name + ".csr"}, key...)...)
		must(openssl, "x509", "-req", "-in", name+".csr", "-CA", ca+".pem", "-CAkey", ca+".key", "-CAcreateserial", "-days", notAfter, "-out", name+".pem")
	}
	authority("ca")
	authority("foreign")
	client("acme", "ca", "/O=Acme/CN=acme", "30")
	client("stranger", "ca", "/O=Other/CN=stranger", "30")
	client("expired", "ca", "/O=Acme/CN=acme", "-1")
	client("outside", "foreign", "/O=Acme/CN=acme", "30")
	d := newProcess(t)
	host, _, err := net.SplitHostPort(d.API)
	require.NoError(t, err)
	authority("tls", "-addext", "subjectAltName=IP:"+host)
	d.Set("api.tls_cert="+filepath.Join(dir, "tls.pem"), "api.tls_key="+filepath.Join(dir, "tls.key"), "api.tls_client_ca="+filepath.Join(dir, "ca.pem"))
	keys := filepath.Join(d.Dir, "keys.yaml")
	ctl := trafficctl(t)
	subject := strings.TrimSpace(strings.TrimPrefix(must(openssl, "x509", "-noout", "-subject", "-nameopt", "RFC2253", "-in", "acme.pem"), "subject="))
	must(ctl, "key", "new", "--name", "acme", "--product-instance", instance, "--rights", "ingest", "--certificate", "ca.pem",
		"--subject", subject, "--file", keys)
	d.start().Await(http.StatusOK)

	url := "https://" + d.API
	send := func(name string, extra ...string) (string, error) {
		t.Helper()
		return run(curl, append([]string{
			"-sS", "--cacert", "tls.pem", "--cert", name + ".pem", "--key", name + ".key", "-w", "%{http_code} %{num_connects}\n",
			"-H", "Content-Encoding: gzip", "--data-binary", "@batch.json.gz", url + contract.IngestPath,
		}, extra...)...)
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "batch.json"), []byte(`{"measurements":[]}`), 0o600))
	must("gzip", "batch.json")
	text, err := send("acme")
	require.NoError(t, err, text)
	require.Contains(t, text, "207 1\n")

	fingerprint := strings.ToLower(strings.ReplaceAll(strings.TrimSpace(strings.SplitN(
		must(openssl, "x509", "-noout", "-fingerprint", "-sha256", "-in", "stranger.pem"), "=", 2)[1]), ":", ""))
	text, err = send("stranger")
	require.NoError(t, err, text)
	require.Contains(t, text, "401 1\n")
	require.Contains(t, text, "unknown client certificate with the subject")
	require.Contains(t, text, "CN=stranger,O=Other")
	require.Contains(t, text, fingerprint)

	f := func(name, alert, reason string) {
		t.Helper()
		text, err := send(name)
		require.Error(t, err, text)
		require.Contains(t, text, alert)
		series := fmt.Sprintf("trafficd_api_client_certificates_refused_total{reason=%q}", reason)
		d.Eventually(func() bool {
			_, metrics := d.Fetch("/metrics")
			return strings.Contains(string(metrics), series+" 1\n")
		}, series)
	}
	f("expired", "expired", "expired")
	f("outside", "unknown ca", "unknown_ca")
	require.Contains(t, d.Log(), "refused a client certificate")

	require.NoError(t, os.WriteFile(filepath.Join(dir, "m.csv"),
		[]byte("detectorCode,measureTypeCode,timestampFrom,timestampTo,value\nD,speed,2026-01-31T12:00:00Z,2026-01-31T12:05:00Z,47.5\n"), 0o600))
	report := func(name string) string {
		text, _ := run(ctl, "send", "m.csv", "--url", url, "--ca", "tls.pem", "--cert", name+".pem", "--cert-key", name+".key")
		return text
	}
	require.Contains(t, report("acme"), "UNKNOWN_DETECTOR") // the batch was authenticated and validated
	require.Contains(t, report("expired"), "the daemon refuses the client certificate: check that --cert has not expired")
	require.Contains(t, report("stranger"), "check --cert and that the daemon's keys file contains the certificate's fingerprint")

	// On a kept connection, the certificate is unknown once its entry has been revoked.
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, "acme.pem"), filepath.Join(dir, "acme.key"))
	require.NoError(t, err)
	kept := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{pair}}}}
	defer kept.CloseIdleConnections()
	connections := 0
	get := func() int {
		t.Helper()
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{ConnectDone: func(string, string, error) { connections++ }})
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+contract.CapabilitiesPath, nil)
		require.NoError(t, err)
		resp, err := kept.Do(req)
		require.NoError(t, err)
		defer resp.Body.Close()
		_, err = io.Copy(io.Discard, resp.Body)
		require.NoError(t, err)
		return resp.StatusCode
	}
	require.Equal(t, http.StatusOK, get())
	must(ctl, "key", "revoke", "acme", "--file", keys)
	d.Eventually(func() bool { return get() == http.StatusUnauthorized }, "the revocation")
	require.Equal(t, 1, connections)
}

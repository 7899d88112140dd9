package client

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 11, 1, 8, 0, 0, 0, time.UTC)
	f := func(header string, want time.Duration) {
		t.Helper()
		require.Equal(t, want, RetryAfter(header, now))
	}
	f("", 0)
	f("0", 0)
	f("7", 7*time.Second)
	f("-7", 0)
	f("soon", 0)
	f("99999999999999999999", 0)
	f("Sun, 01 Nov 2026 08:00:30 GMT", 30*time.Second)
	f("Sun, 01 Nov 2026 07:00:30 GMT", 0)
}

func TestEndpoint(t *testing.T) {
	f := func(url, want string) {
		t.Helper()
		cfg := defaults()
		cfg.URL, cfg.Key = url, "k"
		c, err := New(cfg, Ingest)
		require.NoError(t, err)
		require.Equal(t, want, c.endpoint)
	}
	f("http://h", "http://h"+Ingest.Path)
	f("http://h/prefix/", "http://h/prefix"+Ingest.Path)
	f("http://h"+Ingest.Path, "http://h"+Ingest.Path)
}

// TestHints checks that an error names the next step unless the daemon's description does.
func TestHints(t *testing.T) {
	f := func(want string, e Error) {
		t.Helper()
		e.Description = "description"
		require.EqualError(t, &e, want)
	}
	f("the daemon responded with 400 INVALID_PARAMETER: description", Error{Status: 400, ErrorCode: "INVALID_PARAMETER"})
	f("the daemon responded with 400 INVALID_GZIP: description; check that --url points to the daemon and that no proxy changes requests or responses",
		Error{Status: 400, ErrorCode: "INVALID_GZIP"})
	f("the daemon responded with 403 GENERAL_FORBIDDEN: description", Error{Status: 403, ErrorCode: "GENERAL_FORBIDDEN"})
	f("the daemon responded with 503 GENERAL_SERVICE_UNAVAILABLE: description; try again after 2 s (trace 1)",
		Error{Status: 503, ErrorCode: "GENERAL_SERVICE_UNAVAILABLE", RetryAfter: 2 * time.Second, TraceID: "1"})
}

// TestRedirect checks that the error names the address of a redirect, for example to https.
func TestRedirect(t *testing.T) {
	server := httptest.NewServer(http.RedirectHandler("https://h/x", http.StatusPermanentRedirect))
	defer server.Close()
	cfg := defaults()
	cfg.URL, cfg.Key = server.URL, "k"
	c, err := New(cfg, Ingest)
	require.NoError(t, err)
	defer c.Close()
	req, err := c.NewRequest(t.Context(), http.MethodGet, nil)
	require.NoError(t, err)
	resp, err := c.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	require.EqualError(t, c.ReadError(resp), "the daemon responded with 308: Permanent Redirect, not a response from trafficd; "+
		"redirects are not followed, so change --url to match https://h/x")
}

// TestCA checks that a private CA is trusted with --ca and reported as permanent without it.
func TestCA(t *testing.T) {
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	cfg := defaults()
	cfg.URL, cfg.Key = server.URL, "k"
	get := func() (*http.Response, error) {
		c, err := New(cfg, Ingest)
		require.NoError(t, err)
		defer c.Close()
		req, err := c.NewRequest(t.Context(), http.MethodGet, nil)
		require.NoError(t, err)
		return c.Do(req)
	}
	_, err := get()
	require.ErrorContains(t, err, "--ca FILE")
	require.True(t, Permanent(err))
	require.True(t, NotConnected(err))

	cfg.CA = filepath.Join(t.TempDir(), "ca.pem")
	_, err = New(cfg, Ingest)
	require.ErrorContains(t, err, "--ca: cannot read")
	require.NoError(t, os.WriteFile(cfg.CA, []byte("no certificate"), 0o600))
	_, err = New(cfg, Ingest)
	require.ErrorContains(t, err, "no CA certificate in")
	certificate, err := x509.ParseCertificate(server.TLS.Certificates[0].Certificate[0])
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(cfg.CA, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Raw}), 0o600))
	resp, err := get()
	require.NoError(t, err)
	resp.Body.Close()
	require.Equal(t, http.StatusNotFound, resp.StatusCode)
}

// TestExpiredCertificate checks that the error about an expired certificate says so, and gives no
// advice about the URL.
func TestExpiredCertificate(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	expired := time.Now().Add(-time.Hour)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: expired, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	server.StartTLS()
	defer server.Close()
	cfg := defaults()
	cfg.URL, cfg.Key, cfg.CA = server.URL, "k", filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(cfg.CA, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	c, err := New(cfg, Ingest)
	require.NoError(t, err)
	defer c.Close()
	req, err := c.NewRequest(t.Context(), http.MethodGet, nil)
	require.NoError(t, err)
	_, err = c.Do(req)
	require.ErrorContains(t, err, "to "+expired.UTC().Format(time.RFC3339)+": ask the operator for a renewed one")
	require.NotContains(t, err.Error(), "check the host")
	require.True(t, Permanent(err))
}

// TestSchemeMismatch checks that the https scheme for a server without TLS is a permanent error.
func TestSchemeMismatch(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	cfg := defaults()
	cfg.URL, cfg.Key = "https"+server.URL[len("http"):], "k"
	c, err := New(cfg, Ingest)
	require.NoError(t, err)
	defer c.Close()
	req, err := c.NewRequest(t.Context(), http.MethodGet, nil)
	require.NoError(t, err)
	_, err = c.Do(req)
	require.True(t, Permanent(err), err)
	require.ErrorContains(t, err, "use http://")
}

// TestProxyAway checks that nothing is in doubt if the proxy cannot be reached.
func TestProxyAway(t *testing.T) {
	away := &url.URL{Scheme: "http", Host: "127.0.0.1:1"}
	c := http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(away)}}
	for _, daemon := range []string{"http://daemon.invalid", "https://daemon.invalid"} {
		_, err := c.Get(daemon)
		require.Error(t, err)
		require.True(t, NotConnected(err), "%v", err)
	}
}

func defaults() Config { return Config{URL: "http://127.0.0.1:8080", Timeout: time.Minute} }

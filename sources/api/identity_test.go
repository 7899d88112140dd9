package api

import (
	"bufio"
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"trafficd/schemas/contract"
)

// authority issues certificates of clients.
type authority struct {
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

var serial atomic.Int64

func newAuthority(t testing.TB, name string) *authority {
	t.Helper()
	own := issue(t, nil, &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	})
	return &authority{t, own.Leaf, own.PrivateKey.(*ecdsa.PrivateKey)}
}

// client returns a certificate with the subject CN=name,O=Acme.
func (a *authority) client(name string, change ...func(*x509.Certificate)) tls.Certificate {
	a.t.Helper()
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: name, Organization: []string{"Acme"}},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	for _, f := range change {
		f(template)
	}
	return issue(a.t, a, template)
}

// issue signs a certificate, without an authority with its own key.
func issue(t testing.TB, by *authority, template *x509.Certificate) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template.SerialNumber = big.NewInt(serial.Add(1))
	template.NotBefore = time.Now().Add(-2 * time.Hour)
	if template.NotAfter.IsZero() {
		template.NotAfter = time.Now().Add(time.Hour)
	}
	if by == nil {
		by = &authority{t, template, key}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, by.cert, &key.PublicKey, by.key)
	require.NoError(t, err)
	leaf, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

// bundle returns a PEM file with the certificates of the authorities.
func bundle(all ...*authority) string {
	var text bytes.Buffer
	for _, a := range all {
		_ = pem.Encode(&text, &pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
	}
	return text.String()
}

func fingerprint(c *x509.Certificate) string { return fmt.Sprintf("%x", sha256.Sum256(c.Raw)) }

func certificateEntry(name string, c *x509.Certificate, rights ...string) KeyEntry {
	return KeyEntry{Name: name, Certificate: fingerprint(c), ProductInstance: "city", Rights: rights}
}

// mutual is a server that accepts the certificates of an authority.
type mutual struct {
	*Server
	t              testing.TB
	roots          *x509.CertPool
	caFile, keys   string
	log            *bytes.Buffer
	authority, odd *authority // odd is another client's
}

func startMutual(t *testing.T, entries ...func(*mutual) KeyEntry) *mutual {
	t.Helper()
	m := &mutual{t: t, authority: newAuthority(t, "clients"), odd: newAuthority(t, "odd"), log: new(bytes.Buffer)}
	dir := t.TempDir()
	m.caFile, m.keys = filepath.Join(dir, "ca.pem"), filepath.Join(dir, "keys.yaml")
	require.NoError(t, os.WriteFile(m.caFile, []byte(bundle(m.authority, m.odd)), 0o600))
	var list []KeyEntry
	for _, e := range entries {
		list = append(list, e(m))
	}
	m.write(list...)
	cert, key, pool := certificate(t)
	m.roots = pool
	m.Server = startLogging(t, &probe{}, func(c *Config) {
		c.TLSCert, c.TLSKey, c.TLSClientCA, c.KeysFile = cert, key, m.caFile, m.keys
	}, zerolog.New(zerolog.SyncWriter(m.log)))
	return m
}

func (m *mutual) write(entries ...KeyEntry) {
	m.t.Helper()
	text := "keys:\n"
	for _, e := range entries {
		text += fmt.Sprintf("- {name: %q, certificate: %q, subject: %q, product_instance: %q, rights: [%s], requests_per_second: %v, expires: %q}\n",
			e.Name, e.Certificate, e.Subject, e.ProductInstance, strings.Join(e.Rights, ", "), e.RequestsPerSecond, e.Expires)
	}
	if len(entries) == 0 {
		text = "keys: []\n"
	}
	require.NoError(m.t, os.WriteFile(m.keys, []byte(text), 0o600))
}

// dial returns a connection with the client certificates, or without one.
func (m *mutual) dial(certificates ...tls.Certificate) *peer {
	m.t.Helper()
	cfg := &tls.Config{RootCAs: m.roots, ServerName: "127.0.0.1"}
	if len(certificates) > 0 { // also one that the server does not ask for
		cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &certificates[0], nil }
	}
	c, err := tls.Dial("tcp", m.Addr().String(), cfg)
	require.NoError(m.t, err)
	m.t.Cleanup(func() { _ = c.Close() })
	require.NoError(m.t, c.SetDeadline(time.Now().Add(patience)))
	return &peer{m.t.(*testing.T), c, bufio.NewReader(c)}
}

const (
	anonymous = "Host: h\r\n"
	abc       = "Content-Length: 3\r\n\r\nabc"
)

// TestClientCertificates checks which entry is found for a certificate, and that requests of all
// forms have the rights of that entry.
func TestClientCertificates(t *testing.T) {
	var pinned tls.Certificate
	m := startMutual(t,
		func(m *mutual) KeyEntry {
			pinned = m.authority.client("pinned")
			return certificateEntry("leaf", pinned.Leaf, "ingest")
		},
		func(m *mutual) KeyEntry {
			e := certificateEntry("named", m.authority.cert, "ingest", "forecast")
			e.Subject, e.Certificate = "CN=acme,O=Acme", strings.ToUpper(e.Certificate[:2])+":"+e.Certificate[2:] // as openssl prints it
			return e
		},
		func(m *mutual) KeyEntry { return certificateEntry("any", m.odd.cert, "forecast") },
	)
	var client atomic.Pointer[contract.Client]
	m.routes.fixed["/base/in"].Endpoint.(*probe).before = func(c *contract.Client, _ *fasthttp.RequestHeader) *contract.APIError {
		client.Store(c)
		return nil
	}
	f := func(certificate tls.Certificate, name string) {
		t.Helper()
		c := m.dial(certificate)
		for _, headers := range []string{"", "Expect: 100-continue\r\n", ""} {
			c.send(post + anonymous + headers + abc)
			if headers != "" {
				require.Equal(t, 100, c.response().StatusCode)
			}
			require.Equal(t, 200, c.response().StatusCode)
			require.Equal(t, name, client.Load().Name)
			require.Equal(t, "city\x00"+name, client.Load().Owner)
		}
	}
	f(pinned, "leaf")
	f(m.authority.client("acme"), "named")
	f(m.authority.client("acme"), "named") // a renewed one
	c := m.dial(m.odd.client("whoever"))
	requireError(t, c.send(post+anonymous+abc).response(), 403, contract.Forbidden)
	require.Equal(t, 200, m.dial(m.odd.client("acme")).send("GET /base/map HTTP/1.1\r\n"+anonymous+"\r\n").response().StatusCode,
		"the subject of another authority's entry is not enough")

	// Keys go on working, with and without a certificate, and take precedence.
	require.Equal(t, 200, m.dial().send(post+good+abc).response().StatusCode)
	require.Equal(t, 200, m.dial(pinned).send(post+good+abc).response().StatusCode)
	require.Equal(t, "good", client.Load().Name)
	require.Equal(t, 401, m.dial(pinned).send(post+"Host: h\r\nAuthorization: apiKey wrong\r\n"+abc).response().StatusCode)
	require.Equal(t, 200, m.dial().send("GET /base/open HTTP/1.1\r\n"+anonymous+"\r\n").response().StatusCode)
}

// TestUnknownCertificate checks that the response says what was seen, and what to do.
func TestUnknownCertificate(t *testing.T) {
	m := startMutual(t, func(m *mutual) KeyEntry {
		e := certificateEntry("named", m.authority.cert, "ingest")
		e.Subject = "CN=acme,O=Acme"
		return e
	})
	stranger := m.authority.client("stranger")
	f := func(c *peer, headers string, closed bool, want ...string) {
		t.Helper()
		resp := c.send(post + anonymous + headers + abc).response()
		require.Equal(t, closed, resp.Close)
		body := requireError(t, resp, 401, contract.Unauthenticated)
		for _, text := range want {
			require.Contains(t, body.Description, text)
		}
	}
	f(m.dial(stranger), "", true, `unknown client certificate with the subject "CN=stranger,O=Acme" and the SHA-256 fingerprint `+fingerprint(stranger.Leaf),
		"the operator can add its fingerprint, or that of its CA, to the keys file")
	f(m.dial(stranger), "Expect: 100-continue\r\n", true, "unknown client certificate") // no 100 Continue
	f(m.dial(), "", true, "Authorization: apiKey <API_KEY>, or a connection with a client certificate")
	f(m.dial(m.authority.client("acme")), "Origin: https://evil.example\r\n", true, "web pages need the header Authorization")
	requireError(t, m.dial(m.authority.client("acme")).send("GET /base/map?apiKey= HTTP/1.1\r\n"+anonymous+"\r\n").response(), 401, contract.Unauthenticated)
	c := m.dial(stranger)
	for range 2 { // without a body, the connection stays open
		requireError(t, c.send("GET /base/map HTTP/1.1\r\n"+anonymous+"\r\n").response(), 401, contract.Unauthenticated)
	}
}

// TestRefusedCertificates checks that handshakes with an invalid certificate fail with the TLS
// alert that names the reason, are counted, and that the log names the certificate.
func TestRefusedCertificates(t *testing.T) {
	m := startMutual(t, func(m *mutual) KeyEntry { return certificateEntry("any", m.authority.cert, "ingest") })
	f := func(certificate tls.Certificate, reason, alert string) {
		t.Helper()
		refusedLogged.Store(0)
		before := testutil.ToFloat64(certificatesRefused.WithLabelValues(reason))
		_, err := m.dial(certificate).in.ReadByte()
		require.ErrorContains(t, err, alert)
		require.Eventually(t, func() bool { return testutil.ToFloat64(certificatesRefused.WithLabelValues(reason)) == before+1 }, patience, time.Millisecond)
	}
	expired := m.authority.client("late", func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Hour) })
	f(expired, "expired", "expired certificate")
	f(newAuthority(t, "foreign").client("late"), "unknown_ca", "unknown certificate authority")
	f(m.authority.client("server", func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} }), "invalid", "bad certificate")
	stop(t, m.Server)
	for _, want := range []string{"certificate has expired", `"subject":"CN=late,O=Acme"`, `"sha256":"` + fingerprint(expired.Leaf), "unknown authority"} {
		require.Contains(t, m.log.String(), want)
	}
}

// TestLargeHandshake checks that a connection cannot make the server keep many certificates, and
// that requests may be larger than a handshake.
func TestLargeHandshake(t *testing.T) {
	m := startMutual(t, func(m *mutual) KeyEntry { return certificateEntry("any", m.authority.cert, "ingest") })
	cert := m.authority.client("acme")
	require.Equal(t, 200, m.dial(cert).send(post+anonymous+"Content-Length: 200000\r\n\r\n"+strings.Repeat("x", 200_000)).response().StatusCode)
	for range 200 {
		cert.Certificate = append(cert.Certificate, m.authority.cert.Raw)
	}
	_, err := m.dial(cert).in.ReadByte()
	require.Error(t, err)
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "the connection is closed")
}

// TestWithdrawnCertificates checks that on an open connection, a certificate is unknown as soon as
// its entry is removed, its CA is removed, or it has expired.
func TestWithdrawnCertificates(t *testing.T) {
	entry := func(m *mutual) KeyEntry { return certificateEntry("any", m.authority.cert, "ingest") }
	f := func(withdraw func(*mutual), want string) {
		t.Helper()
		m := startMutual(t, entry)
		c := m.dial(m.authority.client("acme"))
		require.Equal(t, 200, c.send(post+anonymous+abc).response().StatusCode)
		withdraw(m)
		require.Contains(t, requireError(t, c.send(post+anonymous+abc).response(), 401, contract.Unauthenticated).Description, want)
	}
	f(func(m *mutual) {
		m.write()
		require.NoError(t, m.Server.keys.Reload(nil))
	}, "unknown client certificate")
	f(func(m *mutual) {
		before := m.certificate.now.Load().clients
		require.NoError(t, os.WriteFile(m.caFile, []byte(bundle(m.odd)), 0o600))
		m.Reload()
		require.Eventually(t, func() bool { return m.certificate.now.Load().clients != before }, patience, time.Millisecond)
	}, "no longer accepted: x509: certificate signed by unknown authority")
	f(func(m *mutual) {
		e := entry(m)
		e.Expires = "2026-01-01T00:00:00Z"
		m.write(e)
		require.NoError(t, m.Server.keys.Reload(nil))
	}, "has expired")

	m := startMutual(t, entry)
	c := m.dial(m.authority.client("acme"))
	require.Equal(t, 200, c.send(post+anonymous+abc).response().StatusCode)
	m.listener.mu.Lock()
	defer m.listener.mu.Unlock()
	for own := range m.listener.open {
		x := exchange{anonymous: true, route: m.routes.fixed["/base/in"], start: time.Now().Add(59 * time.Minute)}
		m.identify(&x, own, new(fasthttp.RequestHeader))
		require.Nil(t, x.apiErr)
		x = exchange{anonymous: true, route: x.route, start: time.Now().Add(61 * time.Minute)}
		m.identify(&x, own, new(fasthttp.RequestHeader))
		require.Contains(t, x.apiErr.Description, "no longer accepted: x509: certificate has expired")
	}
}

// TestResumedSessions checks that a resumed TLS session does not outlive its CA.
func TestResumedSessions(t *testing.T) {
	m := startMutual(t, func(m *mutual) KeyEntry { return certificateEntry("any", m.authority.cert, "ingest") })
	cert := m.authority.client("acme")
	cfg := &tls.Config{
		RootCAs: m.roots, ServerName: "127.0.0.1", ClientSessionCache: tls.NewLRUClientSessionCache(1),
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &cert, nil },
	}
	request := func() (status int, resumed bool, err error) {
		c, err := tls.Dial("tcp", m.Addr().String(), cfg)
		if err != nil {
			return 0, false, err
		}
		defer c.Close()
		require.NoError(t, c.SetDeadline(time.Now().Add(patience)))
		fmt.Fprint(c, post+anonymous+abc)
		resp := &fasthttp.Response{}
		err = resp.Read(bufio.NewReader(c))
		return resp.StatusCode(), c.ConnectionState().DidResume, err
	}
	status, resumed, err := request()
	require.NoError(t, err)
	require.Equal(t, []any{200, false}, []any{status, resumed})
	status, resumed, err = request()
	require.NoError(t, err)
	require.Equal(t, []any{200, true}, []any{status, resumed})
	before := m.certificate.now.Load().clients
	require.NoError(t, os.WriteFile(m.caFile, []byte(bundle(m.odd)), 0o600))
	require.Eventually(t, func() bool { return m.certificate.now.Load().clients != before }, patience, time.Millisecond)
	status, _, err = request()
	require.True(t, err != nil || status == 401, status)
}

// TestCertificateLimits checks that the rate limit of an entry applies to all of its certificates,
// and survives a reload; and that the metric shows when the certificate that was used expires.
func TestCertificateLimits(t *testing.T) {
	limited := func(m *mutual) KeyEntry {
		e := certificateEntry("limited", m.authority.cert, "ingest")
		e.RequestsPerSecond = 0.001
		return e
	}
	m := startMutual(t, limited)
	cert := m.authority.client("acme")
	require.Equal(t, 200, m.dial(cert).send(post+anonymous+abc).response().StatusCode)
	require.InDelta(t, cert.Leaf.NotAfter.Unix(), testutil.ToFloat64(keyExpiry.WithLabelValues("limited")), 0)
	requireError(t, m.dial(m.authority.client("other")).send(post+anonymous+abc).response(), 429, contract.RateLimited)
	m.write(limited(m), certificateEntry("new", m.odd.cert, "ingest"))
	require.NoError(t, m.Server.keys.Reload(nil))
	requireError(t, m.dial(cert).send(post+anonymous+abc).response(), 429, contract.RateLimited)
}

// TestCertificateSettings checks that entries that could never work are rejected, and files without
// a certificate.
func TestCertificateSettings(t *testing.T) {
	e := certificateEntry("a", newAuthority(t, "x").cert, "ingest")
	_, err := OpenKeyring(Config{Keys: []KeyEntry{e}}, zerolog.Nop())
	require.ErrorContains(t, err, "require api.tls_client_ca")
	cfg := testConfig()
	cfg.TLSClientCA = "ca.pem"
	require.ErrorContains(t, cfg.Validate(), "tls_client_ca requires tls_cert")
	cfg.TLSCert, cfg.TLSKey, _ = certificate(t)
	require.ErrorContains(t, cfg.CheckCertificate(), "cannot load the CA certificates of clients ca.pem (api.tls_client_ca): open ca.pem")
	cfg.TLSClientCA = cfg.TLSKey
	require.ErrorContains(t, cfg.CheckCertificate(), "must contain PEM certificates")
	cfg.TLSClientCA = cfg.TLSCert
	require.NoError(t, cfg.CheckCertificate())
}

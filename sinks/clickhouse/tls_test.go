package clickhouse

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"trafficd/cmd/dev/devstores/stores"
	"trafficd/pipeline/lib/dial"
)

// testTLS delivers through a TLS terminator that requires a client certificate.
func testTLS(t *testing.T, store *stores.ClickHouse) {
	trusted, foreign := newAuthority(t), newAuthority(t)
	server, err := tls.LoadX509KeyPair(trusted.issue("server", "archive.example"))
	require.NoError(t, err)
	clients := x509.NewCertPool()
	clients.AddCert(trusted.cert)
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{server}, ClientCAs: clients, ClientAuth: tls.RequireAndVerifyClientCert})
	require.NoError(t, err)
	address := serveProxy(t, l, store.TCP).address()
	cert, key := trusted.issue("client", "client")
	foreignCert, foreignKey := foreign.issue("client", "client")
	valid := func(c *Config) {
		c.Addresses = []string{address}
		c.TLS = dial.TLS{Enabled: true, CA: trusted.file, Cert: cert, Key: key, ServerName: "archive.example"}
	}

	a := newArchive(t, store, valid)
	rows, plan := a.plan(smallBlock(1))
	a.deliver(plan, rows)
	a.requireRows(rows)

	f := func(want class, change func(*Config)) {
		t.Helper()
		a := newArchive(t, store, valid, change)
		rows, plan := a.plan(smallBlock(1))
		a.requireFailure(want, plan, rows)
	}
	f(classTLS, func(c *Config) { c.TLS.CA = foreign.file })
	f(classTLS, func(c *Config) { c.TLS.ServerName = "other.example" })
	f(classTLS, func(c *Config) { c.TLS.Cert, c.TLS.Key = foreignCert, foreignKey })
	f(classTLS, func(c *Config) { c.TLS.Cert, c.TLS.Key = "", "" })
	a = newArchive(t, store, valid, func(c *Config) { c.TLS.CA, c.TLS.InsecureSkipVerify = "", true })
	rows, plan = a.plan(smallBlock(1))
	a.deliver(plan, rows)
}

// authority issues certificates for one test.
type authority struct {
	t    testing.TB
	dir  string
	file string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t testing.TB) *authority {
	a := &authority{t: t, dir: t.TempDir()}
	a.cert = &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: a.dir}, NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	a.file, _ = a.sign("ca", a.cert)
	return a
}

func (a *authority) issue(name, host string) (certFile, keyFile string) {
	return a.sign(name, &x509.Certificate{
		SerialNumber: big.NewInt(2), DNSNames: []string{host}, NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	})
}

func (a *authority) sign(name string, cert *x509.Certificate) (certFile, keyFile string) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(a.t, err)
	if a.key == nil {
		a.key = key
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, a.cert, &key.PublicKey, a.key)
	require.NoError(a.t, err)
	if cert.IsCA {
		a.cert, err = x509.ParseCertificate(der)
		require.NoError(a.t, err)
	}
	private, err := x509.MarshalECPrivateKey(key)
	require.NoError(a.t, err)
	return a.write(name+".crt", "CERTIFICATE", der), a.write(name+".key", "EC PRIVATE KEY", private)
}

func (a *authority) write(name, kind string, der []byte) string {
	file := filepath.Join(a.dir, name)
	require.NoError(a.t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
	return file
}

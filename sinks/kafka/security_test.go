package kafka

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"trafficd/cmd/devstores/stores"
)

func TestSecurity(t *testing.T) {
	server, ca := certificate(t)
	c := stores.StartKfake(t, kfake.SeedTopics(2, topic), kfake.TLS(server), kfake.EnableSASL(),
		kfake.Superuser("PLAIN", "trafficd", "secret"), kfake.Superuser("SCRAM-SHA-256", "trafficd", "secret"), kfake.Superuser("SCRAM-SHA-512", "trafficd", "secret"))
	for _, mechanism := range []string{"plain", "scram-sha-256", "scram-sha-512"} {
		cfg := testConfig(topic, c.ListenAddrs()...)
		cfg.TLS = TLS{Enabled: true, CA: ca}
		cfg.SASL = SASL{Mechanism: mechanism, Username: "trafficd", Password: "secret"}
		j := &journal{t: t}
		j.add(block(rowsOf(random(), 100, 10)))
		s := newSink(t, cfg)
		j.run(s)
		require.EqualValues(t, 100, s.session.sequences[0]+s.session.sequences[1])

		cfg.SASL.Password = "wrong"
		_, _, err := newSink(t, cfg).Plan(t.Context(), nil, block(rowsOf(random(), 1, 1)))
		require.Error(t, err)
		require.NotContains(t, err.Error(), "wrong")
		cfg.TLS.CA = ""
		_, _, err = newSink(t, cfg).Plan(t.Context(), nil, block(rowsOf(random(), 1, 1)))
		require.ErrorContains(t, err, "certificate")
	}
}

// certificate makes one for 127.0.0.1 that is its own authority, and writes it
// to a file.
func certificate(t *testing.T) (server *tls.Config, file string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	file = filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}, file
}

package kafka

import (
	"crypto/tls"
	"encoding/pem"
	"io"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"trafficd/cmd/dev/devstores/stores"
	"trafficd/pipeline/lib/dial"
)

// TestSecurity delivers rows over TLS with each SASL mechanism.
func TestSecurity(t *testing.T) {
	server, ca := certificate(t)
	c := stores.StartKfake(t, kfake.SeedTopics(2, topic), kfake.TLS(server), kfake.EnableSASL(),
		kfake.Superuser("PLAIN", "trafficd", "secret"), kfake.Superuser("SCRAM-SHA-256", "trafficd", "secret"), kfake.Superuser("SCRAM-SHA-512", "trafficd", "secret"))
	for _, mechanism := range []string{"plain", "scram-sha-256", "scram-sha-512"} {
		cfg := testConfig(topic, c.ListenAddrs()...)
		cfg.TLS = dial.TLS{Enabled: true, CA: ca}
		cfg.SASL = dial.SASL{Mechanism: mechanism, Username: "trafficd", Password: "secret"}
		loop := &deliveryLoop{t: t}
		loop.add(block(rowsOf(random(), 100, 10)))
		s := newSink(t, cfg)
		loop.run(s)
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

// certificate returns the configuration of a TLS server on 127.0.0.1, and the name of a file with
// the authority that signed its certificate.
func certificate(t *testing.T) (server *tls.Config, file string) {
	t.Helper()
	s := httptest.NewTLSServer(nil)
	s.Close() // only its certificate is used
	file = filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o600))
	return &tls.Config{Certificates: s.TLS.Certificates}, file
}

// TestNotABroker checks that peers that are not Kafka brokers are recognised, and that the client
// uses little memory for their responses, however long these are or claim to be.
func TestNotABroker(t *testing.T) {
	f := func(want, first, repeated string) {
		t.Helper()
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		var server sync.WaitGroup
		server.Go(func() {
			for c, err := l.Accept(); err == nil; c, err = l.Accept() {
				_, _ = io.WriteString(c, first)
				for range 8 << 10 { // 8 GiB in total if repeated is 1 MiB
					if _, err := io.WriteString(c, repeated); repeated == "" || err != nil {
						break
					}
				}
				_ = c.Close()
			}
		})
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, _, err = newSink(t, testConfig(topic, l.Addr().String())).Plan(t.Context(), nil, block(rowsOf(random(), 1, 1)))
		runtime.ReadMemStats(&after)
		require.ErrorContains(t, err, want)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(32<<20))
		require.NoError(t, l.Close())
		server.Wait()
	}
	f(`is not a Kafka broker, or it requires TLS: its response begins with "HTTP`, "HTTP/1.1 400 Bad Request\r\n\r\n", "")
	endless := strings.Repeat("x", 1<<20)
	f(`begins with "xxxx`, "", endless)
}

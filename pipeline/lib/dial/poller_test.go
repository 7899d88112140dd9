package dial

import (
	"crypto/tls"
	"encoding/pem"
	"io"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/ClickHouse/ch-go"
	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/stretchr/testify/require"

	"trafficd/cmd/dev/devstores/stores"
)

// TestPollOverTLS queries ClickHouse through a TLS proxy whose certificate a private authority has
// signed.
func TestPollOverTLS(t *testing.T) {
	store := stores.StartClickHouse(t)
	proxy := httptest.NewTLSServer(nil)
	proxy.Close() // only its certificate is used
	ca := filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: proxy.Certificate().Raw}), 0o600))
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: proxy.TLS.Certificates})
	require.NoError(t, err)
	defer l.Close()
	go func() { // forwards every connection
		for c, err := l.Accept(); err == nil; c, err = l.Accept() {
			if to, err := net.Dial("tcp", store.TCP); err == nil {
				go func() { _, _ = io.Copy(to, c); _ = to.Close() }()
				go func() { _, _ = io.Copy(c, to); _ = c.Close() }()
			}
		}
	}()
	f := func(ca, wantError, want string) {
		t.Helper()
		p := Poller{ClickHouseQuery: ClickHouseQuery{
			Address: l.Addr().String(), Query: "SELECT 'A'", Interval: time.Minute, Timeout: time.Minute,
			ClickHouse: ClickHouse{Username: "trafficd", Password: "trafficd", TLS: TLS{Enabled: true, CA: ca}},
		}}
		defer p.Close()
		require.NoError(t, p.Validate(""))
		got := ""
		err := p.Poll(t.Context(), func(rows driver.Rows) error {
			for rows.Next() {
				if err := rows.Scan(&got); err != nil {
					return err
				}
			}
			return nil
		})
		if wantError == "" {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, wantError)
		}
		require.Equal(t, want, got)
	}
	f(ca, "", "A")
	t.Run("renewed files", func(t *testing.T) { testRenewedFiles(t, l.Addr().String(), ca) })
	f("", "certificate signed by unknown authority", "")
	f(ca+".missing", "cannot read the CA certificates", "")
}

// testRenewedFiles checks that every connection reads the CA certificates again, and that a missing
// file is reported as such.
func testRenewedFiles(t *testing.T, address, ca string) {
	file := filepath.Join(t.TempDir(), "ca.pem")
	pem, err := os.ReadFile(ca)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, pem, 0o600))
	c := ClickHouse{Username: "default", TLS: TLS{Enabled: true, CA: file}}
	conn, err := c.Open(&clickhouse.Options{Addr: []string{address}, DialTimeout: time.Minute})
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, os.Remove(file))
	err = conn.Ping(t.Context())
	require.ErrorContains(t, err, "tls.ca: cannot read the CA certificates")
	require.NotErrorIs(t, err, ErrHandshake)
	require.True(t, IsTLS(err))
	require.NoError(t, os.WriteFile(file, pem, 0o600))
	require.NoError(t, conn.Ping(t.Context()))
}

// TestWrongPort connects to ports of other protocols, with TLS and without.
func TestWrongPort(t *testing.T) {
	f := func(enabled bool, want string, respond func(net.Conn)) {
		t.Helper()
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		var server sync.WaitGroup
		server.Go(func() {
			for c, err := l.Accept(); err == nil; c, err = l.Accept() {
				server.Go(func() {
					defer c.Close()
					respond(c)
				})
			}
		})
		address := l.Addr().String()
		c := ClickHouse{Username: "default", TLS: TLS{Enabled: enabled, InsecureSkipVerify: enabled}}
		conn, err := c.Open(&clickhouse.Options{Addr: []string{address}, DialTimeout: time.Minute})
		require.NoError(t, err)
		defer conn.Close()
		_, connectErr := c.Connect(t.Context(), address, time.Minute, ch.CompressionDisabled)
		for _, err := range []error{conn.Ping(t.Context()), connectErr} {
			require.ErrorContains(t, err, want)
		}
		require.NoError(t, l.Close())
		server.Wait()
	}
	const advice = "check that this is the port of ClickHouse's native protocol (9000 by default, 9440 with TLS)"
	send := func(response string) func(net.Conn) {
		return func(c net.Conn) {
			_, _ = io.WriteString(c, response)
			_, _ = io.Copy(io.Discard, c)
		}
	}
	f(false, advice, send("HTTP/1.1 400 Bad Request\r\n\r\n"))
	f(false, advice, send("\x15\x03\x03\x00\x02\x02\x46")) // a TLS alert
	f(false, advice, func(net.Conn) {})
	f(true, advice, func(net.Conn) {})
	f(true, "does not look like a TLS handshake", send("HTTP/1.1 400 Bad Request\r\n\r\n"))

	server := ch.Exception{Code: 516}
	require.Equal(t, &server, explain(&server), "an error of the server itself needs no advice about the port")
	require.Equal(t, &clickhouse.Exception{Code: 516}, explain(&clickhouse.Exception{Code: 516}))
}

package dial

import (
	"crypto/tls"
	"encoding/pem"
	"io"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/stretchr/testify/require"

	"trafficd/cmd/devstores/stores"
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
	f("", "certificate signed by unknown authority", "")
	f(ca+".missing", "cannot read the CA certificates", "")
}

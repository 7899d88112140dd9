package routing

import (
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestForwardedAddress checks that the WSDL uses the headers of a proxy if they are valid and the
// proxy is trusted.
func TestForwardedAddress(t *testing.T) {
	f := func(trusted []string, proto, host, want string) {
		t.Helper()
		s := start(t, func(c *Config) { c.TrustedProxies = trusted })
		req, err := http.NewRequest(http.MethodGet, s.url+"?WSDL", nil)
		require.NoError(t, err)
		req.Host = "inside"
		req.Header.Set("X-Forwarded-Proto", proto)
		req.Header.Set("X-Forwarded-Host", host)
		resp, err := http.DefaultTransport.RoundTrip(req)
		require.NoError(t, err)
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.Contains(t, string(text), `<soap:address location="`+want+`/base/xroute/ws/XRoute"/>`)
	}
	const host = "traffic.example.org:8443"
	f(nil, "https", host, "http://inside")
	f([]string{"10.0.0.0/8"}, "https", host, "http://inside")
	f([]string{"10.0.0.0/8", "127.0.0.0/8"}, "https", host, "https://"+host)
	f([]string{"127.0.0.1"}, "https, http", host+", proxy", "https://"+host)
	f([]string{"127.0.0.1"}, "HTTPS", host, "https://"+host)
	f([]string{"127.0.0.1"}, "", "", "http://inside")
	f([]string{"127.0.0.1"}, "gopher", "a/b?c", "http://inside")
	f([]string{"127.0.0.1"}, "https", "a/b", "https://inside")

	cfg := DefaultConfig()
	cfg.TrustedProxies = []string{"10.0.0.0/33"}
	require.ErrorContains(t, cfg.Validate(), "trusted_proxies: ")
	cfg.TrustedProxies = []string{"proxy"}
	require.ErrorContains(t, cfg.Validate(), "trusted_proxies: ")
}

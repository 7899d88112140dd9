package clickhouse

import (
	"testing"
	"time"

	native "github.com/ClickHouse/ch-go"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"trafficd/pipeline/lib/dial"
)

func TestValidate(t *testing.T) {
	f := func(want string, change func(*Config)) {
		t.Helper()
		c := DefaultConfig()
		change(&c)
		if want == "" {
			require.NoError(t, c.Validate())
			return
		}
		require.ErrorContains(t, c.Validate(), want)
	}
	f("", func(*Config) {})
	f("", func(c *Config) { c.Cluster, c.Quorum, c.Addresses = "main", 2, []string{"a:9000", "[::1]:9000"} })
	f("", func(c *Config) { c.TLS = dial.TLS{Enabled: true, CA: "ca", Cert: "cert", Key: "key"} })
	f("addresses must name at least", func(c *Config) { c.Addresses = nil })
	f("addresses is \"here\", must be host:port", func(c *Config) { c.Addresses = []string{"here"} })
	f("addresses lists 2 servers", func(c *Config) { c.Addresses = []string{"a:1", "b:1"} })
	f("database is", func(c *Config) { c.Database = "a b" })
	f("table is", func(c *Config) { c.Table = "1st" })
	f("table is", func(c *Config) { c.Table = "a`; DROP TABLE x" })
	f("cluster is", func(c *Config) { c.Cluster = "'" })
	f("quorum is -1", func(c *Config) { c.Quorum = -1 })
	f("quorum is 2, must be 0 unless", func(c *Config) { c.Quorum = 2 })
	f("username must", func(c *Config) { c.Username = "" })
	f("tls.cert and tls.key", func(c *Config) { c.TLS.Enabled, c.TLS.Cert = true, "cert" })
	f("tls.enabled must be true", func(c *Config) { c.TLS.CA = "ca" })
	f("write_timeout is", func(c *Config) { c.WriteTimeout = time.Hour })
}

func TestNewReadsFiles(t *testing.T) {
	c := DefaultConfig()
	c.TLS.Enabled, c.TLS.CA = true, "/nonexistent/ca.pem"
	_, err := New(c, zerolog.Nop())
	require.ErrorContains(t, err, "cannot read the CA certificates: open /nonexistent/ca.pem")
}

// TestCompression checks that auto compresses only inserts into other machines.
func TestCompression(t *testing.T) {
	f := func(setting, address string, want native.Compression) {
		t.Helper()
		c := DefaultConfig()
		c.Compression = setting
		require.NoError(t, c.Validate())
		require.Equal(t, want, c.compression(address))
	}
	f("auto", "127.0.0.1:9000", native.CompressionDisabled)
	f("auto", "[::1]:9000", native.CompressionDisabled)
	f("auto", "localhost:9000", native.CompressionDisabled)
	f("auto", "clickhouse:9000", native.CompressionLZ4)
	f("auto", "10.0.0.1:9000", native.CompressionLZ4)
	f("none", "clickhouse:9000", native.CompressionDisabled)
	f("zstd", "127.0.0.1:9000", native.CompressionZSTD)
}

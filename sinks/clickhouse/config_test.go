package clickhouse

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
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
	f("", func(c *Config) { c.Secure, c.CAFile, c.CertFile, c.KeyFile = true, "ca", "cert", "key" })
	f("addresses: at least one", func(c *Config) { c.Addresses = nil })
	f("addresses: \"here\" is no host:port", func(c *Config) { c.Addresses = []string{"here"} })
	f("addresses: 2 servers without a cluster", func(c *Config) { c.Addresses = []string{"a:1", "b:1"} })
	f("database: ", func(c *Config) { c.Database = "a b" })
	f("table: ", func(c *Config) { c.Table = "1st" })
	f("table: ", func(c *Config) { c.Table = "a`; DROP TABLE x" })
	f("cluster: ", func(c *Config) { c.Cluster = "'" })
	f("quorum: -1", func(c *Config) { c.Quorum = -1 })
	f("quorum: 2 needs a cluster", func(c *Config) { c.Quorum = 2 })
	f("username: ", func(c *Config) { c.Username = "" })
	f("cert_file, key_file: ", func(c *Config) { c.Secure, c.CertFile = true, "cert" })
	f("secure: is off", func(c *Config) { c.CAFile = "ca" })
	f("compression: \"gzip\"", func(c *Config) { c.Compression = "gzip" })
	f("dial_timeout: ", func(c *Config) { c.DialTimeout = time.Millisecond })
	f("write_timeout: ", func(c *Config) { c.WriteTimeout = time.Hour })
	f("block_rows: 0", func(c *Config) { c.BlockRows = 0 })
	f("block_rows: 200001", func(c *Config) { c.BlockRows = maxBlockRows + 1 })
	f("max_partitions: 51", func(c *Config) { c.MaxPartitions = 51 })
}

// TestFiles: what is wrong with TLS files is said at the start, not at the
// first connection.
func TestFiles(t *testing.T) {
	text := filepath.Join(t.TempDir(), "text")
	require.NoError(t, os.WriteFile(text, []byte("no certificate"), 0o600))
	f := func(want string, change func(*Config)) {
		t.Helper()
		c := DefaultConfig()
		c.Secure = true
		change(&c)
		_, err := New(c, zerolog.Nop())
		require.ErrorContains(t, err, want)
	}
	f("cannot read ca_file", func(c *Config) { c.CAFile = text + "s" })
	f("holds no certificate", func(c *Config) { c.CAFile = text })
	f("cannot use cert_file and key_file", func(c *Config) { c.CertFile, c.KeyFile = text, text })
}

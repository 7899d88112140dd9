package routing

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestConfig(t *testing.T) {
	require.NoError(t, DefaultConfig().Validate())
	f := func(key string, change func(*Config)) {
		t.Helper()
		c := DefaultConfig()
		change(&c)
		require.ErrorContains(t, c.Validate(), key+" is ")
	}
	for _, url := range []string{"example.org", "ftp://example.org", "https://", "https://example.org/", "https://u@example.org", "https://example.org?x", "https://example.org#x", "https://example.org?", "https://example.org#"} {
		f("public_url", func(c *Config) { c.PublicURL = url })
	}
	f("max_body_bytes", func(c *Config) { c.MaxBodyBytes = 1023 })
	f("max_points", func(c *Config) { c.MaxPoints = 0 })
	f("max_depth", func(c *Config) { c.MaxDepth = 0 })
	f("max_depth", func(c *Config) { c.MaxDepth = 1001 })
	f("receive_timeout", func(c *Config) { c.ReceiveTimeout = 0 })
	f("min_bytes_per_second", func(c *Config) { c.MinBytesPerSecond = -1 })
	f("rate_grace", func(c *Config) { c.RateGrace = 2 * time.Minute })
	f("admission_requests", func(c *Config) { c.AdmissionRequests = 3 })
	f("admission_bytes", func(c *Config) { c.AdmissionBytes = 4*c.MaxBodyBytes - 1 })
	f("concurrency", func(c *Config) { c.Concurrency = 0 })
	f("max_watches", func(c *Config) { c.MaxWatches = 0 })
	f("max_watches", func(c *Config) { c.MaxWatches = int(c.AdmissionRequests) - 1 })
	f("jobs.workers", func(c *Config) { c.Jobs.Workers = 0 })
	f("jobs.max", func(c *Config) { c.Jobs.Max = 0 })
	f("jobs.max_per_client", func(c *Config) { c.Jobs.MaxPerClient = 0 })
	f("jobs.max_geometries", func(c *Config) { c.Jobs.MaxGeometries = 0 })
	f("jobs.max_bytes", func(c *Config) { c.Jobs.MaxBytes = c.Jobs.MaxBytesPerClient - 1 })
	f("jobs.max_bytes_per_client", func(c *Config) { c.Jobs.MaxBytesPerClient = 1023 })
	f("jobs.keep", func(c *Config) { c.Jobs.Keep = 0 })
	f("jobs.max_poll", func(c *Config) { c.Jobs.MaxPoll = 0 })
	f("jobs.max_poll", func(c *Config) { c.Jobs.MaxPoll = time.Hour })
}

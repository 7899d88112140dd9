package routing

import (
	"testing"

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
}

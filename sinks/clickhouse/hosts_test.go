package clickhouse

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
)

// TestCloseResetsHostsUnavailable checks that a sink whose partition another replica delivers does
// not report servers as unavailable forever.
func TestCloseResetsHostsUnavailable(t *testing.T) {
	c := DefaultConfig()
	c.Cluster, c.Addresses = "main", []string{"127.0.0.1:1", "127.0.0.1:2"}
	s, err := New(c, zerolog.Nop())
	require.NoError(t, err)
	s.hosts.refresh(t.Context())
	require.EqualValues(t, 2, testutil.ToFloat64(hostsUnavailable))
	require.NoError(t, s.Close())
	require.Zero(t, testutil.ToFloat64(hostsUnavailable))
}

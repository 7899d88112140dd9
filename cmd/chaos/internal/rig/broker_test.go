package rig

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"trafficd/cmd/devstores/stores"
)

// TestApacheNodes: one of three brokers can be away, and Restart brings it back.
func TestApacheNodes(t *testing.T) {
	ports, err := freePorts(3)
	require.NoError(t, err)
	var own []string
	for _, port := range ports {
		own = append(own, loopback(port))
	}
	a, err := startApache(t.Context(), t.TempDir(), t.Output(), ports, own)
	defer func() { require.NoError(t, a.Close()) }()
	require.NoError(t, err)
	require.Equal(t, own, a.Addresses())
	require.NoError(t, a.EndSome(rand.New(rand.NewPCG(1, 2)), 1))
	require.Len(t, a.down, 1)
	require.NoError(t, eventually(t.Context(), time.Minute, func() error {
		_, err := stores.ReadTopic(t.Context(), a.Addresses(), Topic)
		return err
	}))
	require.NoError(t, a.Restart())
	require.Empty(t, a.down)
}

package rig

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"trafficd/cmd/internal/launch"
)

// TestApacheNodes: the cluster works without one of three brokers, and Restart restarts it.
func TestApacheNodes(t *testing.T) {
	ports, err := launch.PickPorts("test", 3)
	require.NoError(t, err)
	var own []string
	for _, port := range ports {
		own = append(own, launch.Address(port))
	}
	a, err := startApache(t.Context(), t.TempDir(), t.Output(), ports, own, nil)
	defer func() { require.NoError(t, a.Close()) }()
	require.NoError(t, err)
	require.Equal(t, own, a.Addresses())
	require.NoError(t, a.End(rand.New(rand.NewPCG(1, 2)), 1))
	require.Len(t, a.down, 1)
	require.NoError(t, launch.Eventually(t.Context(), time.Minute, func() error {
		_, err := launch.ReadTopic(t.Context(), a.Addresses(), Topic)
		return err
	}))
	require.NoError(t, a.Restart())
	require.Empty(t, a.down)
}

package launch_test

import (
	"net"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"trafficd/cmd/dev/launch"
)

func TestPick(t *testing.T) {
	free, err := launch.PickPort("a test", 0)
	require.NoError(t, err)
	require.Less(t, free, 32768, "below the ephemeral ports")
	l, err := net.Listen("tcp", launch.Address(free))
	require.NoError(t, err)
	_, err = launch.PickPort("a test", free)
	require.ErrorContains(t, err, "cannot use port "+strconv.Itoa(free)+" for a test")
	require.NoError(t, l.Close())
	again, err := launch.PickPort("a test", free)
	require.NoError(t, err)
	require.Equal(t, free, again)

	seen := map[int]bool{}
	for range 500 { // no server is listening on them
		port, err := launch.PickPort("a test", 0)
		require.NoError(t, err)
		require.False(t, seen[port])
		seen[port] = true
	}
}

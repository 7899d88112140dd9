package rig

import (
	"net"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"trafficd/cmd/dev/launch"
	"trafficd/cmd/dev/needs"
)

// inside calls do on a thread in the network namespace of a host. The sockets that it opens stay
// there.
func inside[T any](t *testing.T, h launch.Host, do func() (T, error)) (got T, err error) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		var f *os.File
		if f, err = os.Open("/run/netns/" + h.Namespace); err != nil {
			return
		}
		defer f.Close()
		if err = unix.Setns(int(f.Fd()), unix.CLONE_NEWNET); err == nil {
			got, err = do()
		}
	}()
	<-done
	return got, err
}

// TestNetwork checks that connections over a link that is cut in either direction time out until
// Join.
func TestNetwork(t *testing.T) {
	needs.Everything(t, "the right to create network namespaces")
	n, err := newNetwork(2)
	defer n.close()
	if err != nil && strings.Contains(err.Error(), "not permitted") {
		return // any other error is a failure
	}
	require.NoError(t, err)
	server, err := inside(t, n.Hosts[1], func() (net.Listener, error) { return net.Listen("tcp", n.Hosts[1].Address+":0") })
	require.NoError(t, err)
	defer server.Close()
	connect := func(limit time.Duration) error {
		c, err := inside(t, n.Hosts[0], func() (net.Conn, error) { return net.DialTimeout("tcp", server.Addr().String(), limit) })
		if err == nil {
			err = c.Close()
		}
		return err
	}
	require.NoError(t, connect(time.Minute))
	for _, link := range [][2]int{{0, 1}, {1, 0}} {
		require.NoError(t, n.Cut(link[0], link[1]))
		require.ErrorContains(t, connect(200*time.Millisecond), "timeout")
		require.NoError(t, n.Join(link[0], link[1]))
		require.NoError(t, connect(time.Minute))
	}
}

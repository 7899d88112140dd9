package clickhouse

import (
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"trafficd/cmd/dev/chfake"
)

// fakeServer is a fake server that listens on a port.
type fakeServer struct {
	*chfake.Server
	address string
}

func startFake(t testing.TB) *fakeServer {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	f := &fakeServer{chfake.New(t.Log), l.Addr().String()}
	var serving sync.WaitGroup
	serving.Go(func() { f.Serve(l) })
	t.Cleanup(func() {
		require.NoError(t, l.Close())
		serving.Wait() // the sinks have closed their connections
	})
	return f
}

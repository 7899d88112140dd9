package launch

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestMetrics(t *testing.T) {
	m := parseMetrics("# HELP rows of the store\nrows 1\nlag{sink=\"kafka\"} 2.5\nlag{sink=\"x\"} 1\nlagging 7\nodd\nalso odd\n")
	require.Equal(t, Metrics{"rows": 1, `lag{sink="kafka"}`: 2.5, `lag{sink="x"}`: 1, "lagging": 7}, m)
	require.Equal(t, 3.5, m.Sum("lag"))
	require.True(t, math.IsNaN(m.Sum("none")), "a metric that is missing is not zero")
}

// TestDaemonLog checks that Log returns only the output of the last start, and that AwaitReady
// reports a daemon that has exited.
func TestDaemonLog(t *testing.T) {
	d := &Daemon{Binary: "/bin/sh", Args: []string{"-c", "echo first"}, Dir: t.TempDir()}
	require.Empty(t, d.Log())
	require.True(t, d.Exited(), "before the first start")
	require.NoError(t, d.Kill())
	require.NoError(t, d.Start())
	<-d.Done()
	require.Equal(t, "first\n", d.Log())
	d.Args[1] = "echo second; exit 3"
	require.NoError(t, d.Start())
	err := d.AwaitReady(t.Context(), time.Minute)
	require.ErrorContains(t, err, "did not become ready")
	require.ErrorContains(t, err, "second")
	require.Equal(t, 3, d.State().ExitCode())

	d.Args[1] = "exec sleep 1000"
	require.NoError(t, d.Start())
	require.NoError(t, d.Signal(unix.SIGSTOP))
	require.NoError(t, d.Stop(time.Minute), "a paused daemon stops too")
}

package rig

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"trafficd/cmd/dev/launch"
	"trafficd/cmd/dev/needs"
)

// TestDisk fills and frees the disk through the path that other processes use.
func TestDisk(t *testing.T) {
	d, err := newDisk(1 << 20)
	if err != nil {
		require.ErrorIs(t, err, fs.ErrPermission, "any other error is a failure")
		return
	}
	defer d.close()
	file := filepath.Join(d.Dir, "file")
	require.NoError(t, os.WriteFile(file, []byte("kept"), 0o600))
	require.NoError(t, d.Fill())
	require.ErrorIs(t, os.WriteFile(file+"2", make([]byte, 4096), 0o600), unix.ENOSPC)
	require.NoError(t, d.Free())
	require.NoError(t, os.WriteFile(file+"2", make([]byte, 4096), 0o600))
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, "kept", string(text))
}

// scripted starts a shell script as the daemon.
func scripted(t *testing.T, script string) (*Daemon, *[]string) {
	t.Helper()
	needs.Program(t, "sh")
	var unexpected []string
	d := &Daemon{
		Daemon:     launch.Daemon{Binary: "/bin/sh", Args: []string{"-c", script}, Dir: t.TempDir()},
		unexpected: func(format string, _ ...any) { unexpected = append(unexpected, format) },
	}
	require.NoError(t, d.Start())
	t.Cleanup(func() { _ = d.Kill() })
	return d, &unexpected
}

// logged waits until the script has logged something.
func logged(t *testing.T, d *Daemon) {
	t.Helper()
	require.NoError(t, launch.Eventually(t.Context(), time.Minute, func() error {
		if d.LogTail() == "" {
			return errors.New("nothing logged yet")
		}
		return nil
	}))
}

func TestExitsAfterSIGTERM(t *testing.T) {
	f := func(script string, wants int) {
		t.Helper()
		d, unexpected := scripted(t, script)
		logged(t, d)
		require.NoError(t, d.Terminate())
		require.Len(t, *unexpected, wants)
		require.False(t, d.Running())
	}
	f(`trap 'exit 0' TERM; echo here; while :; do sleep 0.05; done`, 0)
	f(`trap 'exit 3' TERM; echo here; while :; do sleep 0.05; done`, 1)
	f(`trap 'echo no space left; exit 1' TERM; echo here; while :; do sleep 0.05; done`, 0)
	f(`echo here; exec sleep 60`, 0)                // terminated before it handled signals
	f(`echo '"trafficd starts"'; exec sleep 60`, 1) // terminated after that
}

func TestUnexpectedExits(t *testing.T) {
	f := func(script string, wants int) {
		t.Helper()
		d, unexpected := scripted(t, script)
		<-d.Done()
		require.NoError(t, d.Start())
		require.Len(t, *unexpected, wants)
	}
	f(`exit 1`, 1)
	f(`echo 'input/output error'; exit 1`, 0)
	f(`echo '"listening for clients"'; echo 'input/output error'; exit 1`, 1) // it was listening
}

// TestLogOfThisProcess checks that an exit is unexpected even if an earlier process logged a disk
// error.
func TestLogOfThisProcess(t *testing.T) {
	d, unexpected := scripted(t, `echo 'no space left'; exit 1`)
	<-d.Done()
	require.NoError(t, d.Start())
	require.Empty(t, *unexpected)
	<-d.Done()
	d.Args[1] = "exit 1"
	require.NoError(t, d.Start())
	require.Empty(t, *unexpected)
	<-d.Done()
	require.False(t, d.Running())
	require.Len(t, *unexpected, 1)
}

package rig

import (
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestSum(t *testing.T) {
	const text = "a{sink=\"x\"} 1\na{sink=\"y\"} 2.5\nab 7\nb 0\n"
	require.Equal(t, 3.5, sum(text, "a"))
	require.Equal(t, 0.0, sum(text, "b"))
	require.True(t, math.IsNaN(sum(text, "c")), "what is not told is not zero")
	require.True(t, math.IsNaN(sum("a x\n", "a")))
}

// TestDisk: it can be full and free again, for other processes too.
func TestDisk(t *testing.T) {
	d, err := newDisk(1 << 20)
	if err != nil {
		require.ErrorIs(t, err, fs.ErrPermission, "a run without mounts has no disk; nothing else may be in the way")
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

// scripted is a daemon that is a shell script.
func scripted(t *testing.T, script string) (*Daemon, *[]string) {
	t.Helper()
	var wrong []string
	d := &Daemon{
		binary: "/bin/sh", args: []string{"-c", script}, log: filepath.Join(t.TempDir(), "log"),
		wrong: func(format string, _ ...any) { wrong = append(wrong, format) },
	}
	require.NoError(t, d.Start())
	t.Cleanup(d.Kill)
	return d, &wrong
}

// said waits until the script has said that it is there.
func said(t *testing.T, d *Daemon) {
	t.Helper()
	require.NoError(t, eventually(t.Context(), 10*time.Second, func() error {
		if d.lastWords() == "" {
			return errors.New("nothing said yet")
		}
		return nil
	}))
}

func TestEndsThatMustNotBe(t *testing.T) {
	f := func(script string, wants int) {
		t.Helper()
		d, wrong := scripted(t, script)
		said(t, d)
		d.Terminate()
		require.Len(t, *wrong, wants)
		require.False(t, d.Running())
	}
	f(`trap 'exit 0' TERM; echo here; while :; do sleep 0.05; done`, 0)
	f(`trap 'exit 3' TERM; echo here; while :; do sleep 0.05; done`, 1)
	f(`trap 'echo no space left; exit 1' TERM; echo here; while :; do sleep 0.05; done`, 0)
	f(`echo here; exec sleep 60`, 0)                // before it asked for signals
	f(`echo '"trafficd starts"'; exec sleep 60`, 1) // it did
}

func TestEndsByItself(t *testing.T) {
	f := func(script string, wants int) {
		t.Helper()
		d, wrong := scripted(t, script)
		<-d.proc.done
		require.NoError(t, d.Start())
		require.Len(t, *wrong, wants)
	}
	f(`exit 1`, 1)
	f(`echo 'input/output error'; exit 1`, 0)
	f(`echo '"listening for clients"'; echo 'input/output error'; exit 1`, 1) // it has come up
}

// TestWordsOfThisProcess: what an earlier one said excuses nothing.
func TestWordsOfThisProcess(t *testing.T) {
	d, wrong := scripted(t, `echo 'no space left'; exit 1`)
	<-d.proc.done
	require.NoError(t, d.Start())
	require.Empty(t, *wrong)
	<-d.proc.done
	d.args[1] = "exit 1"
	require.NoError(t, d.Start())
	require.Empty(t, *wrong)
	<-d.proc.done
	require.False(t, d.Running())
	require.Len(t, *wrong, 1)
}

func TestPause(t *testing.T) {
	d, wrong := scripted(t, `trap 'exit 0' TERM; echo here; while :; do sleep 0.05; done`)
	said(t, d)
	d.Pause()
	var status syscall.WaitStatus
	_, err := syscall.Wait4(d.proc.cmd.Process.Pid, &status, syscall.WUNTRACED, nil)
	require.NoError(t, err)
	require.True(t, status.Stopped())
	d.Resume()
	d.Terminate()
	require.Empty(t, *wrong)
}

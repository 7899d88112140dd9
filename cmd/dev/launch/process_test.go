package launch_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"trafficd/cmd/dev/launch"
	"trafficd/cmd/dev/needs"
)

// parentEnv names the environment variable that makes this test program a parent: it starts a
// child, prints its process ID, and waits to be killed.
const parentEnv = "TRAFFICD_TEST_PARENT"

func TestMain(m *testing.M) {
	if os.Getenv(parentEnv) != "" {
		parent()
	}
	goleak.VerifyTestMain(m)
}

func parent() {
	p, err := launch.Start(exec.Command("sleep", "1000"), nil)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(p.PID())
	select {}
}

// TestChildDiesWithItsParent checks that the kernel kills the child: sleep never reads its
// lifeline.
func TestChildDiesWithItsParent(t *testing.T) {
	needs.Program(t, "sleep")
	self := exec.Command("/proc/self/exe")
	self.Env = append(os.Environ(), parentEnv+"=1")
	stdout, err := self.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, self.Start())
	var child int
	_, err = fmt.Fscan(stdout, &child)
	require.NoError(t, err)
	require.True(t, launch.Alive(child))

	require.NoError(t, self.Process.Kill())
	require.Error(t, self.Wait())
	require.Eventually(t, func() bool { return !launch.Alive(child) }, time.Minute, time.Millisecond)
}

func TestStop(t *testing.T) {
	needs.Program(t, "sh")
	f := func(script string, before unix.Signal, grace time.Duration, want string) {
		t.Helper()
		failed := func(err error) { t.Errorf("a stopped child was reported as failed: %v", err) }
		cmd := exec.Command("sh", "-c", script)
		stdout, err := cmd.StdoutPipe()
		require.NoError(t, err)
		p, err := launch.Start(cmd, failed)
		require.NoError(t, err)
		_, err = bufio.NewReader(stdout).ReadString('\n') // its traps are set
		require.NoError(t, err)
		require.NoError(t, p.Signal(before))
		err = p.Stop(grace)
		if want == "" {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, want)
		}
		require.NoError(t, p.Stop(grace), "a second stop")
		require.NoError(t, p.Kill())
		require.False(t, launch.Alive(p.PID()))
	}
	f("echo; exec sleep 1000", unix.SIGCONT, time.Minute, "")                                 // SIGTERM
	f("trap '' TERM; echo; exec cat", unix.SIGCONT, time.Minute, "")                          // the lifeline
	f("trap '' TERM; echo; exec sleep 1000", unix.SIGCONT, 10*time.Millisecond, "was killed") // neither
	f("trap '' TERM; echo; exec cat >/dev/null", unix.SIGSTOP, time.Minute, "")               // paused
}

func TestFailedIsCalledOnceAfterAnUnexpectedExit(t *testing.T) {
	needs.Program(t, "sh")
	f := func(script, want string) {
		t.Helper()
		failures := make(chan error, 2)
		p, err := launch.Start(exec.Command("sh", "-c", script), func(err error) { failures <- err })
		require.NoError(t, err)
		require.ErrorContains(t, <-failures, want)
		<-p.Done()
		require.NoError(t, p.Stop(time.Minute))
		require.NoError(t, p.Signal(unix.SIGTERM))
		require.Empty(t, failures)
	}
	f("exit 0", "exited unexpectedly: exit status 0")
	f("exit 3", "exited unexpectedly: exit status 3")
}

// TestGroup kills a child that has started another one. Both hold its standard error, so Done waits
// for both.
func TestGroup(t *testing.T) {
	needs.Program(t, "sh")
	cmd := exec.Command("sh", "-c", "sleep 1000 2>/dev/null & echo $!; wait")
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	cmd.Stderr = struct{ io.Writer }{io.Discard}
	p, err := launch.StartGroup(cmd, unix.SIGKILL)
	require.NoError(t, err)
	var grandchild int
	_, err = fmt.Fscan(stdout, &grandchild)
	require.NoError(t, err)
	require.NoError(t, p.Kill())
	require.Eventually(t, func() bool { return !launch.Alive(grandchild) }, time.Minute, time.Millisecond)
}

func TestStartError(t *testing.T) {
	_, err := launch.Start(exec.Command("/no/such/program"), nil)
	require.ErrorContains(t, err, "cannot start /no/such/program")
}

func TestRun(t *testing.T) {
	needs.Program(t, "sleep")
	require.NoError(t, launch.Run(t.Context(), exec.Command("true")))
	require.ErrorContains(t, launch.Run(t.Context(), exec.Command("false")), "exit status 1")

	enough := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(enough)
	require.ErrorIs(t, launch.Run(ctx, exec.Command("sleep", "1000")), enough)
}

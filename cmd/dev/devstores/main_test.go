package main_test

import (
	"bufio"
	"encoding/json"
	"io"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"trafficd/cmd/dev/launch"
	"trafficd/cmd/dev/needs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// program is a devstores process started the way a user starts it, not through package launch.
type program struct {
	*exec.Cmd
	stdin  io.Closer
	stdout *bufio.Reader
	stderr *strings.Builder
	ready  struct {
		ClickHouse struct {
			TCP, HTTP, Kind, Version string
			PIDs                     []int
		}
		Kafka struct {
			Brokers       []string
			Kind, Version string
			PIDs          []int
		}
	}
}

// start runs devstores on free ports with a pipe as standard input. It does not wait.
func start(t *testing.T, args ...string) *program {
	t.Helper()
	binary, err := launch.Program(t.Context(), "devstores")
	require.NoError(t, err)
	args = append([]string{"--dir", t.TempDir(), "--clickhouse-tcp", "0", "--clickhouse-http", "0", "--kafka", "0"}, args...)
	p := &program{Cmd: exec.Command(binary, args...), stderr: &strings.Builder{}}
	p.Stderr = p.stderr
	p.stdin, err = p.StdinPipe()
	require.NoError(t, err)
	stdout, err := p.StdoutPipe()
	require.NoError(t, err)
	p.stdout = bufio.NewReader(stdout)
	require.NoError(t, p.Start())
	t.Cleanup(func() {
		p.Process.Kill()
		p.Wait()
	})
	return p
}

// startReady is like start, but waits for the announcement.
func startReady(t *testing.T, args ...string) *program {
	t.Helper()
	needs.Everything(t, "real stores")
	p := start(t, args...)
	line, err := p.stdout.ReadString('\n')
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal([]byte(line), &p.ready), line)
	return p
}

// children returns the processes that devstores has started.
func (p *program) children() []int {
	all := append([]int{}, p.ready.ClickHouse.PIDs...)
	for _, pid := range p.ready.Kafka.PIDs {
		if pid != p.Process.Pid {
			all = append(all, pid)
		}
	}
	return all
}

// requireExit waits until all processes have exited.
func requireExit(t *testing.T, pids ...int) {
	t.Helper()
	require.NotEmpty(t, pids)
	for _, pid := range pids {
		require.Eventually(t, func() bool { return !launch.Alive(pid) }, time.Minute, time.Millisecond, "process %d is still running", pid)
	}
}

func TestAnnouncesOneLineAndStopsCleanly(t *testing.T) {
	f := func(stop func(p *program) error) {
		t.Helper()
		p := startReady(t, "--topic", "measurements=6")
		for _, address := range append([]string{p.ready.ClickHouse.TCP, p.ready.ClickHouse.HTTP}, p.ready.Kafka.Brokers...) {
			conn, err := net.Dial("tcp", address)
			require.NoError(t, err)
			require.NoError(t, conn.Close())
		}
		require.NotEmpty(t, p.ready.ClickHouse.Kind)
		require.NotEmpty(t, p.ready.ClickHouse.Version)
		require.Equal(t, "kfake", p.ready.Kafka.Kind)
		require.True(t, strings.HasPrefix(p.ready.Kafka.Version, "v0."), p.ready.Kafka.Version)
		children := p.children()
		require.NoError(t, stop(p))
		rest, err := io.ReadAll(p.stdout)
		require.NoError(t, err)
		require.Empty(t, string(rest), "one line only")
		require.NoError(t, p.Wait(), p.stderr)
		requireExit(t, children...)
	}
	f(func(p *program) error { return p.stdin.Close() })
	f(func(p *program) error { return p.Process.Signal(unix.SIGTERM) })
	f(func(p *program) error { return p.Process.Signal(unix.SIGINT) })
}

// TestKillLeavesNoChild kills devstores only: its children must exit too, even paused ones.
func TestKillLeavesNoChild(t *testing.T) {
	f := func(pause bool, args ...string) {
		t.Helper()
		p := startReady(t, args...)
		children := p.children()
		for _, pid := range children {
			if pause {
				require.NoError(t, unix.Kill(pid, unix.SIGSTOP))
			}
		}
		require.NoError(t, p.Process.Kill())
		requireExit(t, children...)
	}
	f(false, "--only", "clickhouse")
	f(true, "--only", "clickhouse")
	f(false, "--only", "kafka", "--broker", "apache")
	f(true, "--only", "kafka", "--broker", "apache")
}

// TestEndsWithItsParent starts devstores from a shell, without a pipe as standard input, and kills
// the shell.
func TestEndsWithItsParent(t *testing.T) {
	needs.Program(t, "sh")
	binary, err := launch.Program(t.Context(), "devstores")
	require.NoError(t, err)
	shell := exec.Command("sh", "-c", `"$0" --only kafka --kafka 0 --dir "$1" </dev/null & wait`, binary, t.TempDir())
	stdout, err := shell.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, shell.Start())
	line, err := bufio.NewReader(stdout).ReadString('\n')
	require.NoError(t, err)
	var p program
	require.NoError(t, json.Unmarshal([]byte(line), &p.ready))
	require.NoError(t, shell.Process.Kill())
	requireExit(t, p.ready.Kafka.PIDs...) // kfake's process is devstores
	shell.Wait()
}

func TestErrorWhenAStoreDies(t *testing.T) {
	p := startReady(t, "--only", "clickhouse")
	require.NoError(t, unix.Kill(p.ready.ClickHouse.PIDs[0], unix.SIGKILL))
	require.Error(t, p.Wait())
	require.Contains(t, p.stderr.String(), "exited unexpectedly: signal: killed")
}

func TestErrors(t *testing.T) {
	needs.Everything(t, "real stores")
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	_, port, err := net.SplitHostPort(taken.Addr().String())
	require.NoError(t, err)
	used := startReady(t, "--only", "kafka")
	dir := used.Args[2]

	f := func(want string, args ...string) {
		t.Helper()
		p := start(t, args...)
		out, err := io.ReadAll(p.stdout)
		require.NoError(t, err)
		require.Empty(t, string(out))
		require.Error(t, p.Wait())
		require.Contains(t, p.stderr.String(), want)
	}
	f("cannot use port "+port+" for ClickHouse's native protocol", "--clickhouse-tcp", port)
	f("cannot use port "+port+" for ClickHouse over HTTP", "--clickhouse-http", port)
	f("cannot use port "+port+" for Kafka broker 2", "--only", "kafka", "--brokers", "2", "--kafka", port)
	f("is another Kafka running in it?", "--only", "kafka", "--dir", dir)
	f("cannot start only \"redis\"", "--only", "redis")
	f("port 70000", "--clickhouse-tcp", "70000")
	f("for \"--topic\" flag", "--only", "kafka", "--topic", "measurements")
	f("for \"--set\" flag", "--only", "kafka", "--set", "min.insync.replicas")
	f("kind \"redpanda\"", "--only", "kafka", "--broker", "redpanda")
	f("cannot run -1 brokers", "--only", "kafka", "--brokers", "-1")
	f("-1 partitions", "--only", "kafka", "--partitions", "-1")
}

// Package launch builds and runs trafficd and its stores for the development tools and the tests.
// Tests start stores through package cmd/dev/devstores/stores, which adds what needs a testing.TB.
//
//	Process   a child process that does not outlive its parent
//	Stores    ClickHouse and a Kafka-protocol broker, each in a devstores process that can be killed, paused and restarted
//	Daemon    trafficd or a forecaster, with keys, registry and settings
package launch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// Process is a child process. It is safe for concurrent use. Two mechanisms ensure that a child
// exits with its parent:
//
//   - the lifeline: the child's standard input is a pipe whose write end is held only by the
//     parent. A child that reads it sees EOF when the parent stops it or dies.
//   - PR_SET_PDEATHSIG (Linux): the kernel signals the child when the parent dies.
//
// Conversely, every child keeps the parent's standard error open as descriptor 3. A reader of that
// stream sees EOF only after the whole process tree has exited. Its ports and directories can then
// be reused.
type Process struct {
	cmd      *exec.Cmd
	target   int      // argument of kill(2): a process ID or, if negative, a process group
	lifeline *os.File // the parent's end of the child's standard input
	expected atomic.Bool
	done     chan struct{}
	err      error // how the child exited; valid after done is closed
}

// Start starts cmd in this process's group. On Linux, the kernel kills the child if this process
// dies. If the child exits before [Process.Stop] or [Process.Kill] is called, failed, unless
// it is nil, is called once with the reason. Start sets cmd.Stdin, ExtraFiles and SysProcAttr.
func Start(cmd *exec.Cmd, failed func(error)) (*Process, error) {
	return start(cmd, false, unix.SIGKILL, failed)
}

// StartGroup is like Start, but the child has a process group of its own: signals go to the child
// and everything it starts, and Ctrl-C on the terminal does not reach them. The child receives
// onDeath if this process dies.
func StartGroup(cmd *exec.Cmd, onDeath unix.Signal) (*Process, error) {
	return start(cmd, true, onDeath, nil)
}

func start(cmd *exec.Cmd, group bool, onDeath unix.Signal, failed func(error)) (*Process, error) {
	lifeline, ours, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("cannot create a pipe for %s: %w", cmd.Path, err)
	}
	defer lifeline.Close()
	cmd.Stdin = lifeline
	cmd.ExtraFiles = []*os.File{os.Stderr} // becomes descriptor 3
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: group}
	setDeathSignal(cmd.SysProcAttr, onDeath)
	p := &Process{cmd: cmd, lifeline: ours, done: make(chan struct{})}
	started := make(chan error, 1)
	go p.run(started, failed)
	if err := <-started; err != nil {
		ours.Close()
		return nil, fmt.Errorf("cannot start %s: %w", cmd.Path, err)
	}
	p.target = cmd.Process.Pid
	if group {
		p.target = -p.target
	}
	return p, nil
}

// run starts the child and waits until it has exited. The kernel sends the death signal when the
// forking thread, not the process, exits, so run locks its thread.
func (p *Process) run(started chan<- error, failed func(error)) {
	runtime.LockOSThread()
	err := p.cmd.Start()
	started <- err
	if err != nil {
		return
	}
	p.err = p.cmd.Wait()
	p.lifeline.Close()
	close(p.done)
	if failed != nil && !p.expected.Load() {
		failed(fmt.Errorf("%s exited unexpectedly: %v", p.cmd.Path, p.cmd.ProcessState))
	}
}

// Run starts cmd as StartGroup does, waits until it has exited, and returns an error unless it
// succeeded. If ctx is done first, Run stops the child, and kills it if it has not exited within
// 10 seconds.
func Run(ctx context.Context, cmd *exec.Cmd) error {
	p, err := StartGroup(cmd, unix.SIGTERM)
	if err != nil {
		return err
	}
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
		_ = p.Stop(10 * time.Second)
		return context.Cause(ctx)
	}
}

// Alive reports whether a process is running. A zombie does not count as running. Alive works only
// on Linux.
func Alive(pid int) bool {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return false
	}
	stat, err := p.Stat()
	return err == nil && stat.State != "Z" && stat.State != "X"
}

// PID returns the child's process ID.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done returns a channel that is closed when the child has exited. If cmd.Stderr is not an
// *os.File, it is closed only after every process that the child has started has exited too.
func (p *Process) Done() <-chan struct{} { return p.done }

// Exited reports whether Done is closed. A nil Process counts as exited.
func (p *Process) Exited() bool {
	if p == nil {
		return true
	}
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// State returns the state of the exited child, or nil before it exits.
func (p *Process) State() *os.ProcessState { return p.cmd.ProcessState }

// Signal sends sig to the child, or to its group. It is not an error if the child has exited.
func (p *Process) Signal(sig unix.Signal) error {
	if p.Exited() {
		return nil // the ID may belong to a different process by now
	}
	if err := unix.Kill(p.target, sig); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("cannot send %v to %s: %w", sig, p.cmd.Path, err)
	}
	return nil
}

// Pause suspends the child, or its group, until Resume. Connections stay open.
func (p *Process) Pause() error { return p.Signal(unix.SIGSTOP) }

// Resume undoes Pause.
func (p *Process) Resume() error { return p.Signal(unix.SIGCONT) }

// Kill sends SIGKILL and waits until the child has exited.
func (p *Process) Kill() error {
	if p == nil {
		return nil
	}
	p.expected.Store(true)
	err := p.Signal(unix.SIGKILL)
	if err == nil {
		<-p.done
	}
	return err
}

// Stop resumes the child if it is paused, closes the lifeline, sends SIGTERM to the child alone and
// waits. After grace, it kills the child or its group and returns an error.
func (p *Process) Stop(grace time.Duration) error {
	if p.Exited() {
		return nil
	}
	p.expected.Store(true)
	_ = p.Signal(unix.SIGCONT)
	p.lifeline.Close()
	_ = p.cmd.Process.Signal(unix.SIGTERM) // fails only if the child has exited
	select {
	case <-p.done:
		return nil
	case <-time.After(grace):
	}
	if err := p.Kill(); err != nil {
		return err
	}
	return fmt.Errorf("%s did not stop within %v and was killed", p.cmd.Path, grace)
}

// Each calls do for all elements concurrently and returns all errors, joined.
func Each[T any](all []T, do func(i int, element T) error) error {
	errs := make([]error, len(all))
	var running sync.WaitGroup
	for i, element := range all {
		running.Go(func() { errs[i] = do(i, element) })
	}
	running.Wait()
	return errors.Join(errs...)
}

// Eventually calls try until it returns nil. After limit, or when ctx is done, Eventually returns
// an error that wraps the cause and the last error returned by try.
func Eventually(ctx context.Context, limit time.Duration, try func() error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not within %v", limit))
	defer cancel()
	for {
		err := try()
		if err == nil {
			return nil
		}
		if !Sleep(ctx, 20*time.Millisecond) {
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
	}
}

// Sleep waits for d and reports whether d elapsed before ctx was done.
func Sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

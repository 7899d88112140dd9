// Package process starts children that cannot outlive their parent, not even when the parent is killed with SIGKILL.
//
// Two things hold a child to its parent:
//
//   - the lifeline: the child's standard input is a pipe whose other end only the parent holds. A child that reads it
//     sees the end of file when the parent stops it, or is gone;
//   - PR_SET_PDEATHSIG: the kernel kills the child when the parent is gone, whether the child looks at its input or not.
//
// In the other direction every child keeps the parent's standard error open as descriptor 3 (see [LeashFD]), so whoever reads that
// stream meets its end only when the whole tree has gone, and may then use the same ports and folders again.
package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// LeashFD is the descriptor that a child has of its parent's standard error, beside its own standard streams.
const LeashFD = 3

// Process is a running child. Its methods may be called from several goroutines.
type Process struct {
	cmd      *exec.Cmd
	target   int      // what signals go to: a process, or, negative, a group
	lifeline *os.File // our end of the child's standard input
	expected atomic.Bool
	done     chan struct{}
	err      error // what the child ended with; valid after done
}

// Start runs cmd as a member of this process's group. If the child ends before [Process.Stop] or [Process.Kill] was
// called, failed (may be nil) is called once with the reason. cmd.Stdin, ExtraFiles and SysProcAttr belong to Start.
func Start(cmd *exec.Cmd, failed func(error)) (*Process, error) {
	return start(cmd, false, failed)
}

// StartGroup is Start with a process group of its own: signals then go to the child and everything that it starts.
func StartGroup(cmd *exec.Cmd, failed func(error)) (*Process, error) {
	return start(cmd, true, failed)
}

func start(cmd *exec.Cmd, group bool, failed func(error)) (*Process, error) {
	lifeline, ours, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("cannot make the lifeline of %s: %w", cmd.Path, err)
	}
	defer lifeline.Close()
	cmd.Stdin = lifeline
	cmd.ExtraFiles = []*os.File{os.Stderr} // becomes LeashFD
	cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL, Setpgid: group}
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

// run starts the child and waits for it; it ends with the child. The kernel sends the death signal when the thread that
// forked ends, not the process, so that thread is locked until the child is gone.
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
		failed(p.exitError())
	}
}

// exitError says how the child ended; a child that nobody stopped has failed whatever its exit status is.
func (p *Process) exitError() error {
	if p.err != nil {
		return fmt.Errorf("%s ended by itself: %w", p.cmd.Path, p.err)
	}
	return fmt.Errorf("%s ended by itself with status 0", p.cmd.Path)
}

// Run starts cmd, calls tick a few times a second and returns how cmd ended. When ctx ends first, the child is killed.
func Run(ctx context.Context, cmd *exec.Cmd, tick func()) error {
	p, err := Start(cmd, nil)
	if err != nil {
		return err
	}
	for {
		select {
		case <-p.done:
			return p.err
		case <-ctx.Done():
			p.Kill()
			return context.Cause(ctx)
		case <-time.After(200 * time.Millisecond):
			tick()
		}
	}
}

// PID is the child's process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed when the child has ended and, if its standard error is copied by us, everything that it started too.
func (p *Process) Done() <-chan struct{} { return p.done }

// Signal sends sig to the child, or to its group. A child that has ended already is no error.
func (p *Process) Signal(sig unix.Signal) error {
	select {
	case <-p.done:
		return nil // its number may belong to another process by now
	default:
	}
	if err := unix.Kill(p.target, sig); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("cannot send %v to %s: %w", sig, p.cmd.Path, err)
	}
	return nil
}

// Kill ends the child with SIGKILL and waits until it is gone.
func (p *Process) Kill() error {
	p.expected.Store(true)
	err := p.Signal(unix.SIGKILL)
	if err == nil {
		<-p.done
	}
	return err
}

// Stop lets go of the lifeline, sends SIGTERM to the child alone and waits; after grace it kills, and says so in its error.
// A paused child is woken first.
func (p *Process) Stop(grace time.Duration) error {
	p.expected.Store(true)
	p.Signal(unix.SIGCONT)
	p.lifeline.Close()
	p.cmd.Process.Signal(unix.SIGTERM) // fails only if the child is gone already
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

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// children are the programs that run beside this one. They share one process
// group, which is not the terminal's: Ctrl-C reaches only this program, which
// then ends them in order. If this program is killed, the kernel tells each
// of them to end. The kernel watches the thread that started them, so they have
// to be started on the main goroutine, which main locks to its thread.
type children struct {
	group   int // process group; that of the first child
	running []*child
}

// child is one running program.
type child struct {
	name string
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended; then err is set
	err  error
}

// start runs a program. A goroutine waits for its end and then closes done.
func (c *children) start(name string, cmd *exec.Cmd) (*child, error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pgid: c.group, Pdeathsig: syscall.SIGTERM}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("cannot start %s: %w", name, err)
	}
	if c.group == 0 {
		c.group = cmd.Process.Pid
	}
	p := &child{name: name, cmd: cmd, done: make(chan struct{})}
	c.running = append(c.running, p)
	go func() {
		p.err = cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// stop asks the child to end and waits for it; after grace it is killed.
func (p *child) stop(grace time.Duration) error {
	if p == nil || p.ended() {
		return nil
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // an error means that it has ended
	select {
	case <-p.done:
		return p.err
	case <-time.After(grace):
	}
	_ = p.cmd.Process.Kill()
	<-p.done
	return fmt.Errorf("%s did not end within %s and was killed", p.name, grace)
}

// killAll is the last resort: whatever is left of the group goes.
func (c *children) killAll() {
	if c.group != 0 {
		_ = syscall.Kill(-c.group, syscall.SIGKILL)
	}
	for _, p := range c.running {
		<-p.done
	}
}

// ended tells whether the child has ended.
func (p *child) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// exitCode of a child that has ended; -1 if it ended by a signal.
func (p *child) exitCode() int { return p.cmd.ProcessState.ExitCode() }

// output runs a short program to its end and gives what it printed.
func output(ctx context.Context, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && len(exit.Stderr) > 0 {
		return nil, fmt.Errorf("cannot run %s: %w: %s", name, err, lastLine(exit.Stderr))
	}
	if err != nil {
		return nil, fmt.Errorf("cannot run %s: %w", name, err)
	}
	return out, nil
}

// logFile opens a child's log for appending.
func logFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("cannot open the log: %w", err)
	}
	return f, nil
}

// tail is the end of a log, for the message about a child that failed.
func tail(path string, size int64) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() > size {
		_, _ = f.Seek(-size, io.SeekEnd)
	}
	text, _ := io.ReadAll(f)
	return string(text)
}

package rig

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// child is a program that runs beside this one and is killed with it.
type child struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
}

// start runs a program that adds its output to the file log, with env beside
// this process's environment. The kernel sends
// the death signal when the thread that forked ends, so that thread is kept
// until the child has gone.
func start(log string, env []string, program string, args ...string) (*child, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("cannot open the log of %s: %w", program, err)
	}
	defer out.Close()
	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.Env = append(cmd.Environ(), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	c := &child{cmd: cmd, done: make(chan struct{})}
	started := make(chan error, 1)
	go func() { // ends with the child; end and kill wait for it
		runtime.LockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // ProcessState tells
			close(c.done)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("cannot start %s: %w", program, err)
	}
	return c, nil
}

func (c *child) signal(s syscall.Signal) { _ = c.cmd.Process.Signal(s) } // fails only when it has ended

func (c *child) kill() {
	c.signal(syscall.SIGKILL)
	<-c.done
}

// end asks the child to end, and kills it after the limit.
func (c *child) end(limit time.Duration) (inTime bool) {
	c.signal(syscall.SIGTERM)
	select {
	case <-c.done:
		return true
	case <-time.After(limit):
		c.kill()
		return false
	}
}

func (c *child) ended() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

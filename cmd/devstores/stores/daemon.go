package stores

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"trafficd/cmd/devstores/internal/clickhouse"
	"trafficd/cmd/devstores/internal/kafka"
	"trafficd/cmd/devstores/internal/process"
)

// stopLimit is more than devstores itself gives a store to stop.
const stopLimit = 30 * time.Second

// daemon is one store in a devstores process of its own. The methods are for one goroutine at a time; a lock makes calls from several wait.
type daemon struct {
	binary string
	args   []string // the same at every start: folder, store, pinned ports
	stderr io.Writer

	mu   sync.Mutex
	proc *process.Process // nil before the first start
	pids []int
}

// announcement is the line that devstores prints.
type announcement struct {
	ClickHouse *clickhouse.Info `json:"clickhouse"`
	Kafka      *kafka.Info      `json:"kafka"`
}

func newDaemon(opts Options, store string) *daemon {
	return &daemon{binary: opts.Binary, args: []string{"--dir", opts.Dir, "--only", store}, stderr: opts.Stderr}
}

// pin adds arguments to every later start.
func (d *daemon) pin(args ...string) { d.args = append(d.args, args...) }

// start runs devstores and waits for its announcement.
func (d *daemon) start(ctx context.Context, args ...string) (announcement, error) {
	stdout, theirs, err := os.Pipe()
	if err != nil {
		return announcement{}, fmt.Errorf("cannot start a store: %w", err)
	}
	defer stdout.Close()
	last := &tail{}
	cmd := exec.Command(d.binary, append(args, d.args...)...)
	cmd.Stdout = theirs
	cmd.Stderr = io.MultiWriter(d.stderr, last) // a writer, not a file: so Done waits for the whole tree, see process.LeashFD
	d.proc, err = process.StartGroup(cmd, nil)
	theirs.Close()
	if err != nil {
		return announcement{}, err
	}
	defer context.AfterFunc(ctx, func() { d.proc.Kill() })()
	return d.readAnnouncement(stdout, last)
}

func (d *daemon) readAnnouncement(stdout io.Reader, last *tail) (announcement, error) {
	line, err := bufio.NewReader(stdout).ReadBytes('\n')
	if err != nil { // it ended before it was ready
		d.proc.Stop(stopLimit)
		return announcement{}, fmt.Errorf("cannot start a store with %s: %s", strings.Join(d.args, " "), last)
	}
	var found announcement
	if err := json.Unmarshal(line, &found); err != nil {
		d.proc.Kill()
		return announcement{}, fmt.Errorf("cannot read what devstores announces, %q: %w", line, err)
	}
	if found.ClickHouse != nil {
		d.pids = found.ClickHouse.PIDs
	} else if found.Kafka != nil {
		d.pids = found.Kafka.PIDs
	}
	return found, nil
}

// Kill ends the store with SIGKILL, children and all, and returns when nothing of it is left.
func (d *daemon) Kill() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.proc.Kill()
}

// Stop ends the store cleanly. A store that is down stays so.
func (d *daemon) Stop() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.stop()
}

func (d *daemon) stop() error {
	if d.down() {
		return nil
	}
	return d.proc.Stop(stopLimit)
}

// Restart stops the store if it runs, then starts it on the same ports and folder and returns when it is ready.
func (d *daemon) Restart() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.stop(); err != nil {
		return err
	}
	_, err := d.start(context.Background())
	return err
}

// Pause stops every process of the store with SIGSTOP: connections stay open and nothing answers. It returns when they stand still: on a
// busy machine a thread may go on for a while before another one of its process gets to the signal.
func (d *daemon) Pause() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.signal(unix.SIGSTOP); err != nil {
		return err
	}
	for _, pid := range append([]int{d.proc.PID()}, d.pids...) {
		for !standsStill(pid) {
			time.Sleep(time.Millisecond)
		}
	}
	return nil
}

// standsStill tells whether no thread of a process runs. One that is gone does not.
func standsStill(pid int) bool {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid)) // the pattern is a good one
	return !slices.ContainsFunc(threads, func(file string) bool {
		stat, err := os.ReadFile(file)
		_, after, _ := strings.Cut(string(stat), ") ")
		return err == nil && !strings.ContainsAny(after[:min(1, len(after))], "TtZX")
	})
}

// Resume lets a paused store go on.
func (d *daemon) Resume() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.signal(unix.SIGCONT)
}

func (d *daemon) signal(sig unix.Signal) error {
	if d.down() {
		return errors.New("cannot pause or resume a store that is down: restart it first")
	}
	return d.proc.Signal(sig)
}

// PIDs are the processes that serve: ClickHouse's, or one for each broker. They change with every start.
func (d *daemon) PIDs() []int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.pids
}

func (d *daemon) down() bool {
	select {
	case <-d.proc.Done():
		return true
	default:
		return false
	}
}

// tail keeps the end of what devstores says, for an error.
type tail struct {
	mu   sync.Mutex
	text []byte
}

func (t *tail) Write(p []byte) (int, error) {
	const keep = 4096
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	t.text = t.text[max(0, len(t.text)-keep):]
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.text))
}

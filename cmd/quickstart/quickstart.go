package main

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"text/template"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"trafficd/cmd/internal/launch"
)

const (
	database = "trafficd"
	table    = database + ".measurements"
	topic    = "measurements"
)

// quickstart is one run. If it dies, everything that it started receives SIGTERM.
type quickstart struct {
	options
	root     string // of the module
	key      string
	source   source
	stores   *launch.Stores
	daemon   *launch.Daemon
	restarts atomic.Int32
	exited   error         // the reason why a process is not restarted; of watch
	counted  chan struct{} // closed when live measurements may be sent
}

func run(ctx context.Context, o options) (err error) {
	q := &quickstart{options: o, counted: make(chan struct{})}
	unlock, err := q.prepare()
	if err != nil {
		return err
	}
	defer unlock()
	ctx, cancel := context.WithCancel(ctx)
	var background sync.WaitGroup
	defer func() {
		cancel()
		background.Wait()
		if q.exited != nil {
			err = q.exited
		}
		err = errors.Join(err, q.stop())
	}()
	for _, step := range []func(context.Context) error{q.build, q.startStores, q.makeKey, q.findSource, q.startForecasts, q.startDaemon} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	background.Go(func() { q.exited = q.watch(ctx); cancel() })
	if err := q.daemon.AwaitReady(ctx, 30*time.Second); err != nil {
		return err
	}
	say("trafficd is ready: open http://%s/#map", q.daemon.Ops)
	background.Go(func() { q.live(ctx) })
	if err := q.sendAndCount(ctx); err != nil || q.exit {
		return err
	}
	close(q.counted)
	<-ctx.Done()
	fmt.Println()
	return ctx.Err()
}

// prepare chooses the addresses, creates the directory and locks it: two runs in it would share a journal.
func (q *quickstart) prepare() (unlock func(), err error) {
	if q.root, err = launch.ModuleRoot(); err != nil {
		return nil, err
	}
	if q.dir, err = filepath.Abs(q.dir); err != nil {
		return nil, fmt.Errorf("cannot find the directory: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(q.dir), 0o755); err != nil {
		return nil, fmt.Errorf("cannot create the directory: %w", err)
	}
	unlock, err = launch.TryLock(q.dir + ".lock")
	if errors.Is(err, launch.ErrLocked) {
		return nil, fmt.Errorf("another quickstart is running in %s: stop it, or choose another directory with --dir", q.dir)
	}
	if err != nil {
		return nil, err
	}
	if q.fresh {
		say("emptying %s", q.short(q.dir))
		err = os.RemoveAll(q.dir)
	}
	if err = errors.Join(err, os.MkdirAll(q.dir, 0o755)); err != nil {
		unlock()
		return nil, fmt.Errorf("cannot create the directory: %w", err)
	}
	q.daemon = &launch.Daemon{
		Binary: q.bin("trafficd"), Dir: q.dir, Args: []string{"--config", q.path("trafficd.yaml")}, OnDeath: unix.SIGTERM,
		API: launch.Address(freePort(8080)), Ops: launch.Address(freePort(8081)),
	}
	say("the web page will be at http://%s (operations) and http://%[1]s/#map in a few seconds", q.daemon.Ops)
	return unlock, nil
}

func (q *quickstart) build(ctx context.Context) error {
	say("building trafficd, trafficctl, devstores in bin/")
	return launch.Build(ctx, "-o", "bin/", "./cmd/trafficd", "./cmd/trafficctl", "./cmd/devstores")
}

// startStores starts ClickHouse and the broker, on the usual ports where they are free.
func (q *quickstart) startStores(ctx context.Context) (err error) {
	say("starting ClickHouse and a Kafka-protocol broker (ClickHouse is downloaded the first time: 178 MB)")
	opts := launch.Options{
		Dir: q.path("stores"), Binary: q.bin("devstores"), Broker: q.broker, Topics: map[string]int{topic: 6},
		ClickHouseTCP: freePort(9000), ClickHouseHTTP: freePort(8123), KafkaPorts: []int{freePort(9092)}, OnDeath: unix.SIGTERM,
	}
	if exists(opts.Dir) { // downloads have been shown before
		if opts.Stderr, err = os.OpenFile(q.path("devstores.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644); err != nil {
			return fmt.Errorf("cannot open the stores' log: %w", err)
		}
	}
	if q.stores, err = launch.StartStores(ctx, opts); ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// freePort returns the usual port if it is free, otherwise another one.
func freePort(usual int) int {
	port, err := launch.PickPort("", usual)
	if err != nil {
		port, _ = launch.PickPort("", 0) // 0 if it fails, which means any
	}
	return port
}

//go:embed trafficd.yaml
var configText string

// startDaemon writes a small configuration to read and to change, and starts the daemon.
func (q *quickstart) startDaemon(context.Context) error {
	say("starting trafficd on %s", q.daemon.API)
	var text bytes.Buffer
	err := template.Must(template.New("trafficd.yaml").Parse(configText)).Execute(&text, map[string]string{
		"API": q.daemon.API, "Ops": q.daemon.Ops, "Keys": q.path(keysFile),
		"Instance": instance, "Registry": q.source.registry, "Column": q.source.column,
		"Journal":    q.path("journal"),
		"ClickHouse": q.stores.ClickHouse.TCP, "Database": database,
		"Brokers": strings.Join(q.stores.Kafka.Brokers, ", "), "Topic": topic, "ForecastTopic": forecastTopic,
	})
	if err == nil {
		err = os.WriteFile(q.path("trafficd.yaml"), text.Bytes(), 0o644)
	}
	if err != nil {
		return fmt.Errorf("cannot write the configuration: %w", err)
	}
	return q.daemon.Start()
}

// watch restarts the daemon when it exits, until ctx ends. It returns an error if a store exits, or the daemon right after its
// start, as it would do again.
func (q *quickstart) watch(ctx context.Context) error {
	for started := time.Now(); ; started = time.Now() {
		select {
		case <-ctx.Done():
			return nil
		case <-q.stores.ClickHouse.Done():
			return fmt.Errorf("ClickHouse exited; see %s", q.short(q.path("stores")))
		case <-q.stores.Kafka.Done():
			return fmt.Errorf("the Kafka broker exited; see %s", q.short(q.path("stores")))
		case <-q.daemon.Done():
		}
		state := q.daemon.State()
		if state.ExitCode() >= 0 && time.Since(started) < time.Second {
			return fmt.Errorf("trafficd exits immediately (%s); its log ends:\n%s", state, q.daemon.LogTail())
		}
		if err := q.daemon.Start(); err != nil {
			return err
		}
		q.restarts.Add(1)
		say("trafficd exited (%s) and was restarted as process %d; clients retry, nothing is lost", state, q.daemon.PID())
	}
}

// stop stops everything in the order of the data.
func (q *quickstart) stop() error {
	if q.stores == nil {
		return nil
	}
	say("stopping trafficd and the stores; all data is kept in %s", q.short(q.dir))
	var errs []error
	if q.daemon.Process != nil {
		errs = append(errs, q.daemon.Stop(35*time.Second)) // shutdown_timeout is 30 s
		if !q.daemon.State().Success() {
			errs = append(errs, fmt.Errorf("trafficd exited with %v after SIGTERM", q.daemon.State()))
		}
	}
	return errors.Join(append(errs, q.stores.Close())...)
}

// trafficctl runs a command and returns what it prints to standard output and, unless progress is set, to standard error. Exit
// code 2, for rejected items, is not an error. When ctx ends, the command is interrupted: it may finish the batch in flight.
func (q *quickstart) trafficctl(ctx context.Context, progress *os.File, args ...string) (string, string, error) {
	var out, notes bytes.Buffer
	cmd := exec.Command(q.bin("trafficctl"), args...)
	cmd.Stdout, cmd.Stderr = &out, &notes
	if progress != nil {
		cmd.Stderr = progress
	}
	p, err := launch.StartGroup(cmd, unix.SIGTERM)
	if err != nil {
		return "", "", err
	}
	select {
	case <-p.Done():
	case <-ctx.Done():
		_ = p.Stop(10 * time.Second)
		return "", "", ctx.Err()
	}
	if code := p.State().ExitCode(); code != 0 && code != 2 {
		return "", "", fmt.Errorf("cannot run trafficctl %s: %s: %s", args[0], p.State(), strings.TrimSpace(notes.String()))
	}
	return out.String(), notes.String(), nil
}

func (q *quickstart) path(name string) string { return filepath.Join(q.dir, name) }
func (q *quickstart) bin(name string) string  { return filepath.Join(q.root, "bin", name) }

// short returns path relative to the module's root if it is inside.
func (q *quickstart) short(path string) string {
	if rel, err := filepath.Rel(q.root, path); err == nil && !strings.HasPrefix(rel, "..") {
		return rel
	}
	return path
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// clearLine erases an unfinished progress bar.
var clearLine = func() string {
	if term.IsTerminal(int(os.Stderr.Fd())) {
		return "\r\033[K"
	}
	return ""
}()

// say prints a step to standard error.
func say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, clearLine+"· "+format+"\n", args...)
}

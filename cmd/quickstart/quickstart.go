package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/term"
)

const (
	database = "trafficd"
	table    = database + ".measurements"
	topic    = "measurements"
)

// addresses of everything that runs; the stores print theirs as JSON.
type addresses struct {
	ClickHouse struct {
		TCP     string `json:"tcp"`
		HTTP    string `json:"http"`
		Kind    string `json:"kind"`
		Version string `json:"version"`
	} `json:"clickhouse"`
	Kafka struct {
		Brokers []string `json:"brokers"`
		Kind    string   `json:"kind"`
		Version string   `json:"version"`
	} `json:"kafka"`
	API string `json:"-"`
	Ops string `json:"-"`
}

// quickstart is one run. All of it happens on the main goroutine: see children.
type quickstart struct {
	options
	root     string // of the module
	children children
	addresses
	key      string
	source   source
	stores   *child
	daemon   *child
	started  time.Time // of the daemon
	forecast time.Time // when forecasts were published last
	restarts int
}

func run(ctx context.Context, o options) (err error) {
	q := &quickstart{options: o}
	unlock, err := q.prepare()
	if err != nil {
		return err
	}
	defer unlock()
	defer func() { err = errors.Join(err, q.stop()) }()

	for _, step := range []func(context.Context) error{
		q.build, q.startStores, q.makeKey, q.makeTraffic, q.makeForecasts, q.startDaemon, q.awaitReady,
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	before, err := count(ctx, q.addresses)
	if err != nil {
		return err
	}
	sent, err := q.send(ctx)
	if err != nil {
		return err
	}
	if err := q.awaitDrained(ctx); err != nil {
		return err
	}
	after, err := q.settled(ctx, before, sent)
	if err != nil {
		return err
	}
	layer, err := q.awaitLayer(ctx)
	if err != nil {
		return err
	}
	agree := q.report(os.Stdout, sent, after.minus(before), after, layer)
	if q.exit {
		return agree
	}
	err = q.until(ctx, func() (bool, error) { q.keepForecasts(ctx); return false, nil })
	fmt.Println()
	return err
}

// settled counts until the stores hold what was accepted, or for some seconds:
// ClickHouse's own log of inserts is written once a second.
func (q *quickstart) settled(ctx context.Context, before counts, s sent) (after counts, err error) {
	deadline := time.Now().Add(5 * time.Second)
	err = q.until(ctx, func() (bool, error) {
		after, err = count(ctx, q.addresses)
		return s.arrived(after.minus(before)) || time.Now().After(deadline), err
	})
	return after, err
}

// prepare makes the folder and locks it: two runs on it would share a journal.
func (q *quickstart) prepare() (unlock func(), err error) {
	if q.root, err = moduleRoot(); err != nil {
		return nil, err
	}
	if q.dir, err = filepath.Abs(q.dir); err != nil {
		return nil, fmt.Errorf("cannot find the folder: %w", err)
	}
	if err := os.MkdirAll(q.dir, 0o755); err != nil {
		return nil, fmt.Errorf("cannot make the folder: %w", err)
	}
	lock, err := os.OpenFile(q.path("lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("cannot lock the folder: %w", err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		lock.Close()
		return nil, fmt.Errorf("another quickstart runs on %s: end it, or name another folder by --dir", q.dir)
	}
	if q.fresh {
		err = q.wipe()
	}
	return func() { lock.Close() }, err
}

// wipe empties the folder, except for the lock that is held on it.
func (q *quickstart) wipe() error {
	say("emptying %s", q.short(q.dir))
	entries, err := os.ReadDir(q.dir)
	if err != nil {
		return fmt.Errorf("cannot empty the folder: %w", err)
	}
	for _, e := range entries {
		if e.Name() == "lock" {
			continue
		}
		if err := os.RemoveAll(q.path(e.Name())); err != nil {
			return fmt.Errorf("cannot empty the folder: %w", err)
		}
	}
	return nil
}

func (q *quickstart) build(ctx context.Context) error {
	say("building trafficd, trafficctl, devstores into bin/")
	cmd := exec.CommandContext(ctx, "go", "build", "-o", "bin/", "./cmd/trafficd", "./cmd/trafficctl", "./cmd/devstores")
	cmd.Dir = q.root
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("cannot build: %w", err)
	}
	return nil
}

// stop ends everything in the order of the data.
func (q *quickstart) stop() error {
	if q.daemon == nil && q.stores == nil {
		return nil
	}
	say("ending trafficd and the stores; everything is kept in %s", q.short(q.dir))
	http.DefaultClient.CloseIdleConnections() // ClickHouse would wait 5 s for ours
	err := errors.Join(
		q.daemon.stop(35*time.Second), // its own shutdown_timeout and a little
		q.stores.stop(15*time.Second),
	)
	q.children.killAll()
	return err
}

func (q *quickstart) path(name string) string { return filepath.Join(q.dir, name) }
func (q *quickstart) bin(name string) string  { return filepath.Join(q.root, "bin", name) }

// short is a path as a person in the module's folder would write it.
func (q *quickstart) short(path string) string {
	if rel, err := filepath.Rel(q.root, path); err == nil && !strings.HasPrefix(rel, "..") {
		return rel
	}
	return path
}

// clearLine takes a half-written progress bar away.
var clearLine = func() string {
	if term.IsTerminal(int(os.Stderr.Fd())) {
		return "\r\033[K"
	}
	return ""
}()

// say tells what happens now.
func say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, clearLine+"· "+format+"\n", args...)
}

func firstLine(text []byte) string {
	line, _, _ := strings.Cut(string(text), "\n")
	return strings.TrimSpace(line)
}

func lastLine(text []byte) string {
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return lines[len(lines)-1]
}

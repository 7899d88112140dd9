package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
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

// quickstart is one run. If it dies, the stores and the daemon receive SIGTERM.
type quickstart struct {
	options
	root      string // of the module
	key       string
	source    source
	stores    *launch.Stores
	storesLog *os.File
	daemon    *launch.Daemon
	started   time.Time // of the daemon
	forecast  time.Time // when forecasts were last published
	restarts  int
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
	before, err := q.count(ctx)
	if err != nil {
		return err
	}
	sent, err := q.send(ctx)
	if err != nil {
		return err
	}
	say("waiting until both stores have everything")
	err = q.until(ctx, func() (bool, error) {
		metrics, err := q.daemon.Metrics(ctx)
		return err == nil && metrics.Sum("trafficd_pipeline_lag_frames") == 0, nil // an error: it is restarting
	})
	if err != nil {
		return err
	}
	// ClickHouse writes its log of inserts once a second.
	var after counts
	deadline := time.Now().Add(5 * time.Second)
	err = q.until(ctx, func() (done bool, err error) {
		after, err = q.count(ctx)
		return sent.arrived(after.minus(before)) || time.Now().After(deadline), err
	})
	if err != nil {
		return err
	}
	layer, err := q.awaitLayer(ctx)
	if err != nil {
		return err
	}
	differ := q.report(os.Stdout, sent, after.minus(before), after, layer)
	if q.exit {
		return differ
	}
	err = q.until(ctx, func() (bool, error) { q.keepForecasts(ctx); return false, nil })
	fmt.Println()
	return err
}

// prepare creates the directory and locks it: two runs in it would share a journal.
func (q *quickstart) prepare() (unlock func(), err error) {
	if q.root, err = launch.ModuleRoot(); err != nil {
		return nil, err
	}
	if q.dir, err = filepath.Abs(q.dir); err != nil {
		return nil, fmt.Errorf("cannot find the directory: %w", err)
	}
	if err := os.MkdirAll(q.dir, 0o755); err != nil {
		return nil, fmt.Errorf("cannot create the directory: %w", err)
	}
	unlock, err = launch.TryLock(q.path("lock"))
	if errors.Is(err, launch.ErrLocked) {
		return nil, fmt.Errorf("another quickstart is running in %s: stop it, or choose another directory with --dir", q.dir)
	}
	if err != nil || !q.fresh {
		return unlock, err
	}
	say("emptying %s", q.short(q.dir))
	entries, err := os.ReadDir(q.dir)
	for _, e := range entries {
		if e.Name() != "lock" {
			err = errors.Join(err, os.RemoveAll(q.path(e.Name())))
		}
	}
	if err != nil {
		unlock()
		return nil, fmt.Errorf("cannot empty the directory: %w", err)
	}
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
		if q.storesLog, err = os.OpenFile(q.path("devstores.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644); err != nil {
			return fmt.Errorf("cannot open the stores' log: %w", err)
		}
		opts.Stderr = q.storesLog
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

// until waits for done and restarts the daemon when it exits.
func (q *quickstart) until(ctx context.Context, done func() (bool, error)) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-q.stores.ClickHouse.Done():
			return fmt.Errorf("ClickHouse exited; see %s", q.short(q.path("stores")))
		case <-q.stores.Kafka.Done():
			return fmt.Errorf("the Kafka broker exited; see %s", q.short(q.path("stores")))
		case <-q.daemon.Done():
			if err := q.restart(); err != nil {
				return err
			}
		case <-tick.C:
		}
	}
}

// within calls try until it succeeds, like until. After limit it returns what went wrong.
func (q *quickstart) within(ctx context.Context, limit time.Duration, what string, try func() error) error {
	deadline := time.Now().Add(limit)
	return q.until(ctx, func() (bool, error) {
		err := try()
		if err != nil && time.Now().After(deadline) {
			return false, fmt.Errorf("%s: %w; see %s", what, err, q.short(q.path("trafficd.log")))
		}
		return err == nil, nil
	})
}

// stop stops everything in the order of the data.
func (q *quickstart) stop() error {
	if q.stores == nil {
		return nil
	}
	say("stopping trafficd and the stores; all data is kept in %s", q.short(q.dir))
	var errs []error
	if q.daemon != nil {
		errs = append(errs, q.daemon.Stop(35*time.Second)) // shutdown_timeout is 30 s
		if q.daemon.Process != nil && !q.daemon.State().Success() {
			errs = append(errs, fmt.Errorf("trafficd exited with %v after SIGTERM", q.daemon.State()))
		}
	}
	errs = append(errs, q.stores.Close())
	if q.storesLog != nil {
		q.storesLog.Close()
	}
	return errors.Join(errs...)
}

// counts are numbers that the stores report.
type counts struct {
	Inserted uint64 // rows of all inserts in ClickHouse's log
	Final    uint64 // count() FINAL: a measurement that is sent again replaces the earlier one
	Records  uint64 // of the topic, over all partitions
}

func (c counts) minus(o counts) counts {
	return counts{c.Inserted - o.Inserted, c.Final - o.Final, c.Records - o.Records}
}

func (q *quickstart) count(ctx context.Context) (c counts, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	// A missing table counts 0. ClickHouse creates system.part_log with the first insert.
	ask := func(from, what string) (n uint64) {
		if err != nil {
			return 0
		}
		var text string
		if text, err = q.stores.ClickHouse.Do(ctx, "EXISTS "+from); err != nil || text != "1" {
			return 0
		}
		if text, err = q.stores.ClickHouse.Do(ctx, what); err == nil {
			n, err = strconv.ParseUint(text, 10, 64)
		}
		return n
	}
	c.Inserted = ask("system.part_log", "SELECT sum(rows) FROM system.part_log WHERE event_type = 'NewPart' AND error = 0"+
		" AND database = '"+database+"' AND table = 'measurements'")
	c.Final = ask(table, "SELECT count() FROM "+table+" FINAL")
	if err != nil {
		return c, err
	}
	records, err := launch.CountRecords(ctx, q.stores.Kafka.Brokers, topic)
	c.Records = uint64(records)
	return c, err
}

// trafficctl runs a command that takes little time and returns its output.
func (q *quickstart) trafficctl(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, q.bin("trafficctl"), args...).Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return "", fmt.Errorf("cannot run trafficctl %s: %w: %s", args[0], err, strings.TrimSpace(string(exit.Stderr)))
	}
	if err != nil {
		return "", fmt.Errorf("cannot run trafficctl: %w", err)
	}
	return string(out), nil
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

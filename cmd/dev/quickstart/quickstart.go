package main

import (
	"bytes"
	"context"
	"embed"
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

	"trafficd/cmd/dev/launch"
	"trafficd/cmd/dev/must"
)

const (
	database      = "trafficd"
	table         = database + ".measurements"
	topic         = "measurements"
	forecastTopic = "forecasts"
	instance      = "quickstart" // the product instance of the key and the registry

	keysFile = "keys.yaml"
	// Files with the key in clear text and as a header for curl. Only a demonstration should store it.
	keyFile    = "key"
	headerFile = "auth"
)

// quickstart is a run. If its process dies, its child processes receive SIGTERM.
type quickstart struct {
	options
	root     string // the module's root
	programs string // the directory of this program, and of those that it starts
	key      string
	source   source
	stores   *launch.Stores
	daemon   *launch.Daemon
	restarts atomic.Int32 // number of times that daemon was restarted

	forecaster *launch.Daemon
	feeder     *launch.Daemon
	authority  *authority           // publishes what the feeder pulls; nil: the feed is live, or there is none
	before     counts               // in the stores before the feed
	keep       func(*launch.Daemon) // restarts a program in the background when it exits
}

func run(ctx context.Context, o options) (err error) {
	q := &quickstart{options: o}
	unlock, err := q.prepare()
	if err != nil {
		return err
	}
	defer unlock()
	ctx, cancel := context.WithCancelCause(ctx)
	var background sync.WaitGroup
	defer func() {
		cancel(nil)
		background.Wait()
		if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
			err = cause
		}
		err = errors.Join(err, q.stop())
	}()
	q.keep = func(d *launch.Daemon) {
		background.Go(func() {
			if err := q.watch(ctx, d); err != nil {
				cancel(err)
			}
		})
	}
	steps := []func(context.Context) error{q.checkData, q.startStores, q.makeKey, q.findSource, q.startDaemon}
	report := q.sendAndCount
	if q.feed != "" {
		steps = []func(context.Context) error{q.checkFeed, q.startStores, q.makeKey, q.startFeed}
		report = q.feedAndCount
	}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return err
		}
	}
	say("trafficd is ready: http://%s", q.daemon.Ops)
	if err := report(ctx); err != nil || q.exit {
		return err
	}
	q.live(ctx)
	fmt.Println()
	return ctx.Err()
}

// prepare creates and locks the directory and chooses the addresses. Without the lock, two runs in
// the same directory would share a journal.
func (q *quickstart) prepare() (unlock func(), err error) {
	defer must.Return(&err, "cannot prepare the directory")
	q.root, q.programs = must.Get(launch.ModuleRoot()), filepath.Dir(must.Get(os.Executable()))
	q.dir = must.Get(filepath.Abs(q.dir))
	must.Do(os.MkdirAll(filepath.Dir(q.dir), 0o755))
	unlock, err = launch.TryLock(q.dir + ".lock")
	if errors.Is(err, launch.ErrLocked) {
		return nil, fmt.Errorf("another quickstart is running in %s: stop it, or choose a different directory with --dir", q.dir)
	}
	must.Do(err)
	if q.fresh {
		say("emptying %s", q.short(q.dir))
		must.Do(os.RemoveAll(q.dir)) // the lock file is outside the directory
	}
	must.Do(os.MkdirAll(q.dir, 0o755))
	program := func(name string, port int) *launch.Daemon {
		return &launch.Daemon{
			Binary: q.bin(name), Dir: q.dir, Args: []string{"--config", q.path(name + ".yaml")}, OnDeath: unix.SIGTERM,
			Ops: launch.Address(freePort("operators of "+name, port)),
		}
	}
	q.daemon, q.forecaster, q.feeder = program("trafficd", 8081), program("forecaster", 8082), program("feeder", 8083)
	q.daemon.API = launch.Address(freePort("clients of trafficd", 8080))
	say("the web page will be at http://%s (operations) and http://%[1]s/#map in a few seconds", q.daemon.Ops)
	return unlock, nil
}

// startStores starts ClickHouse and the broker, on the usual ports if they are free.
func (q *quickstart) startStores(ctx context.Context) (err error) {
	defer must.Return(&err)
	say("starting ClickHouse and a Kafka-protocol broker (ClickHouse is downloaded the first time: 178 MB)")
	opts := launch.Options{
		Dir: q.path("stores"), Binary: q.bin("devstores"), Broker: q.broker, Topics: map[string]int{topic: 6},
		ClickHouseTCP: freePort("ClickHouse", 9000), ClickHouseHTTP: freePort("ClickHouse over HTTP", 8123),
		KafkaPorts: []int{freePort("Kafka", 9092)}, OnDeath: unix.SIGTERM,
	}
	if _, err := os.Stat(opts.Dir); err == nil { // only the first start shows the progress of the download
		opts.Stderr = must.Get(os.OpenFile(q.path("devstores.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644))
	}
	if q.stores, err = launch.StartStores(ctx, opts); ctx.Err() != nil {
		return ctx.Err()
	}
	must.Do(err)
	return launch.CreateTopic(ctx, q.stores.Kafka.Brokers, forecastTopic, 1, map[string]*string{"cleanup.policy": new("compact")})
}

// reservations holds the lock of each port that freePort has reserved until this process ends.
var reservations []func()

// freePort returns the usual port if it is free, and otherwise any free port, which it announces.
// It reserves the usual port by a lock, so that a quickstart that the same user starts at the same
// time chooses a different one: servers listen only after builds and downloads.
func freePort(purpose string, usual int) int {
	port, err := launch.PickPort(purpose, usual)
	if err == nil {
		var unlock func()
		unlock, err = launch.TryLock(filepath.Join(os.TempDir(), fmt.Sprintf("trafficd-quickstart-%d-port-%d.lock", os.Getuid(), port)))
		reservations = append(reservations, unlock)
	}
	if err != nil {
		port, _ = launch.PickPort(purpose, 0) // after an error, port is 0, which also means any free port
		say("port %d, the usual one for %s, is in use: using %d instead", usual, purpose, port)
	}
	return port
}

// makeKey creates an API key, or reuses the key of an earlier start.
func (q *quickstart) makeKey(ctx context.Context) (err error) {
	defer must.Return(&err, "cannot create the API key")
	if key, err := os.ReadFile(q.path(keyFile)); err == nil {
		q.key = strings.TrimSpace(string(key))
		return nil
	}
	say("creating an API key")
	out, _, err := q.trafficctl(ctx, nil, "key", "new", "--name", instance, "--product-instance", instance,
		"--rights", "ingest,forecast,routing", "--file", q.path(keysFile))
	if err != nil {
		return fmt.Errorf("%w; if an earlier start was interrupted, remove %s", err, q.path(keysFile))
	}
	q.key, _, _ = strings.Cut(out, "\n")
	must.Do(os.WriteFile(q.path(headerFile), []byte("Authorization: apiKey "+q.key+"\n"), 0o600))
	return os.WriteFile(q.path(keyFile), []byte(q.key+"\n"), 0o600)
}

//go:embed trafficd.yaml forecaster.yaml feeder.yaml
var configs embed.FS

func (q *quickstart) startDaemon(ctx context.Context) error {
	say("starting trafficd on %s", q.daemon.API)
	return q.start(ctx, q.daemon, 30*time.Second)
}

// start begins a program and waits until it is ready.
func (q *quickstart) start(ctx context.Context, d *launch.Daemon, limit time.Duration) error {
	if err := q.begin(d); err != nil {
		return err
	}
	return q.await(ctx, d, limit)
}

// await waits until a program is ready, and keeps it running.
func (q *quickstart) await(ctx context.Context, d *launch.Daemon, limit time.Duration) error {
	if err := d.AwaitReady(ctx, limit); err != nil {
		return err
	}
	q.keep(d) // not earlier, because AwaitReady and watch must not use d concurrently
	return nil
}

// begin writes the program's small configuration, which users can read, and starts the program.
func (q *quickstart) begin(d *launch.Daemon) (err error) {
	defer must.Return(&err)
	name := d.Name() + ".yaml"
	var text bytes.Buffer
	must.Do(template.Must(template.ParseFS(configs, name)).Execute(&text, map[string]any{
		"API": q.daemon.API, "Ops": d.Ops, "Forecaster": q.forecaster.Ops, "Feed": q.feed, "Feeder": q.feeder.Ops, "Live": q.authority == nil,
		"File": q.source.file, "KeyFile": q.path(keyFile), "Spool": q.path("spool"), "Keys": q.path(keysFile),
		"Instance": instance, "Registry": q.source.registry, "Column": q.source.column, "Columns": q.source.columns, "Units": q.source.units,
		"Journal":    q.path("journal"),
		"ClickHouse": q.stores.ClickHouse.TCP, "Database": database,
		"Brokers": strings.Join(q.stores.Kafka.Brokers, ", "), "Topic": topic, "ForecastTopic": forecastTopic,
	}))
	must.Do(os.WriteFile(q.path(name), text.Bytes(), 0o644))
	return d.Start()
}

// watch restarts a program when it exits, until ctx is done. It returns an error if a store exits,
// or if the program exits within a second of its start, because it would do so again.
func (q *quickstart) watch(ctx context.Context, d *launch.Daemon) error {
	for started := time.Now(); ; started = time.Now() {
		select {
		case <-ctx.Done():
			return nil
		case <-q.stores.ClickHouse.Done():
			return fmt.Errorf("ClickHouse exited; see %s", q.short(q.path("stores")))
		case <-q.stores.Kafka.Done():
			return fmt.Errorf("the Kafka broker exited; see %s", q.short(q.path("stores")))
		case <-d.Done():
		}
		state := d.State()
		if state.ExitCode() >= 0 && time.Since(started) < time.Second {
			return fmt.Errorf("%s exits immediately (%s); its log ends:\n%s", d.Name(), state, d.LogTail())
		}
		if err := d.Start(); err != nil {
			return err
		}
		if d == q.daemon {
			q.restarts.Add(1)
		}
		say("%s exited (%s) and was restarted as process %d; clients retry, nothing is lost", d.Name(), state, d.PID())
	}
}

// stop stops the feeder, the daemon, the forecaster and the stores, in this order.
func (q *quickstart) stop() error {
	if q.stores == nil {
		return nil
	}
	say("stopping trafficd and the stores; all data is kept in %s", q.short(q.dir))
	var errs []error
	if q.authority != nil {
		errs = append(errs, q.authority.server.Close())
	}
	for _, d := range []*launch.Daemon{q.feeder, q.daemon, q.forecaster} {
		if d.Process == nil {
			continue
		}
		errs = append(errs, d.Stop(35*time.Second)) // trafficd's shutdown_timeout is 30 s
		if !d.State().Success() {
			errs = append(errs, fmt.Errorf("%s exited with %v after SIGTERM", d.Name(), d.State()))
		}
	}
	return errors.Join(append(errs, q.stores.Close())...)
}

// trafficctl runs a command and returns its standard output and standard error. If progress is not
// nil, it receives the standard error instead. Exit code 2, for rejected items, is not an error.
// When ctx is done, the command is terminated, but may finish the batch in flight.
func (q *quickstart) trafficctl(ctx context.Context, progress *os.File, args ...string) (string, string, error) {
	var out, notes bytes.Buffer
	cmd := exec.Command(q.bin("trafficctl"), args...)
	cmd.Stdout, cmd.Stderr = &out, &notes
	if progress != nil {
		cmd.Stderr = progress
	}
	err := launch.Run(ctx, cmd)
	if ctx.Err() != nil {
		return "", "", ctx.Err()
	}
	if err != nil && cmd.ProcessState.ExitCode() != 2 {
		return "", "", fmt.Errorf("cannot run trafficctl %s: %w: %s", args[0], err, strings.TrimSpace(notes.String()))
	}
	return out.String(), notes.String(), nil
}

func (q *quickstart) path(name string) string { return filepath.Join(q.dir, name) }
func (q *quickstart) bin(name string) string  { return filepath.Join(q.programs, name) }

// short returns path, relative to the module's root if it is inside.
func (q *quickstart) short(path string) string {
	if rel, err := filepath.Rel(q.root, path); err == nil && !strings.HasPrefix(rel, "..") {
		return rel
	}
	return path
}

// clearLine erases an unfinished progress bar.
var clearLine = func() string {
	if term.IsTerminal(int(os.Stderr.Fd())) {
		return "\r\033[K"
	}
	return ""
}()

func say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, clearLine+"· "+format+"\n", args...)
}

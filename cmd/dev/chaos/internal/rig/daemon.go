package rig

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"trafficd/cmd/dev/chaos/internal/faultinject"
	"trafficd/cmd/dev/chaos/internal/judge"
	"trafficd/cmd/dev/chaos/internal/load"
	"trafficd/cmd/dev/launch"
	"trafficd/cmd/dev/must"
)

// stopLimit is the daemon's shutdown_timeout.
const stopLimit = 6 * time.Second

// Daemon is trafficd or a forecaster. It is not safe for concurrent use.
type Daemon struct {
	launch.Daemon
	Busy       sync.Mutex                       // held during a fault
	Faults     *faultinject.Faults              // faults of its clock, writes and reads; nil for a forecaster
	sharesLog  bool                             // whether its journal is a log in Kafka
	volume     string                           // the journal's directory
	unexpected func(format string, args ...any) // reports unexpected exits
	watched    bool                             // whether an exit of the current process is unexpected
	begun      atomic.Int64                     // time of the last start, Unix ns
}

// newDaemon returns replica n, configured but not running. Retry delays are short and blocks small,
// so that faults hit more deliveries. The journal is so small that it fills up when a store is down
// for a few seconds.
func (r *Rig) newDaemon(binary string, n int) *Daemon {
	dir := r.path(fmt.Sprint("replica-", n))
	must.Do(os.MkdirAll(dir, 0o755))
	d := &Daemon{unexpected: r.cfg.Unexpected, Faults: must.Get(faultinject.New(filepath.Join(dir, "faults"))), sharesLog: r.cfg.Replicas > 1}
	d.Daemon = launch.Daemon{Binary: binary, Dir: dir, Env: []string{d.Faults.Env()}}
	r.onClose(d.Faults.Close)
	r.onClose(d.Kill)
	brokers, servers := addresses(r.BrokerWires), addresses(r.ArchiveWires)
	journal, free := filepath.Join(dir, "journal"), 0
	if r.Disk != nil {
		journal = filepath.Join(r.Disk.Dir, "journal")
	}
	if r.cfg.LowDisk {
		free = 4 << 20
	}
	d.volume = journal
	must.Do(d.Configure("unused", "tk_unused", "ingest", r.cfg.Detectors,
		"shutdown_timeout="+stopLimit.String(),
		"clickhouse.addresses="+list(servers), "kafka.brokers="+list(brokers),
		"clickhouse.write_timeout=2s", "clickhouse.delivery.linger=100ms",
		"clickhouse.delivery.max_rows=2000",
		"kafka.request_timeout=1500ms", "kafka.resolve_after=1s",
		"kafka.delivery.max_rows=2000",
		"journal.dir="+journal, "journal.max_frame_bytes=524288",
		fmt.Sprint("journal.max_bytes=", journalBytes), fmt.Sprint("journal.min_free_bytes=", free)))
	if r.cfg.Replicas > 1 {
		d.Set("journal.kind=kafka", "journal.log.topic="+Log, "journal.log.group="+logGroup,
			"journal.log.brokers="+list(brokers),
			"journal.log.request_timeout=2s")
	}
	if r.Forecaster != nil {
		d.Set("forecasts.feed=kafka", "forecasts.kafka.brokers="+list(brokers), "forecasts.kafka.topic="+Forecasts,
			"forecasts.kafka.request_timeout=3s")
	}
	if r.cfg.Nodes > 1 {
		d.Set("clickhouse.cluster=main", "clickhouse.migrate=false")
	}
	var keys []launch.Key
	for n := range r.cfg.Clients {
		keys = append(keys, launch.Key{
			Name: fmt.Sprint("client-", n), Key: load.APIKey(n), Instance: judge.Instance(load.Detector(n, 0)), Rights: "ingest, forecast",
		})
	}
	must.Do(d.SetKeys(keys...))
	return d
}

// list formats the value of a list setting.
func list(values []string) string { return strings.Join(values, ",") }

func addresses(wires []*Wire) (all []string) {
	for _, w := range wires {
		all = append(all, w.Address)
	}
	return all
}

// The log in Kafka that replicas share.
const (
	Log      = "trafficd.log"
	logGroup = "trafficd"
	// SessionTimeout is how long a replica may be silent before it loses its partitions.
	SessionTimeout = 6 * time.Second
)

// Wipe deletes the volume of a daemon that is not running.
func (d *Daemon) Wipe() error { return os.RemoveAll(d.volume) }

// Source is a partition of the log, as delivered to one of the stores by its consumer group.
type Source struct {
	Group     string
	Partition int32
}

// AwaitDelivered waits until both groups have delivered the log up to its current end.
func (r *Rig) AwaitDelivered(ctx context.Context, limit time.Duration) error {
	var waiting map[Source]int64 // the offset to reach
	return launch.Eventually(ctx, limit, func() error {
		now, err := r.read(ctx)
		if err != nil {
			return err
		}
		if waiting == nil {
			waiting = map[Source]int64{}
			for s, l := range now {
				waiting[s] = l.End.Offset
			}
		}
		maps.DeleteFunc(waiting, func(s Source, end int64) bool { return now[s].Commit.At >= end })
		if len(waiting) > 0 {
			return fmt.Errorf("not delivered: %v", waiting)
		}
		return nil
	})
}

// read returns the lag of every source with frames. It returns an error if a group has no members.
// kadm's Lag omits partitions in which a rebalancing group has not committed anything; read reports
// them with offset -1.
func (r *Rig) read(ctx context.Context) (all map[Source]kadm.GroupMemberLag, err error) {
	defer must.Return(&err)
	ends := must.Get(r.admin.ListEndOffsets(ctx, Log))
	groups := must.Get(r.admin.Lag(ctx, logGroup+".clickhouse", logGroup+".kafka"))
	must.Do(errors.Join(ends.Error(), groups.Error()))
	all = map[Source]kadm.GroupMemberLag{}
	for _, g := range groups {
		if len(g.Members) == 0 {
			return nil, fmt.Errorf("group %s is %s and has no members", g.Group, g.State)
		}
		for partition, end := range ends[Log] {
			l, known := g.Lag.Lookup(Log, partition)
			if !known {
				l = kadm.GroupMemberLag{Commit: kadm.Offset{At: -1}, End: end}
			}
			if l.Err != nil {
				return nil, l.Err
			}
			if l.End.Offset > 0 {
				all[Source{g.Group, partition}] = l
			}
		}
	}
	return all, nil
}

// Start starts the daemon unless it is running.
func (d *Daemon) Start() error {
	if d.Running() {
		return nil
	}
	if d.begun.Store(time.Now().UnixNano()); d.Faults != nil {
		if err := d.Faults.Skew(0); err != nil {
			return err
		}
	}
	err := d.Daemon.Start()
	d.watched = err == nil
	return err
}

// JumpClock sets the offset of the clock, unless the daemon has just started: it trusts the clock
// of its start, after which only an operator can correct its journal (TestClock does).
func (d *Daemon) JumpClock(offset time.Duration) error {
	if time.Since(time.Unix(0, d.begun.Load())) < 5*time.Second {
		return nil
	}
	return d.Faults.Skew(offset)
}

// Running reports whether the daemon is running, and records an unexpected exit. An exit because of
// a disk error before the daemon listens is expected: a service manager would restart it.
func (d *Daemon) Running() bool {
	if !d.Exited() {
		return true
	}
	if d.watched && (strings.Contains(d.Log(), listening) || !d.diskFailed()) {
		d.unexpected("the daemon exited unexpectedly with %v: %s", d.State(), d.LogTail())
	}
	d.watched = false
	return false
}

// Log messages that show that the daemon handles signals, and that it accepts clients.
const (
	handlesSignals = ` starts"`
	listening      = `"listening for clients"`
)

// diskFailed reports whether the daemon's last log messages contain a disk error.
func (d *Daemon) diskFailed() bool {
	last := d.LogTail()
	return strings.Contains(last, "no space left") || strings.Contains(last, "input/output error")
}

// Kill sends SIGKILL.
func (d *Daemon) Kill() error {
	if d.Running() {
		d.watched = false
		_ = d.Daemon.Kill() // it may have exited just now
	}
	return nil
}

// Terminate sends SIGTERM. It records an exit code other than 0, and an exit after the deadline.
func (d *Daemon) Terminate() error {
	if !d.Running() {
		return nil
	}
	d.watched = false
	begin := time.Now()
	if err := d.Stop(stopLimit + 3*time.Second); err != nil { // 3 s more, because the machine may be busy
		d.unexpected("the daemon did not exit within %v of SIGTERM", time.Since(begin))
		return nil
	}
	// SIGTERM kills a process that does not handle signals yet.
	status, ok := d.State().Sys().(syscall.WaitStatus)
	tooEarly := ok && status.Signaled() && status.Signal() == syscall.SIGTERM && !strings.Contains(d.Log(), handlesSignals)
	// Requests may wait for the log longer than the grace period. The clients send them again.
	aborted := d.sharesLog && strings.Contains(d.LogTail(), "requests were aborted at the end of the grace period")
	if !d.State().Success() && !tooEarly && !aborted && !d.diskFailed() {
		d.unexpected("the daemon exited with %v, %v after SIGTERM: %s", d.State(), time.Since(begin), d.LogTail())
	}
	return nil
}

// Forecasts is the topic of the forecasts, which the daemon serves.
const Forecasts = "forecasts"

// newForecaster prepares a forecaster for the first client's detectors, of which each street has
// two. There is none with several replicas or nodes.
func (r *Rig) newForecaster(ctx context.Context) {
	if r.cfg.Replicas > 1 || r.cfg.Nodes > 1 {
		return
	}
	// With 60 periods, some are still in the future when the daemon's clock is 20 minutes ahead.
	r.ForecastSettings = judge.Settings{Periods: 60, Step: time.Minute, Every: 2 * time.Second, Tolerance: 0.5}
	instance, text := judge.Instance(load.Detector(0, 0)), "detectorCode,street,fromnode,length\n"
	for n, code := range r.cfg.Detectors {
		if judge.Instance(code) == instance {
			r.ForecastSettings.Streets = 1 + n/2
			text += fmt.Sprintf("%s,%d,1,%d\n", code, r.ForecastSettings.Streets, 100+n)
		}
	}
	must.Do(os.WriteFile(r.path("streets.csv"), []byte(text), 0o600))
	must.Do(launch.CreateTopic(ctx, r.Broker.Addresses(), Forecasts, partitions, nil))
	r.forecasterProgram = must.Get(launch.Program(ctx, "forecaster"))
	r.Forecaster = r.forecaster("published", "output.kafka.brokers="+list(addresses(r.BrokerWires)), "output.kafka.topic="+Forecasts,
		"output.kafka.request_timeout=3s")
}

// forecaster returns a forecaster that is not running.
func (r *Rig) forecaster(dir string, output ...string) *Daemon {
	dir = r.path(dir)
	must.Do(os.MkdirAll(dir, 0o755))
	ops := must.Get(launch.FreeAddress())
	d := &Daemon{unexpected: r.cfg.Unexpected, Daemon: launch.Daemon{Binary: r.forecasterProgram, Dir: dir, Ops: ops}}
	r.onClose(d.Kill)
	d.Set("ops.listen="+ops, "clickhouse.address="+r.ArchiveWires[0].Address, "clickhouse.timeout=10s",
		"model.product_instance="+judge.Instance(load.Detector(0, 0)), "model.interval=1m", "detectors.path="+r.path("streets.csv"),
		fmt.Sprint("forecasts.every=", r.ForecastSettings.Every), fmt.Sprint("forecasts.step=", r.ForecastSettings.Step),
		fmt.Sprint("forecasts.periods=", r.ForecastSettings.Periods), fmt.Sprint("forecasts.tolerance=", r.ForecastSettings.Tolerance),
		"forecasts.grace=0s", "log.format=json")
	d.Set(output...)
	return d
}

// StartReference starts a second forecaster, which writes its forecasts to file.
func (r *Rig) StartReference() (d *Daemon, file string, err error) {
	defer must.Return(&err)
	file = filepath.Join(r.path("reference"), "forecasts.pb")
	d = r.forecaster("reference", "output.feed=file", "output.file.path="+file)
	return d, file, d.Start()
}

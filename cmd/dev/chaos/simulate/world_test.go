package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"trafficd/cmd/dev/chaos/internal/judge"
	"trafficd/cmd/dev/chaos/internal/ledger"
	"trafficd/cmd/dev/chfake"
	"trafficd/cmd/dev/crashfs"
	"trafficd/cmd/dev/launch"
	"trafficd/cmd/trafficd/config"
	"trafficd/pipeline"
	"trafficd/pipeline/batch"
	"trafficd/pipeline/journal"
	"trafficd/pipeline/kafkalog"
	"trafficd/pipeline/lib/durable"
)

const (
	archiveAddress = "10.0.0.2:9000"
	topic          = "measurements"
	logTopic       = "trafficd.log"
	logPartitions  = 3
	partitions     = 4
	brokers        = 3
	clients        = 4
	detectors      = 6 // of a client
)

// The names of the stores, which are also those of the deliveries.
const (
	archive = "clickhouse"
	broker  = "kafka"
)

// world is the daemon with its disk, its clients, the network and the stores, in one process. If
// the journal is a log in Kafka, there are three replicas. All of it runs in one bubble, on its
// clock.
type world struct {
	t     *testing.T
	start time.Time
	trace *trace

	shared  bool // the journal is a log in Kafka
	network *network
	archive *chfake.Server
	broker  *kfake.Cluster
	former  []judge.Arrival // records of deleted topics
	topics  int             // number of deleted topics
	dead    string          // path of the dead-letter file

	mu       sync.Mutex
	replicas []*replica

	ledger *ledger.Ledger
	maybe  []ledger.Accepted // items of batches without a key that got no response
	lost   int               // attempts without a response
	wrong  []string          // what a client got and should not have
	stuck  bool              // the daemon does not start, or does not deliver
}

// over reports whether the run cannot continue.
func (w *world) over() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stuck
}

// giveUp ends the run because of a fault.
func (w *world) giveUp(format string, args ...any) {
	w.fault(format, args...)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stuck = true
}

// trace is what happened. Two runs with the same events have the same hash.
type trace struct {
	mu    sync.Mutex
	start time.Time
	hash  interface {
		io.Writer
		Sum64() uint64
	}
	events int
	out    io.Writer // nil unless the events are shown
}

func (tr *trace) add(format string, args ...any) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.events++
	line := fmt.Sprintf("%12.6f  ", time.Since(tr.start).Seconds()) + fmt.Sprintf(format, args...) + "\n"
	_, _ = io.WriteString(tr.hash, line)
	if tr.out != nil {
		_, _ = io.WriteString(tr.out, line)
	}
}

// newWorld starts the stores. dead is the path of the dead-letter file. show, if not nil, receives
// the events.
func newWorld(t *testing.T, seed uint64, dead string, show io.Writer) *world {
	w := &world{
		t: t, start: time.Now(), ledger: new(ledger.Ledger), dead: dead, shared: sharesLog(seed),
	}
	w.trace = &trace{start: w.start, hash: fnv.New64a(), out: show}
	count := 1
	if w.shared {
		count = 3
	}
	w.network = newNetwork(count, w.trace.add, w.point)
	for id := range count {
		r := &replica{w: w, id: id}
		r.newLife(crashfs.New(seed + uint64(id)<<32))
		w.replicas = append(w.replicas, r)
	}
	w.archive = chfake.New(func(...any) {})
	go w.archive.Serve(w.network.listen(archive, archiveAddress)) // until close
	node := 0
	cluster, err := kfake.NewCluster(kfake.NumBrokers(brokers), kfake.SeedTopics(partitions, topic),
		kfake.ListenFn(func(string, string) (net.Listener, error) {
			node++
			return w.network.listen(broker, fmt.Sprintf("10.0.0.3:%d", 9091+node)), nil
		}))
	if err != nil {
		t.Fatal(err)
	}
	w.broker = cluster
	return w
}

// close stops the stores.
func (w *world) close() {
	w.network.cut(archive, everyReplica)
	w.network.cut(broker, everyReplica)
	for _, l := range w.network.listeners {
		_ = l.Close()
	}
	w.broker.Close()
}

// sharesLog reports whether the journal in the world of a seed is a log in Kafka.
func sharesLog(seed uint64) bool { return seed%3 == 0 }

// replica is a place for a daemon, with a disk.
type replica struct {
	w  *world
	id int

	// Guarded by world.mu.
	disk   *crashfs.FS
	daemon *daemon       // nil while it is down
	skew   time.Duration // of the daemon's wall clock
	kill   *kill         // where the daemon is to be killed
}

// now is the daemon's wall clock.
func (r *replica) now() time.Time {
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	return time.Now().Add(r.skew)
}

// daemon is a running daemon: the parts that a batch passes through, connected as cmd/trafficd
// does.
type daemon struct {
	host       *host
	journal    pipeline.Journal
	shared     *kafkalog.Log // the journal if it is in Kafka
	close      func() error  // closes the journal
	store      *pipeline.IdempotencyStore
	intake     *pipeline.Intake
	deliveries []*pipeline.Delivery
	running    sync.WaitGroup
	soft, hard context.CancelFunc
}

// registry has the detectors of all clients.
type registry map[string]*batch.Detectors

func (r registry) Snapshot(instance string) *batch.Detectors { return r[instance] }
func (r registry) HasFeed(instance string) bool              { return r[instance] != nil }

var known = func() registry {
	r := registry{}
	for c := range clients {
		var codes []string
		for d := range detectors {
			codes = append(codes, detector(c, d))
		}
		r[instance(c)], _ = batch.NewDetectors(codes)
	}
	return r
}()

func instance(client int) string    { return fmt.Sprintf("sim-%02d", client) }
func detector(client, n int) string { return fmt.Sprintf("%s-%03d", instance(client), n) }

// disk is the file system of one life of the daemon.
type disk struct{ *crashfs.FS }

func (d disk) Open(path string, flag int) (journal.File, error) {
	f, err := d.FS.Open(path, flag)
	if err != nil {
		return nil, err
	}
	return f, nil
}

func (r *replica) start() error {
	w := r.w
	d := &daemon{host: &host{n: w.network, replica: r.id}}
	cfg := config.Default()
	cfg.Journal.Dir, cfg.Journal.MinFreeBytes = "/journal", 0
	cfg.Journal.MaxBytes, cfg.Journal.SegmentBytes, cfg.Journal.MaxFrameBytes = 4<<20, 64<<10, 64<<10
	cfg.Pipeline.Now, cfg.Pipeline.Workers = r.now, 2
	cfg.Pipeline.Idempotency.Journal.Dir = "/journal/responses"
	cfg.Pipeline.Idempotency.Journal.SegmentBytes = 64 << 10
	cfg.ClickHouse.Addresses, cfg.ClickHouse.Migrate, cfg.ClickHouse.DeriveInterval = []string{archiveAddress}, false, 0
	cfg.ClickHouse.ClickHouse.Dial, cfg.Kafka.Dial = d.host.dial, d.host.dial
	cfg.ClickHouse.BlockRows, cfg.Kafka.BlockRows = 200, 200
	cfg.Kafka.Topic, cfg.Kafka.Brokers = topic, nil
	for i := range brokers {
		cfg.Kafka.Brokers = append(cfg.Kafka.Brokers, fmt.Sprintf("10.0.0.3:%d", 9092+i))
	}
	cfg.Journal.Log.Dial, cfg.Journal.Log.Brokers, cfg.Journal.Log.Partitions = d.host.dial, cfg.Kafka.Brokers, logPartitions
	cfg.Journal.Log.MetadataMaxAge = 5 * time.Second // faster than with 1 s
	fs := journal.WithFS(disk{r.disk})
	log := zerolog.New(logTo{w.trace}).Level(zerolog.WarnLevel)
	var err error
	var local *journal.Journal
	var source pipeline.Source // of the idempotency store
	if w.shared {
		d.shared, err = kafkalog.Open(cfg.Journal.Log, []string{archive, broker}, cfg.Pipeline.Idempotency.Window, log)
		d.journal = d.shared
	} else if local, err = journal.Open(cfg.Journal.Config, []string{archive, broker, pipeline.IdempotencyConsumer}, fs, journal.WithLogger(log)); err == nil {
		d.journal, d.close, source = local, local.Close, pipeline.Local(local, pipeline.IdempotencyConsumer)
	}
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	hard, cancelHard := context.WithCancel(context.Background())
	soft, cancelSoft := context.WithCancel(hard)
	d.hard, d.soft = cancelHard, cancelSoft
	dead := pipeline.NewDeadLetters(w.dead)
	deliver := func(s config.Sink, source pipeline.Source) *pipeline.Delivery {
		sink, err := s.Open(&cfg, log)
		if err != nil {
			w.t.Fatal(err)
		}
		x, err := pipeline.NewDelivery(s.Name, s.Delivery(&cfg), source, sink, dead, log)
		if err != nil {
			w.giveUp("the cursor of %s cannot be read: %v", s.Name, err)
			return nil
		}
		return x
	}
	for _, s := range config.Sinks {
		if w.shared {
			d.running.Go(func() {
				_ = d.shared.Consume(hard, soft, s.Name, func(ctx, soft context.Context, p *kafkalog.Partition) error {
					w.trace.add("replica %d delivers partition %d to %s", r.id, p.ID, s.Name)
					x := deliver(s, p)
					if x == nil {
						return nil
					}
					if err := x.Run(ctx, soft); !errors.Is(err, durable.ErrClosed) {
						return err
					}
					return nil // another replica continues
				}, func(error) {})
			})
		} else if x := deliver(s, pipeline.Local(local, s.Name)); x != nil {
			d.deliveries = append(d.deliveries, x)
			d.running.Go(func() { _ = x.Run(hard, soft) })
		}
	}
	d.store, err = pipeline.OpenIdempotencyStore(cfg.Pipeline.Idempotency, d.journal, source, fs)
	if err == nil {
		d.intake, err = pipeline.NewIntake(cfg.Pipeline, d.journal, known, d.store, log)
	}
	if err != nil {
		d.stop(true)
		return err
	}
	w.mu.Lock()
	r.daemon = d
	w.mu.Unlock()
	w.trace.add("daemon %d starts", r.id)
	return nil
}

// stop ends all parts in the daemon's order. A killed daemon has neither a disk nor a network left,
// so that nothing that its goroutines still do has an effect.
func (d *daemon) stop(killed bool) {
	now, cancel := context.WithCancel(context.Background())
	cancel()
	if killed {
		d.hard()
		d.host.kill()
		if d.shared != nil {
			_ = d.shared.Close(now)
		}
	}
	if d.intake != nil {
		d.intake.Close()
	}
	if d.store != nil {
		_ = d.store.Close()
	}
	d.soft()
	if !killed { // the grace period
		grace := time.AfterFunc(20*time.Second, d.hard)
		defer grace.Stop()
	}
	d.running.Wait()
	d.hard()
	if d.shared != nil {
		_ = d.shared.Close(now)
	} else {
		_ = d.close()
	}
	d.host.kill()
}

// stop stops the daemon.
func (r *replica) stop() {
	r.w.mu.Lock()
	d := r.daemon
	r.daemon = nil
	r.w.mu.Unlock()
	if d != nil {
		d.stop(false)
	}
	r.newLife(r.disk.Crash(false))
}

// end kills the daemon at the nth time that something happens, at the latest after a minute. If
// power is lost, so are unsynced writes.
func (r *replica) end(what string, n int, powerLost bool) {
	w := r.w
	k := &kill{what: what, left: n, powerLost: powerLost, done: make(chan struct{})}
	w.mu.Lock()
	r.kill = k
	w.mu.Unlock()
	if what != "" {
		select {
		case <-k.done:
		case <-time.After(time.Minute):
		}
	}
	w.mu.Lock()
	if r.kill == k {
		r.execute()
	}
	w.mu.Unlock()
	if k.daemon != nil {
		k.daemon.stop(true)
	}
	r.newLife(k.disk)
}

// kill is an order to kill the daemon.
type kill struct {
	what      string
	left      int
	powerLost bool
	done      chan struct{}
	daemon    *daemon // that was killed
	disk      *crashfs.FS
}

// point is called where the daemon may be killed. Nothing here may wait for time to pass, because
// the caller may hold locks.
func (w *world) point(replica int, what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.replicas[replica]
	if r.kill != nil && r.kill.what == what {
		if r.kill.left--; r.kill.left <= 0 {
			r.execute()
		}
	}
}

// execute takes from the daemon its disk and its network. The caller holds mu.
func (r *replica) execute() {
	k := r.kill
	r.kill = nil
	k.daemon, r.daemon = r.daemon, nil
	k.disk = r.disk.Crash(k.powerLost)
	if k.daemon != nil {
		k.daemon.host.kill()
	}
	close(k.done)
}

// newLife replaces the disk by the one that the next daemon finds.
func (r *replica) newLife(next *crashfs.FS) {
	r.disk = next
	r.disk.SetGate(func(path string) {
		r.w.trace.add("disk sync %s", path)
		r.w.point(r.id, "sync")
	})
}

// fault records that something happened which must not happen.
func (w *world) fault(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wrong = append(w.wrong, fmt.Sprintf(format, args...))
}

// logTo writes the daemon's log to the trace.
type logTo struct{ *trace }

func (l logTo) Write(line []byte) (int, error) {
	l.add("log %s", bytes.TrimSpace(line))
	return len(line), nil
}

// submit is a request of a client, which has a replica of its own and uses the next ones while that
// is down. After a crash, its error is batch.ErrNoResponse.
func (w *world) submit(client int, s *batch.Submission, body []byte) error {
	var r *replica
	var d *daemon
	w.mu.Lock()
	for i := range w.replicas {
		if r = w.replicas[(client+i)%len(w.replicas)]; r.daemon != nil {
			d = r.daemon
			break
		}
	}
	w.mu.Unlock()
	if d == nil {
		return errDown
	}
	if s.IdempotencyKey != "" {
		if err := d.intake.Hold(s.Client, s.IdempotencyKey); err != nil {
			return err
		}
		defer d.intake.Release(s.Client, s.IdempotencyKey)
	}
	if err := d.intake.Ready(s.ProductInstance); err != nil {
		return err
	}
	s.Body = bytes.NewReader(body)
	err := d.intake.Submit(s)
	w.mu.Lock()
	defer w.mu.Unlock()
	if r.daemon != d {
		return batch.ErrNoResponse // the connection is closed
	}
	return err
}

var errDown = errors.New("connection refused")

// settle ends all faults and waits until everything is delivered, at most an hour.
func (w *world) settle() {
	w.network.heal()
	for range 3600 {
		waits := false
		for _, r := range w.replicas {
			r.disk.Fill(-1)
			r.disk.SetFault(nil)
			w.mu.Lock()
			d := r.daemon
			w.mu.Unlock()
			if d == nil {
				waits = true
				if err := r.start(); err != nil {
					w.trace.add("daemon does not start: %v", err)
				}
			} else if slices.ContainsFunc(d.deliveries, func(x *pipeline.Delivery) bool { return x.Status().Frames > 0 }) {
				waits = true
			}
		}
		if w.over() || !waits && !w.logWaits() {
			return
		}
		time.Sleep(time.Second)
	}
	w.giveUp("not everything is delivered an hour after the last fault")
}

// logWaits reports whether the log in Kafka has frames that are not delivered.
func (w *world) logWaits() bool {
	if !w.shared {
		return false
	}
	reader := &host{n: w.network, judge: true}
	defer reader.kill()
	cfg := kafkalog.DefaultConfig()
	cfg.Dial, cfg.Brokers, cfg.Partitions = reader.dial, w.broker.ListenAddrs(), logPartitions
	view, err := kafkalog.OpenView(context.Background(), cfg, []string{archive, broker})
	if err != nil {
		w.trace.add("cannot read the log: %v", err)
		return true
	}
	defer view.Close()
	return slices.ContainsFunc(view.Partitions, func(p kafkalog.ViewedPartition) bool {
		return slices.ContainsFunc(p.Cursors, func(c durable.CursorInfo) bool { return c.Seq < p.Next })
	})
}

// judge compares the ledger with the stores, once everything is delivered.
func (w *world) judge() (faults []string, accepted int) {
	topic := append(slices.Clone(w.former), w.records()...)
	var rows []judge.Arrival
	for i, r := range w.archive.Rows() {
		a := judge.Arrival{Received: r.Received, Position: fmt.Sprint("row ", i)}
		a.Item = ledger.Item{Detector: r.Detector, Type: r.Type, From: r.From, To: r.To, Value: r.Value, Quality: r.Quality}
		a.Batch, a.Index = uuid.UUID(r.Batch).String(), int64(r.Index)
		if r.Instance != judge.Instance(r.Detector) {
			a.Defect = "product_instance is " + r.Instance
		}
		rows = append(rows, a)
	}
	all, unexpected, _ := w.ledger.Read()
	accepted = len(all)
	all = append(all, stored(w.maybe, append(slices.Clone(rows), topic...))...)
	faults = append(w.wrong, unexpected...)
	for _, v := range judge.All(all, distinct(topic), [][]judge.Arrival{rows}) {
		if v.Faults() > 0 {
			faults = append(append(faults, v.String()), v.Examples...)
		}
	}
	rejected, _ := pipeline.NewDeadLetters(w.dead).Count(archive)
	more, _ := pipeline.NewDeadLetters(w.dead).Count(broker)
	if rejected+more > 0 {
		faults = append(faults, fmt.Sprintf("%d dead letters of %s, %d of %s", rejected, archive, more, broker))
	}
	return faults, accepted
}

// stored returns the items without a response that arrived in some store: they count as accepted,
// so that all stores must have them.
func stored(maybe []ledger.Accepted, arrivals []judge.Arrival) (list []ledger.Accepted) {
	seen := map[ledger.Key]judge.Arrival{}
	for _, a := range arrivals {
		seen[a.Key()] = a
	}
	for _, m := range maybe {
		if a, ok := seen[m.Key()]; ok {
			m.Batch = a.Batch
			list = append(list, m)
		}
	}
	return list
}

// distinct drops a record that a former topic of the same name has, too: a sink cannot know what a
// deleted topic had.
func distinct(arrivals []judge.Arrival) (list []judge.Arrival) {
	first := map[ledger.Key]string{}
	for _, a := range arrivals {
		generation, _, _ := strings.Cut(a.Position, ":")
		if former, ok := first[a.Key()]; ok && former != generation {
			continue
		}
		first[a.Key()] = generation
		list = append(list, a)
	}
	return list
}

// records returns the records of the topic.
func (w *world) records() []judge.Arrival {
	reader := &host{n: w.network, judge: true}
	defer reader.kill()
	records, err := launch.ReadTopic(context.Background(), w.broker.ListenAddrs(), topic, kgo.Dialer(reader.dial))
	if err != nil {
		w.fault("cannot read the topic: %v", err)
	}
	arrivals := judge.ParseRecords(records)
	for i := range arrivals {
		arrivals[i].Position = fmt.Sprintf("topic %d: %s", w.topics, arrivals[i].Position)
	}
	return arrivals
}

var quality = []float64{0, 0.5, 1, math.NaN()}

func random(seed, purpose uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, purpose)) }

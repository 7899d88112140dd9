package launch

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"trafficd/cmd/dev/must"
)

// The kinds of broker.
const (
	Kfake  = "kfake"  // franz-go's kfake inside devstores; it loses the producers' sequence numbers when killed
	Apache = "apache" // Apache Kafka in KRaft mode, one Java process per broker
)

// Options describes what devstores runs. The zero value means both stores, with one kfake broker,
// on free ports. [StartStores] passes the options to devstores as JSON. Those for which devstores
// has no flag are not validated.
type Options struct {
	Dir  string // data directory, kept across restarts; empty = a new one, removed by Close
	Only string // "clickhouse", "kafka" or "zookeeper"; empty = ClickHouse and Kafka

	ClickHouseTCP  int // port of the native protocol; 0 = a free one
	ClickHouseHTTP int // port of the HTTP interface; 0 = a free one
	ZooKeeperPort  int // 0 = a free one

	MergeTree map[string]string // ClickHouse's default settings for all MergeTree tables

	Host    Host     // where the store runs
	Hosts   Hosts    // hosts of a cluster: of each broker (Apache), or of each ClickHouse node and ZooKeeper
	Cluster *Cluster // makes ClickHouse a node of a cluster; nil = a single server

	Broker      string            // Kfake or Apache; empty = Kfake
	Brokers     int               // number of brokers; 0 = 1
	Node        int               // run only this broker, counted from 1; 0 = all (Apache only)
	KafkaPorts  []int             // one per broker; 0 or missing = a free one
	Controllers []int             // port of each controller; 0 or missing = a free one (Apache only)
	Advertised  []string          // host:port that each broker advertises, such as a proxy's; empty = its own (Apache only)
	Partitions  int               // number of partitions of automatically created topics; 0 = 6
	Topics      map[string]int    // topics to create: name → number of partitions
	Properties  map[string]string // broker properties, such as min.insync.replicas; they override the defaults

	Binary  string      `json:"-"` // path of devstores; empty = built from the module at or above the working directory
	Stderr  io.Writer   `json:"-"` // receives the stores' progress, from several goroutines; nil = os.Stderr
	OnDeath unix.Signal `json:"-"` // sent to the stores if this process dies; 0 = SIGKILL
}

// Complete sets defaults and picks free ports. It returns an error if an option is invalid or a
// port is in use.
func (o *Options) Complete() (err error) {
	defer must.Return(&err)
	o.Broker, o.Brokers, o.Partitions = cmp.Or(o.Broker, Kfake), cmp.Or(o.Brokers, 1), cmp.Or(o.Partitions, 6)
	must.Do(o.validate())
	if o.Only == "zookeeper" {
		o.ZooKeeperPort = must.Get(PickPort("ZooKeeper", o.ZooKeeperPort))
	}
	if o.Only == "clickhouse" || o.Only == "" {
		o.ClickHouseTCP = must.Get(PickPort("ClickHouse's native protocol", o.ClickHouseTCP))
		o.ClickHouseHTTP = must.Get(PickPort("ClickHouse over HTTP", o.ClickHouseHTTP))
	}
	if o.Only == "kafka" || o.Only == "" {
		o.KafkaPorts = must.Get(o.pickPorts("Kafka broker", o.KafkaPorts))
		if o.Broker == Apache {
			o.Controllers = must.Get(o.pickPorts("Kafka controller", o.Controllers))
		}
	}
	return nil
}

// pickPorts returns a port for each broker. If o.Node is set, it does not check the ports of the
// other brokers, which may already be using them.
func (o *Options) pickPorts(what string, given []int) (ports []int, err error) {
	ports = make([]int, o.Brokers)
	copy(ports, given)
	for i, port := range ports {
		if o.Node == 0 || o.Node == i+1 {
			if ports[i], err = PickPort(fmt.Sprint(what, " ", i+1), port); err != nil {
				return nil, err
			}
		}
	}
	return ports, nil
}

func (o *Options) validate() error {
	for _, port := range append([]int{o.ClickHouseTCP, o.ClickHouseHTTP}, o.KafkaPorts...) {
		if port < 0 || port > 65535 {
			return fmt.Errorf("cannot use port %d: must be 1 to 65535, or 0 for a free one", port)
		}
	}
	switch {
	case !slices.Contains([]string{"", "clickhouse", "kafka", "zookeeper"}, o.Only):
		return fmt.Errorf("cannot start only %q: must be clickhouse, kafka or zookeeper", o.Only)
	case o.Broker != Kfake && o.Broker != Apache:
		return fmt.Errorf("unknown broker kind %q: must be %s or %s", o.Broker, Kfake, Apache)
	case o.Brokers < 1 || o.Brokers > 9:
		return fmt.Errorf("cannot run %d brokers: must be 1 to 9", o.Brokers)
	case len(o.KafkaPorts) > o.Brokers:
		return fmt.Errorf("cannot use %d ports for %d brokers: must be at most one per broker", len(o.KafkaPorts), o.Brokers)
	case o.Partitions < 1:
		return fmt.Errorf("cannot create topics with %d partitions: must be at least 1", o.Partitions)
	}
	return nil
}

// Stores holds the running stores. A store that was not requested is nil.
type Stores struct {
	ClickHouse *ClickHouse
	Kafka      *Kafka
	temporary  string // directory that Close removes; empty = none
}

type (
	// ClickHouseInfo describes a running ClickHouse.
	ClickHouseInfo struct {
		TCP     string `json:"tcp"`  // host:port of the native protocol
		HTTP    string `json:"http"` // host:port
		Kind    string `json:"kind"` // "clickhouse-server" or "libchdb"
		Version string `json:"version"`

		Processes []int `json:"pids"`
	}
	// KafkaInfo describes a running Kafka cluster.
	KafkaInfo struct {
		Brokers []string `json:"brokers"` // host:port of each broker, in the order of node IDs
		Kind    string   `json:"kind"`    // Kfake or Apache
		Version string   `json:"version"`

		Processes []int `json:"pids"` // one per broker; kfake's brokers share one process
	}
	// ZooKeeperInfo describes a running ZooKeeper.
	ZooKeeperInfo struct {
		Address   string `json:"address"` // host:port
		Processes []int  `json:"pids"`
	}
)

// Announcement is the line of JSON that devstores prints when the stores are ready.
type Announcement struct {
	ClickHouse *ClickHouseInfo `json:"clickhouse,omitempty"`
	Kafka      *KafkaInfo      `json:"kafka,omitempty"`
	ZooKeeper  *ZooKeeperInfo  `json:"zookeeper,omitempty"`
}

// ClickHouse is a running ClickHouse. Users: "default" without a password, "trafficd" with the
// password "trafficd". After SYSTEM FLUSH LOGS, system.part_log contains the number of rows of
// every insert since the last start, whatever the table does with them.
type ClickHouse struct {
	*store
	ClickHouseInfo // from the first start; after a restart, use PIDs instead of Processes
}

// Kafka is a running cluster.
type Kafka struct {
	*store
	KafkaInfo // from the first start, as in ClickHouse
}

// StartStores starts the stores and returns when they are ready. ctx limits only the start. The
// caller must stop the stores with [Stores.Close].
func StartStores(ctx context.Context, opts Options) (s *Stores, err error) {
	s = &Stores{}
	defer func() {
		if err != nil {
			_ = s.Close()
		}
	}()
	defer must.Return(&err)
	if opts.Dir == "" {
		s.temporary = must.Get(os.MkdirTemp("", "devstores-"))
		opts.Dir = s.temporary
	}
	must.Do(opts.prepare(ctx))
	if opts.Only != "kafka" {
		st, a, err := startStore(ctx, opts, "clickhouse")
		must.Do(err)
		s.ClickHouse = &ClickHouse{st, *a.ClickHouse}
	}
	if opts.Only != "clickhouse" {
		st, a, err := startStore(ctx, opts, "kafka")
		must.Do(err)
		s.Kafka = &Kafka{st, *a.Kafka}
	}
	return s, nil
}

// prepare completes the options like Complete, including those that are not passed to devstores.
func (o *Options) prepare(ctx context.Context) (err error) {
	if o.Binary == "" {
		if o.Binary, err = Program(ctx, "devstores"); err != nil {
			return err
		}
	}
	o.Stderr, o.OnDeath = cmp.Or[io.Writer](o.Stderr, os.Stderr), cmp.Or(o.OnDeath, unix.SIGKILL)
	return o.Complete()
}

// Close stops the stores and removes the directory if StartStores created it.
func (s *Stores) Close() error {
	var errs []error
	if s.Kafka != nil {
		errs = append(errs, s.Kafka.Stop())
	}
	if s.ClickHouse != nil {
		errs = append(errs, s.ClickHouse.Stop())
	}
	if s.temporary != "" {
		errs = append(errs, os.RemoveAll(s.temporary))
	}
	return errors.Join(errs...)
}

// storeStopLimit exceeds the time that devstores gives a store to stop.
const storeStopLimit = 30 * time.Second

// store is one store in its own devstores process. It is safe for concurrent use.
type store struct {
	opts Options // completed, so that directory and ports are the same at every start

	mu   sync.Mutex
	proc *Process
	pids []int
}

func startStore(ctx context.Context, opts Options, name string) (*store, Announcement, error) {
	opts.Only = name
	s := &store{opts: opts}
	a, err := s.start(ctx)
	return s, a, err
}

// start runs devstores and waits for its announcement.
func (s *store) start(ctx context.Context) (a Announcement, err error) {
	defer must.Return(&err)
	options := must.Get(json.Marshal(s.opts))
	stdout, childStdout, err := os.Pipe()
	must.Do(err)
	defer stdout.Close()
	var printed bytes.Buffer // a few lines of progress
	args := []string{s.opts.Binary, "--options", string(options)}
	if in := s.opts.Host.Namespace; in != "" {
		args = append([]string{"ip", "netns", "exec", in}, args...)
	}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdout = childStdout
	cmd.Stderr = io.MultiWriter(s.opts.Stderr, &printed) // a writer, not a file, so that Done waits for the whole process tree
	s.proc, err = StartGroup(cmd, s.opts.OnDeath)
	childStdout.Close()
	must.Do(err)
	defer context.AfterFunc(ctx, func() { _ = s.proc.Kill() })()
	line, err := bufio.NewReader(stdout).ReadBytes('\n')
	if err != nil { // devstores exited before the store was ready
		_ = s.proc.Stop(storeStopLimit)
		return a, fmt.Errorf("cannot start %s in %s: %s", s.opts.Only, s.opts.Dir, bytes.TrimSpace(printed.Bytes()))
	}
	if err := json.Unmarshal(line, &a); err != nil {
		_ = s.proc.Kill()
		return a, fmt.Errorf("cannot parse the announcement of devstores, %q: %w", line, err)
	}
	switch {
	case a.ClickHouse != nil:
		s.pids = a.ClickHouse.Processes
	case a.Kafka != nil:
		s.pids = a.Kafka.Processes
	case a.ZooKeeper != nil:
		s.pids = a.ZooKeeper.Processes
	}
	return a, nil
}

// Kill sends SIGKILL to all processes of the store and returns when they have exited.
func (s *store) Kill() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc.Kill()
}

// Stop stops the store cleanly.
func (s *store) Stop() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc.Stop(storeStopLimit)
}

// Restart stops the store if it is running, starts it with the same ports and directory, and
// returns when it is ready.
func (s *store) Restart() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.proc.Stop(storeStopLimit); err != nil {
		return err
	}
	_, err := s.start(context.Background())
	return err
}

// Pause suspends all processes of the store with SIGSTOP. Connections stay open, but the store does
// not respond. Pause returns when all threads have stopped, because on a busy machine some continue
// for a while after the signal.
func (s *store) Pause() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.signal(unix.SIGSTOP); err != nil {
		return err
	}
	for _, pid := range append([]int{s.proc.PID()}, s.pids...) {
		for running(pid) {
			time.Sleep(time.Millisecond)
		}
	}
	return nil
}

// running reports whether a thread of the process may still be running.
func running(pid int) bool {
	threads, _ := procfs.AllThreads(pid) // none if it has exited
	return slices.ContainsFunc(threads, func(t procfs.Proc) bool {
		stat, err := t.Stat()
		return err == nil && !strings.Contains("TtZX", stat.State)
	})
}

// Resume undoes Pause.
func (s *store) Resume() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.signal(unix.SIGCONT)
}

func (s *store) signal(sig unix.Signal) error {
	if s.proc.Exited() {
		return errors.New("cannot pause or resume a stopped store: restart it first")
	}
	return s.proc.Signal(sig)
}

// Done returns a channel that is closed when the store's current process has exited.
func (s *store) Done() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc.Done()
}

// PIDs returns the IDs of the processes that run the store: one, or one per broker (Apache). They
// change with every start.
func (s *store) PIDs() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pids
}

// Do calls QueryClickHouse for this server. It returns an error for a node of a cluster, which does
// not serve HTTP.
func (c *ClickHouse) Do(ctx context.Context, sql string) (string, error) {
	return QueryClickHouse(ctx, c.HTTP, sql)
}

// QueryClickHouse runs one statement over HTTP as the user "default". It returns the response,
// which is tab-separated unless the statement names a format, without the last line break. Errors
// contain ClickHouse's message.
func QueryClickHouse(ctx context.Context, address, sql string) (string, error) {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}} // leaves no goroutine behind
	// With wait_end_of_query, the status reports all errors, even those after the first rows.
	r, err := Request(ctx, client, http.MethodPost, "http://"+address+"/?wait_end_of_query=1", []byte(sql))
	if err != nil {
		return "", fmt.Errorf("cannot query ClickHouse: %w", err)
	}
	if r.Status != http.StatusOK {
		return "", fmt.Errorf("cannot run %q: %s", sql, bytes.TrimSpace(r.Body))
	}
	return strings.TrimSuffix(string(r.Body), "\n"), nil
}

package launch

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// The kinds of broker.
const (
	Kfake  = "kfake"  // franz-go's kfake inside devstores; it forgets the producers' sequence numbers when killed
	Apache = "apache" // Apache Kafka in KRaft mode, one Java process per broker
)

// Options say what [StartStores] starts. The zero value starts both stores, with one kfake broker, on free ports.
type Options struct {
	Dir     string      // data directory; empty = a new one, removed by Close
	Only    string      // "clickhouse" or "kafka"; empty = both
	Binary  string      // devstores; empty = built from the module at or above the working directory
	Stderr  io.Writer   // receives the progress of devstores, one write at a time; nil = os.Stderr
	OnDeath unix.Signal // sent to the stores if this process dies; 0 = SIGKILL

	ClickHouseTCP  int // port, 0 = a free one
	ClickHouseHTTP int // port, 0 = a free one

	Broker      string            // Kfake or Apache; empty = Kfake
	Brokers     int               // number of brokers; 0 = 1
	Node        int               // run only this broker, counted from 1, with the ports of all; 0 = all (Apache only)
	KafkaPorts  []int             // one per broker, 0 = a free one
	Controllers []int             // ports of the controllers, with Node
	Advertised  []string          // host:port that each broker advertises, such as a proxy's; empty = its own (Apache only)
	Partitions  int               // of automatically created topics; 0 = 6
	Topics      map[string]int    // topics to create: name → partitions
	Properties  map[string]string // broker properties, such as min.insync.replicas
}

// Stores are the running stores; one that was not requested is nil.
type Stores struct {
	ClickHouse *ClickHouse
	Kafka      *Kafka
	temporary  string // directory to remove, or empty
}

type (
	// ClickHouseInfo is what devstores announces about ClickHouse.
	ClickHouseInfo struct {
		TCP     string `json:"tcp"`  // host:port of the native protocol
		HTTP    string `json:"http"` // host:port
		Kind    string `json:"kind"` // "clickhouse-server" or "libchdb"
		Version string `json:"version"`
		PIDs    []int  `json:"pids"`
	}
	// KafkaInfo is what devstores announces about Kafka.
	KafkaInfo struct {
		Brokers []string `json:"brokers"` // host:port, in the order of node ids
		Kind    string   `json:"kind"`    // Kfake or Apache
		Version string   `json:"version"`
		PIDs    []int    `json:"pids"` // one per broker; kfake's brokers share one process
	}
)

// Announcement is the line of JSON that devstores prints when the stores are ready.
type Announcement struct {
	ClickHouse *ClickHouseInfo `json:"clickhouse,omitempty"`
	Kafka      *KafkaInfo      `json:"kafka,omitempty"`
}

// ClickHouse is a running ClickHouse. Users: "default" without a password, "trafficd" with the password "trafficd".
// system.part_log counts the rows of every insert since the last start, whatever the table does with them (`SYSTEM FLUSH
// LOGS` writes what is pending).
type ClickHouse struct {
	*store
	TCP, HTTP, Kind, Version string // as in ClickHouseInfo
}

// Kafka is a running cluster.
type Kafka struct {
	*store
	Brokers       []string
	Kind, Version string
}

// StartStores starts the stores and returns when they are ready. ctx bounds the start only; [Stores.Close] stops them.
func StartStores(ctx context.Context, opts Options) (s *Stores, err error) {
	s = &Stores{}
	defer func() {
		if err != nil {
			_ = s.Close()
		}
	}()
	if opts.Dir == "" {
		if s.temporary, err = os.MkdirTemp("", "devstores-"); err != nil {
			return s, fmt.Errorf("cannot create a directory for the stores: %w", err)
		}
		opts.Dir = s.temporary
	}
	if opts.Binary == "" {
		if opts.Binary, err = BuildDevstores(ctx); err != nil {
			return s, err
		}
	}
	if opts.Stderr == nil {
		opts.Stderr = os.Stderr
	}
	opts.Stderr = &lockedWriter{out: opts.Stderr}
	if opts.Only != "kafka" {
		if s.ClickHouse, err = startClickHouse(ctx, opts); err != nil {
			return s, err
		}
	}
	if opts.Only != "clickhouse" {
		s.Kafka, err = startKafka(ctx, opts)
	}
	return s, err
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

func startClickHouse(ctx context.Context, opts Options) (*ClickHouse, error) {
	s := newStore(opts, "clickhouse")
	a, err := s.start(ctx, "--clickhouse-tcp", strconv.Itoa(opts.ClickHouseTCP), "--clickhouse-http", strconv.Itoa(opts.ClickHouseHTTP))
	if err != nil {
		return nil, err
	}
	info := a.ClickHouse
	s.args = append(s.args, "--clickhouse-tcp", port(info.TCP), "--clickhouse-http", port(info.HTTP))
	return &ClickHouse{s, info.TCP, info.HTTP, info.Kind, info.Version}, nil
}

func startKafka(ctx context.Context, opts Options) (*Kafka, error) {
	s := newStore(opts, "kafka")
	for flag, value := range map[string]int{"--brokers": opts.Brokers, "--partitions": opts.Partitions, "--node": opts.Node} {
		if value != 0 {
			s.args = append(s.args, flag, strconv.Itoa(value))
		}
	}
	if opts.Broker != "" {
		s.args = append(s.args, "--broker", opts.Broker)
	}
	if opts.Node > 0 {
		s.args = append(s.args, "--controllers", joinInts(opts.Controllers))
	}
	if len(opts.Advertised) > 0 {
		s.args = append(s.args, "--advertise", strings.Join(opts.Advertised, ","))
	}
	for topic, partitions := range opts.Topics {
		s.args = append(s.args, "--topic", topic+":"+strconv.Itoa(partitions))
	}
	for key, value := range opts.Properties {
		s.args = append(s.args, "--set", key+"="+value)
	}
	ports := "0"
	if len(opts.KafkaPorts) > 0 {
		ports = joinInts(opts.KafkaPorts)
	}
	a, err := s.start(ctx, "--kafka", ports)
	if err != nil {
		return nil, err
	}
	if opts.Node == 0 { // later starts use the ports that were picked
		var picked []string
		for _, broker := range a.Kafka.Brokers {
			picked = append(picked, port(broker))
		}
		ports = strings.Join(picked, ",")
	}
	s.args = append(s.args, "--kafka", ports)
	return &Kafka{s, a.Kafka.Brokers, a.Kafka.Kind, a.Kafka.Version}, nil
}

func port(address string) string { return address[strings.LastIndexByte(address, ':')+1:] }

func joinInts(ports []int) string {
	var all []string
	for _, p := range ports {
		all = append(all, strconv.Itoa(p))
	}
	return strings.Join(all, ",")
}

// lockedWriter lets several stores write to one writer.
type lockedWriter struct {
	mu  sync.Mutex
	out io.Writer
}

func (w *lockedWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.out.Write(p)
}

// storeStopLimit is more than devstores itself gives a store to stop.
const storeStopLimit = 30 * time.Second

// store is one store in its own devstores process. Its methods may be called from several goroutines.
type store struct {
	binary  string
	args    []string // the same at every start: directory, store, ports
	stderr  io.Writer
	onDeath unix.Signal

	mu   sync.Mutex
	proc *Process // nil before the first start
	pids []int
}

func newStore(opts Options, name string) *store {
	s := &store{binary: opts.Binary, args: []string{"--dir", opts.Dir, "--only", name}, stderr: opts.Stderr, onDeath: opts.OnDeath}
	if s.onDeath == 0 {
		s.onDeath = unix.SIGKILL
	}
	return s
}

// start runs devstores and waits for its announcement.
func (s *store) start(ctx context.Context, args ...string) (a Announcement, err error) {
	stdout, theirs, err := os.Pipe()
	if err != nil {
		return a, fmt.Errorf("cannot start a store: %w", err)
	}
	defer stdout.Close()
	last := &tail{}
	cmd := exec.Command(s.binary, append(args, s.args...)...)
	cmd.Stdout = theirs
	cmd.Stderr = io.MultiWriter(s.stderr, last) // a writer, not a file, so that Done waits for the whole tree: see LeashFD
	s.proc, err = StartGroup(cmd, s.onDeath)
	theirs.Close()
	if err != nil {
		return a, err
	}
	defer context.AfterFunc(ctx, func() { _ = s.proc.Kill() })()
	line, err := bufio.NewReader(stdout).ReadBytes('\n')
	if err != nil { // it exited before it was ready
		_ = s.proc.Stop(storeStopLimit)
		return a, fmt.Errorf("cannot start a store with %s: %s", strings.Join(s.args, " "), last)
	}
	if err := json.Unmarshal(line, &a); err != nil {
		_ = s.proc.Kill()
		return a, fmt.Errorf("cannot parse the announcement of devstores, %q: %w", line, err)
	}
	if a.ClickHouse != nil {
		s.pids = a.ClickHouse.PIDs
	} else if a.Kafka != nil {
		s.pids = a.Kafka.PIDs
	}
	return a, nil
}

// Kill sends SIGKILL to the store and its children and returns when all have exited.
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

// Restart stops the store if it runs, starts it on the same ports and directory, and returns when it is ready.
func (s *store) Restart() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.proc.Stop(storeStopLimit); err != nil {
		return err
	}
	_, err := s.start(context.Background())
	return err
}

// Pause stops every process of the store with SIGSTOP: connections stay open and nothing answers. It returns when all
// threads have stopped; on a busy machine some may run for a while after the signal.
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

// running reports whether a thread of the process may run.
func running(pid int) bool {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid)) // the pattern is valid
	return slices.ContainsFunc(threads, func(file string) bool {
		stat, err := os.ReadFile(file)
		_, after, _ := strings.Cut(string(stat), ") ")
		return err == nil && !strings.ContainsAny(after[:min(1, len(after))], "TtZX")
	})
}

// Resume continues a paused store.
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

// Done is closed when the store's current process has exited.
func (s *store) Done() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc.Done()
}

// PIDs returns the processes that serve: ClickHouse's, or one per broker. They change with every start.
func (s *store) PIDs() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pids
}

// tail keeps the end of what devstores prints, for an error message.
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

// Do runs one statement as the user default and returns the response (tab-separated unless the statement names a format)
// without its last line break.
func (c *ClickHouse) Do(ctx context.Context, sql string) (string, error) {
	body, err := QueryClickHouse(ctx, c.HTTP, sql)
	return strings.TrimSuffix(body, "\n"), err
}

// QueryClickHouse runs one statement over HTTP as the user default. The error contains ClickHouse's message.
func QueryClickHouse(ctx context.Context, address, sql string) (string, error) {
	// With wait_end_of_query an error is reported by the status, not in the middle of the body.
	target := url.URL{Scheme: "http", Host: address, Path: "/", RawQuery: "wait_end_of_query=1"}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, target.String(), strings.NewReader(sql))
	if err != nil {
		return "", fmt.Errorf("cannot query ClickHouse: %w", err)
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}} // leaves no goroutine behind
	res, err := client.Do(req)
	if err != nil {
		return "", fmt.Errorf("cannot query ClickHouse: %w", err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return "", fmt.Errorf("cannot read ClickHouse's response: %w", err)
	}
	if res.StatusCode != http.StatusOK {
		return "", fmt.Errorf("cannot run %q: %s", sql, strings.TrimSpace(string(body)))
	}
	return string(body), nil
}

// CreateTopic creates a topic and returns when every partition has a leader. An existing topic with the same number of
// partitions is not an error.
func (k *Kafka) CreateTopic(ctx context.Context, topic string, partitions int) error {
	return CreateTopic(ctx, k.Brokers, topic, partitions, nil)
}

// Read returns everything that a topic holds, including uncommitted records, ordered by partition and offset.
func (k *Kafka) Read(ctx context.Context, topic string) ([]Record, error) {
	return ReadTopic(ctx, k.Brokers, topic)
}

// Package kafka runs a Kafka-protocol broker on loopback: kfake, which starts immediately, or Apache Kafka, the reference
// wherever idempotence and broker crashes matter.
package kafka

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"trafficd/cmd/internal/launch"
)

// startLimit bounds the time to the first response. Apache Kafka takes 2–4 s, longer when it recovers its logs after a kill
// on a busy machine.
const startLimit = 2 * time.Minute

// Kinds are the values of Config.Kind.
var Kinds = []string{launch.Kfake, launch.Apache}

// Config describes the cluster to run.
type Config struct {
	Dir         string            // data directory, kept across restarts; each kind has its own subdirectory
	Kind        string            // one of Kinds
	Brokers     int               // number of brokers
	Node        int               // run only this broker, counted from 1; 0 = all (Apache only)
	Ports       []int             // one per broker; 0 or missing = pick a free one; all are required with Node
	Controllers []int             // controller ports, required with Node; otherwise free ones are picked
	Advertised  []string          // host:port that each broker advertises; empty = where it listens
	Partitions  int               // for topics created without a partition count
	Topics      map[string]int    // topics to create: name → partitions
	Properties  map[string]string // broker properties; they override the defaults
	Progress    io.Writer         // receives human-readable progress
}

// Server is a running cluster.
type Server struct {
	launch.KafkaInfo
	stop   func() error
	unlock func()
}

// Start starts a cluster and returns when every broker answers and the topics exist. failed is called if a broker exits
// without Stop; it should cancel ctx, so that Start does not wait for a dead process.
func Start(ctx context.Context, cfg Config, failed func(error)) (s *Server, err error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if cfg.Dir, err = makeHome(cfg); err != nil {
		return nil, err
	}
	unlock, err := launch.TryLock(filepath.Join(cfg.Dir, cfg.lock()))
	if err != nil {
		return nil, fmt.Errorf("cannot use directory %s (is another Kafka running in it?): %w", cfg.Dir, err)
	}
	if s, err = cfg.launch(ctx, failed); err != nil {
		unlock()
		return nil, err
	}
	s.unlock = unlock
	if err := s.prepare(ctx, cfg); err != nil {
		s.Stop()
		return nil, err
	}
	return s, nil
}

func (cfg Config) launch(ctx context.Context, failed func(error)) (s *Server, err error) {
	if cfg.Ports, err = pickPorts(cfg); err != nil {
		return nil, err
	}
	if cfg.Kind == launch.Apache {
		return startApache(ctx, cfg, failed)
	}
	return startFake(cfg)
}

// prepare waits for the brokers and creates the topics.
func (s *Server) prepare(ctx context.Context, cfg Config) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startLimit, fmt.Errorf("no response within %v", startLimit))
	defer cancel()
	if err := launch.AwaitBrokers(ctx, s.Brokers); err != nil {
		return fmt.Errorf("%w; see the logs in %s", err, cfg.Dir)
	}
	for topic, partitions := range cfg.Topics {
		if err := launch.CreateTopic(ctx, s.Brokers, topic, partitions, nil); err != nil {
			return err
		}
	}
	return nil
}

// Stop stops the cluster cleanly.
func (s *Server) Stop() error {
	defer s.unlock()
	return s.stop()
}

func (cfg Config) validate() error {
	switch {
	case cfg.Kind != launch.Kfake && cfg.Kind != launch.Apache:
		return fmt.Errorf("unknown broker kind %q: must be one of %v", cfg.Kind, Kinds)
	case cfg.Brokers < 1 || cfg.Brokers > 9:
		return fmt.Errorf("cannot run %d brokers: must be 1 to 9", cfg.Brokers)
	case len(cfg.Ports) > cfg.Brokers:
		return fmt.Errorf("cannot use %d ports for %d brokers: must be at most one per broker", len(cfg.Ports), cfg.Brokers)
	case len(cfg.Advertised) > 0 && len(cfg.Advertised) != cfg.Brokers:
		return fmt.Errorf("cannot advertise %d addresses for %d brokers: must be one per broker, or none", len(cfg.Advertised), cfg.Brokers)
	case len(cfg.Advertised) > 0 && cfg.Kind == launch.Kfake:
		return fmt.Errorf("cannot advertise another address with %s: use broker kind %s", launch.Kfake, launch.Apache)
	case cfg.Partitions < 1:
		return fmt.Errorf("cannot create topics with %d partitions: must be at least 1", cfg.Partitions)
	case cfg.Node == 0:
		return nil
	case cfg.Node < 0 || cfg.Node > cfg.Brokers || cfg.Kind == launch.Kfake:
		return fmt.Errorf("cannot run node %d of %d: must be 1 to %d, with broker kind %s", cfg.Node, cfg.Brokers, cfg.Brokers, launch.Apache)
	case len(cfg.Ports) != cfg.Brokers || len(cfg.Controllers) != cfg.Brokers || slices.Contains(cfg.Ports, 0) || slices.Contains(cfg.Controllers, 0):
		return fmt.Errorf("cannot run node %d of %d without the others' ports: set the port of every broker and every controller", cfg.Node, cfg.Brokers)
	}
	return nil
}

// lock returns the name of the lock file: one per cluster, or one per node that is run separately.
func (cfg Config) lock() string {
	if cfg.Node > 0 {
		return fmt.Sprint("lock-", cfg.Node)
	}
	return "lock"
}

// nodes returns the nodes that this process runs.
func (cfg Config) nodes() (list []int) {
	for node := 1; node <= cfg.Brokers; node++ {
		if cfg.Node == 0 || cfg.Node == node {
			list = append(list, node)
		}
	}
	return list
}

// makeHome creates a separate directory for each kind: kfake and Apache Kafka must never share files.
func makeHome(cfg Config) (string, error) {
	dir, err := filepath.Abs(filepath.Join(cfg.Dir, cfg.Kind))
	if err != nil {
		return "", fmt.Errorf("cannot create Kafka's directory: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("cannot create Kafka's directory: %w", err)
	}
	return dir, nil
}

func pickPorts(cfg Config) ([]int, error) {
	if cfg.Node > 0 {
		_, err := launch.PickPort(fmt.Sprintf("Kafka broker %d", cfg.Node), cfg.Ports[cfg.Node-1])
		return cfg.Ports, err
	}
	var ports []int
	for i := range cfg.Brokers {
		wanted := 0
		if i < len(cfg.Ports) {
			wanted = cfg.Ports[i]
		}
		port, err := launch.PickPort(fmt.Sprintf("Kafka broker %d", i+1), wanted)
		if err != nil {
			return nil, err
		}
		ports = append(ports, port)
	}
	return ports, nil
}

func addresses(ports []int) []string {
	var all []string
	for _, port := range ports {
		all = append(all, launch.Address(port))
	}
	return all
}

const fakeModule = "github.com/twmb/franz-go/pkg/kfake"

// startFake runs kfake in this process. Every write is synced, so records survive a kill; producers' sequence numbers do not.
func startFake(cfg Config) (*Server, error) {
	log, err := os.OpenFile(filepath.Join(cfg.Dir, "kfake.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("cannot open kfake's log: %w", err)
	}
	cluster, err := kfake.NewCluster(
		kfake.Ports(cfg.Ports...),
		kfake.DataDir(filepath.Join(cfg.Dir, "data")),
		kfake.SyncWrites(),
		kfake.AllowAutoTopicCreation(),
		kfake.DefaultNumPartitions(cfg.Partitions),
		kfake.BrokerConfigs(cfg.Properties),
		kfake.WithLogger(kfake.BasicLogger(log, kfake.LogLevelWarn)),
	)
	if err != nil {
		log.Close()
		return nil, fmt.Errorf("cannot start kfake in %s: %w", cfg.Dir, err)
	}
	stop := func() error {
		cluster.Close()
		return log.Close()
	}
	info := launch.KafkaInfo{Brokers: addresses(cfg.Ports), Kind: launch.Kfake, Version: fakeVersion(), PIDs: []int{os.Getpid()}}
	return &Server{KafkaInfo: info, stop: stop}, nil
}

// fakeVersion returns the version of kfake that this program was built with.
func fakeVersion() string {
	if build, ok := debug.ReadBuildInfo(); ok {
		for _, module := range build.Deps {
			if module.Path == fakeModule {
				return module.Version
			}
		}
	}
	return "unknown"
}

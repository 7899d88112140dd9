// Package kafka runs something that speaks the Kafka protocol on loopback: kfake, which starts at once, or Apache Kafka, which is
// the judge wherever idempotence and the crash of a broker matter.
package kafka

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"trafficd/cmd/devstores/internal/filelock"
	"trafficd/cmd/devstores/internal/loopback"
)

// The kinds of broker.
const (
	// KindFake is franz-go's kfake inside devstores itself. It forgets the producers' sequence numbers when it is killed.
	KindFake = "kfake"
	// KindApache is Apache Kafka in KRaft mode, one Java process for each broker.
	KindApache = "apache"
)

// startLimit: Apache Kafka answers after 2–4 s; recovery of its logs after a kill on a busy machine takes longer.
const startLimit = 2 * time.Minute

// Kinds are the values of Config.Kind.
var Kinds = []string{KindFake, KindApache}

// Config says what cluster to run.
type Config struct {
	Dir         string            // survives a restart; each kind has a folder of its own in it
	Kind        string            // one of Kinds
	Brokers     int               // how many
	Node        int               // run only this one of them, counted from 1; 0 = all (Apache only)
	Ports       []int             // one for each broker, 0 = a free one; fewer than Brokers are followed by free ones; with Node all of them
	Controllers []int             // ports of the controllers, with Node; else free ones
	Advertised  []string          // host:port that each broker tells its clients; empty = where it listens
	Partitions  int               // of topics that are created without saying how many
	Topics      map[string]int    // made at the start where they do not exist: name → partitions
	Properties  map[string]string // broker properties over ours
	Progress    io.Writer         // lines for a human
}

// Info is what a client has to know of a running cluster.
type Info struct {
	Brokers []string `json:"brokers"` // host:port, in the order of node ids
	Kind    string   `json:"kind"`
	Version string   `json:"version"`
	PIDs    []int    `json:"pids"` // one for each broker; kfake's brokers are all in one process
}

// Server is a running cluster.
type Server struct {
	Info
	stop   func() error
	unlock func()
}

// Start brings up a cluster and returns when every broker answers and the topics exist. failed is called if a broker ends
// without Stop; it should end ctx, so that Start does not wait for the dead.
func Start(ctx context.Context, cfg Config, failed func(error)) (s *Server, err error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if cfg.Dir, err = makeHome(cfg); err != nil {
		return nil, err
	}
	unlock, err := filelock.Try(filepath.Join(cfg.Dir, cfg.lock()))
	if err != nil {
		return nil, fmt.Errorf("cannot use the folder %s, is a Kafka running in it? %w", cfg.Dir, err)
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
	if cfg.Kind == KindApache {
		return startApache(ctx, cfg, failed)
	}
	return startFake(cfg)
}

// prepare waits for the brokers and makes the topics.
func (s *Server) prepare(ctx context.Context, cfg Config) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startLimit, fmt.Errorf("no answer within %v", startLimit))
	defer cancel()
	if err := AwaitBrokers(ctx, s.Brokers); err != nil {
		return fmt.Errorf("%w; see the logs in %s", err, cfg.Dir)
	}
	for topic, partitions := range cfg.Topics {
		if err := CreateTopic(ctx, s.Brokers, topic, partitions); err != nil {
			return err
		}
	}
	return nil
}

// Stop ends the cluster cleanly.
func (s *Server) Stop() error {
	defer s.unlock()
	return s.stop()
}

func (cfg Config) validate() error {
	switch {
	case cfg.Kind != KindFake && cfg.Kind != KindApache:
		return fmt.Errorf("cannot run a broker of kind %q: give one of %v", cfg.Kind, Kinds)
	case cfg.Brokers < 1 || cfg.Brokers > 9:
		return fmt.Errorf("cannot run %d brokers: give 1 to 9, a developer's machine holds no more", cfg.Brokers)
	case len(cfg.Ports) > cfg.Brokers:
		return fmt.Errorf("cannot use %d ports for %d brokers: give no more ports than brokers", len(cfg.Ports), cfg.Brokers)
	case len(cfg.Advertised) > 0 && len(cfg.Advertised) != cfg.Brokers:
		return fmt.Errorf("cannot advertise %d addresses for %d brokers: give one for each, or none", len(cfg.Advertised), cfg.Brokers)
	case len(cfg.Advertised) > 0 && cfg.Kind == KindFake:
		return fmt.Errorf("cannot advertise another address with %s: take the broker %s", KindFake, KindApache)
	case cfg.Partitions < 1:
		return fmt.Errorf("cannot create topics of %d partitions: give 1 or more", cfg.Partitions)
	case cfg.Node == 0:
		return nil
	case cfg.Node < 0 || cfg.Node > cfg.Brokers || cfg.Kind == KindFake:
		return fmt.Errorf("cannot run node %d of %d: give one of them, of the broker %s", cfg.Node, cfg.Brokers, KindApache)
	case len(cfg.Ports) != cfg.Brokers || len(cfg.Controllers) != cfg.Brokers || slices.Contains(cfg.Ports, 0) || slices.Contains(cfg.Controllers, 0):
		return fmt.Errorf("cannot run node %d of %d without the others' ports: give one port for each broker and each controller", cfg.Node, cfg.Brokers)
	}
	return nil
}

// lock is the file that tells one cluster from another in the same folder, or
// one node from another.
func (cfg Config) lock() string {
	if cfg.Node > 0 {
		return fmt.Sprint("lock-", cfg.Node)
	}
	return "lock"
}

// nodes are those that this process runs.
func (cfg Config) nodes() (list []int) {
	for node := 1; node <= cfg.Brokers; node++ {
		if cfg.Node == 0 || cfg.Node == node {
			list = append(list, node)
		}
	}
	return list
}

// makeHome makes the folder of the kind: the two must never meet each other's files.
func makeHome(cfg Config) (string, error) {
	dir, err := filepath.Abs(filepath.Join(cfg.Dir, cfg.Kind))
	if err != nil {
		return "", fmt.Errorf("cannot make Kafka's folder: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("cannot make Kafka's folder: %w", err)
	}
	return dir, nil
}

func pickPorts(cfg Config) ([]int, error) {
	if cfg.Node > 0 {
		_, err := loopback.Pick(fmt.Sprintf("Kafka broker %d", cfg.Node), cfg.Ports[cfg.Node-1])
		return cfg.Ports, err
	}
	var ports []int
	for i := range cfg.Brokers {
		wanted := 0
		if i < len(cfg.Ports) {
			wanted = cfg.Ports[i]
		}
		port, err := loopback.Pick(fmt.Sprintf("Kafka broker %d", i+1), wanted)
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
		all = append(all, loopback.Address(port))
	}
	return all
}

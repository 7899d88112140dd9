package stores

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"

	"trafficd/cmd/devstores/internal/kafka"
)

// The kinds of broker, for [Options] and TRAFFICD_TEST_KAFKA.
const (
	Kfake  = kafka.KindFake
	Apache = kafka.KindApache
)

// Options say what [Launch] starts. The zero value starts both stores, with one kfake broker, on free ports.
type Options struct {
	Dir    string    // folder of the data; empty = a new one, removed when the stores close
	Only   string    // "clickhouse" or "kafka"; empty = both
	Binary string    // a built devstores; empty = it is built from the module at or above the working directory
	Stderr io.Writer // gets the progress of devstores, one write at a time; nil = os.Stderr

	ClickHouseTCP  int // port, 0 = a free one
	ClickHouseHTTP int // port, 0 = a free one

	Broker      string            // Kfake or Apache; empty = Kfake
	Brokers     int               // how many; 0 = 1
	Node        int               // run only this one of the brokers, counted from 1, with the ports of all; 0 = all (Apache only)
	KafkaPorts  []int             // one for each broker, 0 = a free one
	Controllers []int             // ports of the controllers, with Node
	Advertised  []string          // host:port that each broker tells its clients, such as a proxy's; empty = where it listens (Apache only)
	Partitions  int               // of topics that come into being by use; 0 = 6
	Topics      map[string]int    // topics made at the start: name → partitions
	Properties  map[string]string // broker properties, such as min.insync.replicas
}

// Stores are the running stores; one that was not asked for is nil.
type Stores struct {
	ClickHouse *ClickHouse
	Kafka      *Kafka
	temporary  string // a folder of ours, or empty
}

// Launch starts the stores and returns when they are ready. ctx bounds the start only; [Stores.Close] ends them.
func Launch(ctx context.Context, opts Options) (s *Stores, err error) {
	s = &Stores{}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	if opts.Dir == "" {
		if s.temporary, err = os.MkdirTemp("", "devstores-"); err != nil {
			return s, fmt.Errorf("cannot make a folder for the stores: %w", err)
		}
		opts.Dir = s.temporary
	}
	if opts.Binary == "" {
		if opts.Binary, err = Build(ctx); err != nil {
			return s, err
		}
	}
	if opts.Stderr == nil {
		opts.Stderr = os.Stderr
	}
	opts.Stderr = &serial{out: opts.Stderr}
	if opts.Only != "kafka" {
		if s.ClickHouse, err = launchClickHouse(ctx, opts); err != nil {
			return s, err
		}
	}
	if opts.Only != "clickhouse" {
		s.Kafka, err = launchKafka(ctx, opts)
	}
	return s, err
}

// Close stops what runs and removes the folder if Launch made it.
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

func launchClickHouse(ctx context.Context, opts Options) (*ClickHouse, error) {
	d := newDaemon(opts, "clickhouse")
	address, err := d.start(ctx, "--clickhouse-tcp", strconv.Itoa(opts.ClickHouseTCP), "--clickhouse-http", strconv.Itoa(opts.ClickHouseHTTP))
	if err != nil {
		return nil, err
	}
	found := address.ClickHouse
	d.pin("--clickhouse-tcp", port(found.TCP), "--clickhouse-http", port(found.HTTP))
	return &ClickHouse{daemon: d, TCP: found.TCP, HTTP: found.HTTP, Kind: found.Kind, Version: found.Version}, nil
}

func launchKafka(ctx context.Context, opts Options) (*Kafka, error) {
	d := newDaemon(opts, "kafka")
	d.pin(brokerFlags(opts)...)
	address, err := d.start(ctx, "--kafka", joinInts(opts.KafkaPorts))
	if err != nil {
		return nil, err
	}
	found := address.Kafka
	d.pin("--kafka", pinned(opts, found.Brokers))
	return &Kafka{daemon: d, Brokers: found.Brokers, Kind: found.Kind, Version: found.Version}, nil
}

// pinned are the ports of every later start: those that were found, or the
// ports of all brokers where only one of them runs here.
func pinned(opts Options, brokers []string) string {
	if opts.Node > 0 {
		return joinInts(opts.KafkaPorts)
	}
	var ports []string
	for _, broker := range brokers {
		ports = append(ports, port(broker))
	}
	return strings.Join(ports, ",")
}

func brokerFlags(opts Options) []string {
	flags := []string{
		"--broker", orElse(opts.Broker, Kfake),
		"--brokers", strconv.Itoa(orElse(opts.Brokers, 1)),
		"--partitions", strconv.Itoa(orElse(opts.Partitions, 6)),
	}
	if opts.Node > 0 {
		flags = append(flags, "--node", strconv.Itoa(opts.Node), "--controllers", joinInts(opts.Controllers))
	}
	if len(opts.Advertised) > 0 {
		flags = append(flags, "--advertise", strings.Join(opts.Advertised, ","))
	}
	for topic, partitions := range opts.Topics {
		flags = append(flags, "--topic", topic+":"+strconv.Itoa(partitions))
	}
	for key, value := range opts.Properties {
		flags = append(flags, "--set", key+"="+value)
	}
	return flags
}

func orElse[T comparable](value, otherwise T) T {
	var zero T
	if value == zero {
		return otherwise
	}
	return value
}

func port(address string) string {
	return address[strings.LastIndexByte(address, ':')+1:]
}

// joinInts writes ports as the flag wants them; none means a free one.
func joinInts(ports []int) string {
	if len(ports) == 0 {
		return "0"
	}
	var all []string
	for _, p := range ports {
		all = append(all, strconv.Itoa(p))
	}
	return strings.Join(all, ",")
}

// serial lets several stores write to one writer.
type serial struct {
	mu  sync.Mutex
	out io.Writer
}

func (s *serial) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out.Write(p)
}

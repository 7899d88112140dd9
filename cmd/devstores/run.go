package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"trafficd/cmd/devstores/internal/clickhouse"
	"trafficd/cmd/devstores/internal/kafka"
	"trafficd/cmd/internal/launch"
)

// run starts the stores, announces them on stdout and waits. It returns nil if it was asked to stop.
func run(parent context.Context, opts options, stdout, stderr io.Writer) error {
	if err := opts.validate(); err != nil {
		return err
	}
	ctx, fail := context.WithCancelCause(parent)
	defer fail(nil)
	if opts.withParent {
		if err := endWithParent(func() { fail(errParentGone) }); err != nil {
			return err
		}
	}
	var running stores
	err := running.start(ctx, opts, fail, stderr)
	if err == nil {
		err = json.NewEncoder(stdout).Encode(running.Announcement)
	}
	if err == nil {
		<-ctx.Done()
		err = context.Cause(ctx)
	}
	if parent.Err() != nil || errors.Is(err, errParentGone) {
		err = nil // it was asked to stop
	}
	fmt.Fprintln(stderr, "stopping")
	err = errors.Join(err, running.stop())
	fmt.Fprintln(stderr, "stopped")
	return err
}

// stores are the stores started so far.
type stores struct {
	launch.Announcement
	stops []func() error
}

func (s *stores) start(ctx context.Context, opts options, fail func(error), log io.Writer) error {
	if opts.only != "kafka" {
		begin := time.Now()
		server, err := clickhouse.Start(ctx, clickhouse.Config{
			Dir: filepath.Join(opts.dir, "clickhouse"), TCP: opts.clickhouseTCP, HTTP: opts.clickhouseHTTP,
			Kind: opts.clickhouseKind, Progress: log,
		}, fail)
		if err != nil {
			return err
		}
		s.ClickHouse, s.stops = &server.ClickHouseInfo, append(s.stops, server.Stop)
		fmt.Fprintf(log, "ClickHouse %s (%s) ready in %.2f s: native %s, HTTP %s\n",
			server.Version, server.Kind, time.Since(begin).Seconds(), server.TCP, server.HTTP)
	}
	if opts.only == "clickhouse" {
		return nil
	}
	begin := time.Now()
	topics, err := opts.kafkaTopics()
	if err != nil {
		return err
	}
	properties, err := opts.kafkaProperties()
	if err != nil {
		return err
	}
	server, err := kafka.Start(ctx, kafka.Config{
		Dir: filepath.Join(opts.dir, "kafka"), Kind: opts.broker, Brokers: opts.brokers, Node: opts.node,
		Ports: opts.kafkaPorts, Controllers: opts.controllers, Advertised: opts.advertised,
		Partitions: opts.partitions, Topics: topics, Properties: properties, Progress: log,
	}, fail)
	if err != nil {
		return err
	}
	s.Kafka, s.stops = &server.KafkaInfo, append(s.stops, server.Stop)
	fmt.Fprintf(log, "Kafka %s (%s) ready in %.2f s: %v\n", server.Version, server.Kind, time.Since(begin).Seconds(), server.Brokers)
	return nil
}

// stop stops everything in reverse order.
func (s *stores) stop() error {
	var errs []error
	for i := len(s.stops) - 1; i >= 0; i-- {
		errs = append(errs, s.stops[i]())
	}
	return errors.Join(errs...)
}

// options is the command line.
type options struct {
	dir            string
	only           string
	withParent     bool
	clickhouseTCP  int
	clickhouseHTTP int
	clickhouseKind string
	broker         string
	brokers        int
	node           int
	kafkaPorts     []int
	controllers    []int    // ports
	advertised     []string // host:port
	partitions     int
	topics         []string // name:partitions
	properties     []string // key=value
}

func defaultOptions() *options {
	return &options{
		dir:            ".run/devstores",
		withParent:     true,
		clickhouseTCP:  9000,
		clickhouseHTTP: 8123,
		clickhouseKind: clickhouse.KindAuto,
		broker:         launch.Kfake,
		brokers:        1,
		kafkaPorts:     []int{9092},
		partitions:     6,
	}
}

func (o *options) bind(flags *pflag.FlagSet) {
	flags.SortFlags = false
	flags.StringVar(&o.dir, "dir", o.dir, "directory of all data and logs, kept across restarts")
	flags.StringVar(&o.only, "only", o.only, "start one store: clickhouse or kafka")
	flags.IntVar(&o.clickhouseTCP, "clickhouse-tcp", o.clickhouseTCP, "port of ClickHouse's native protocol, 0 = a free one")
	flags.IntVar(&o.clickhouseHTTP, "clickhouse-http", o.clickhouseHTTP, "port of ClickHouse over HTTP, 0 = a free one")
	flags.StringVar(&o.clickhouseKind, "clickhouse-kind", o.clickhouseKind, "which ClickHouse: "+strings.Join(clickhouse.Kinds, ", "))
	flags.StringVar(&o.broker, "broker", o.broker, "which broker: "+strings.Join(kafka.Kinds, ", "))
	flags.IntVar(&o.brokers, "brokers", o.brokers, "number of brokers")
	flags.IntVar(&o.node, "node", 0, "run only this broker, counted from 1; the others run elsewhere with the same --kafka and --controllers (apache only)")
	flags.IntSliceVar(&o.controllers, "controllers", nil, "port of each controller, with --node")
	flags.IntSliceVar(&o.kafkaPorts, "kafka", o.kafkaPorts, "port of each broker, 0 = a free one; missing ones are free ones")
	flags.StringSliceVar(&o.advertised, "advertise", nil, "host:port that each broker advertises, such as a proxy's; default is where it listens (apache only)")
	flags.IntVar(&o.partitions, "partitions", o.partitions, "partitions of automatically created topics")
	flags.StringArrayVar(&o.topics, "topic", nil, "create this topic, as name:partitions; repeatable")
	flags.StringArrayVar(&o.properties, "set", nil, "set a broker property, as key=value; repeatable")
	flags.BoolVar(&o.withParent, "with-parent", o.withParent, "exit when the parent dies or a pipe on standard input closes")
}

func (o options) validate() error {
	if !slices.Contains([]string{"", "clickhouse", "kafka"}, o.only) {
		return fmt.Errorf("--only %q: must be clickhouse or kafka", o.only)
	}
	for _, port := range append([]int{o.clickhouseTCP, o.clickhouseHTTP}, o.kafkaPorts...) {
		if port < 0 || port > 65535 {
			return fmt.Errorf("port %d: must be 1 to 65535, or 0 for a free one", port)
		}
	}
	return nil
}

// kafkaTopics parses --topic.
func (o options) kafkaTopics() (map[string]int, error) {
	topics := map[string]int{}
	for _, topic := range o.topics {
		name, count, _ := strings.Cut(topic, ":")
		partitions, err := strconv.Atoi(count)
		if name == "" || err != nil || partitions < 1 {
			return nil, fmt.Errorf("--topic %q: must be name:partitions, such as measurements:6", topic)
		}
		topics[name] = partitions
	}
	return topics, nil
}

// kafkaProperties parses --set.
func (o options) kafkaProperties() (map[string]string, error) {
	properties := map[string]string{}
	for _, property := range o.properties {
		key, value, ok := strings.Cut(property, "=")
		if !ok || key == "" {
			return nil, fmt.Errorf("--set %q: must be key=value, such as min.insync.replicas=2", property)
		}
		properties[key] = value
	}
	return properties, nil
}

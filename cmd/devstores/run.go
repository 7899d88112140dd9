package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"trafficd/cmd/devstores/internal/clickhouse"
	"trafficd/cmd/devstores/internal/kafka"
)

// ready is the line that says where the stores are.
type ready struct {
	ClickHouse *clickhouse.Info `json:"clickhouse,omitempty"`
	Kafka      *kafka.Info      `json:"kafka,omitempty"`
}

// run starts the stores, announces them on stdout and waits. It returns nil if it was asked to stop, else what went wrong.
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
		err = json.NewEncoder(stdout).Encode(running.ready)
	}
	if err == nil {
		<-ctx.Done()
		err = context.Cause(ctx)
	}
	fmt.Fprintln(stderr, "stopping")
	err = errors.Join(asked(parent, err), running.stop())
	fmt.Fprintln(stderr, "stopped")
	return err
}

// asked turns the errors that mean "you were told to stop" into none.
func asked(parent context.Context, err error) error {
	if parent.Err() != nil || errors.Is(err, errParentGone) {
		return nil
	}
	return err
}

// stores is what has been started so far.
type stores struct {
	ready
	stops []func() error
}

func (s *stores) start(ctx context.Context, opts options, fail func(error), log io.Writer) error {
	if opts.only != onlyKafka {
		if err := s.startClickHouse(ctx, opts, fail, log); err != nil {
			return err
		}
	}
	if opts.only != onlyClickHouse {
		return s.startKafka(ctx, opts, fail, log)
	}
	return nil
}

func (s *stores) startClickHouse(ctx context.Context, opts options, fail func(error), log io.Writer) error {
	begin := time.Now()
	server, err := clickhouse.Start(ctx, clickhouse.Config{
		Dir:      filepath.Join(opts.dir, "clickhouse"),
		TCP:      opts.clickhouseTCP,
		HTTP:     opts.clickhouseHTTP,
		Kind:     opts.clickhouseKind,
		Progress: log,
	}, fail)
	if err != nil {
		return err
	}
	s.ClickHouse = &server.Info
	s.stops = append(s.stops, server.Stop)
	fmt.Fprintf(log, "ClickHouse %s (%s) ready in %.2f s: native %s, HTTP %s\n",
		server.Version, server.Kind, time.Since(begin).Seconds(), server.TCP, server.HTTP)
	return nil
}

func (s *stores) startKafka(ctx context.Context, opts options, fail func(error), log io.Writer) error {
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
		Dir:         filepath.Join(opts.dir, "kafka"),
		Kind:        opts.broker,
		Brokers:     opts.brokers,
		Node:        opts.node,
		Ports:       opts.kafkaPorts,
		Controllers: opts.controllers,
		Advertised:  opts.advertised,
		Partitions:  opts.partitions,
		Topics:      topics,
		Properties:  properties,
		Progress:    log,
	}, fail)
	if err != nil {
		return err
	}
	s.Kafka = &server.Info
	s.stops = append(s.stops, server.Stop)
	fmt.Fprintf(log, "Kafka %s (%s) ready in %.2f s: %v\n", server.Version, server.Kind, time.Since(begin).Seconds(), server.Brokers)
	return nil
}

// stop ends everything in the reverse order of the starts.
func (s *stores) stop() error {
	var errs []error
	for i := len(s.stops) - 1; i >= 0; i-- {
		errs = append(errs, s.stops[i]())
	}
	return errors.Join(errs...)
}

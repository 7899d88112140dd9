package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/spf13/pflag"

	"trafficd/cmd/dev/devstores/internal/clickhouse"
	"trafficd/cmd/dev/devstores/internal/kafka"
	"trafficd/cmd/dev/devstores/internal/zookeeper"
	"trafficd/cmd/dev/launch"
	"trafficd/cmd/dev/must"
)

// bind defines a flag for each option, with the usual ports as defaults.
func bind(flags *pflag.FlagSet, o *launch.Options) {
	flags.SortFlags = false
	flags.StringVar(&o.Dir, "dir", ".run/devstores", "directory for all data and logs, kept across restarts")
	flags.StringVar(&o.Only, "only", "", "start only this store: clickhouse, kafka or zookeeper")
	flags.IntVar(&o.ClickHouseTCP, "clickhouse-tcp", 9000, "port of ClickHouse's native protocol, 0 = a free one")
	flags.IntVar(&o.ClickHouseHTTP, "clickhouse-http", 8123, "port of ClickHouse's HTTP interface, 0 = a free one")
	flags.StringVar(&o.Broker, "broker", launch.Kfake, "which broker: "+launch.Kfake+", "+launch.Apache)
	flags.IntVar(&o.Brokers, "brokers", 1, "number of brokers")
	flags.IntSliceVar(&o.KafkaPorts, "kafka", []int{9092}, "port of each broker, 0 or missing = a free one")
	flags.IntVar(&o.Partitions, "partitions", 6, "partitions of automatically created topics")
	flags.StringToIntVar(&o.Topics, "topic", nil, "create this topic, as name=partitions; repeatable")
	flags.StringToStringVar(&o.Properties, "set", nil, "set a broker property, as key=value; repeatable")
	for _, name := range []string{"topic", "set"} {
		flags.Lookup(name).DefValue = "" // not []
	}
}

// run runs the stores until ctx is done, a store fails or the parent exits. Being asked to stop is
// not an error.
func run(ctx context.Context, opts launch.Options, stdout io.Writer) error {
	if err := opts.Complete(); err != nil {
		return err
	}
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	watchParent(func() { fail(context.Canceled) })
	err := serve(ctx, opts, fail, stdout)
	fmt.Fprintln(opts.Stderr, cmp.Or(opts.Only, "stores")+": stopped")
	if errors.Is(err, context.Canceled) {
		return nil // stopped during the start
	}
	return err
}

// serve starts the stores, announces them on stdout, and stops them in reverse order after ctx is
// done.
func serve(ctx context.Context, opts launch.Options, fail func(error), stdout io.Writer) (err error) {
	defer must.Return(&err)
	var running launch.Announcement
	begin := time.Now()
	if opts.Only == "zookeeper" {
		server := must.Get(zookeeper.Start(ctx, opts, fail))
		defer func() { err = errors.Join(err, server.Stop()) }()
		running.ZooKeeper = &server.ZooKeeperInfo
		fmt.Fprintf(opts.Stderr, "ZooKeeper ready in %.2f s: %s\n", time.Since(begin).Seconds(), server.Address)
	}
	if opts.Only == "clickhouse" || opts.Only == "" {
		server := must.Get(clickhouse.Start(ctx, opts, fail))
		defer func() { err = errors.Join(err, server.Stop()) }()
		running.ClickHouse = &server.ClickHouseInfo
		fmt.Fprintf(opts.Stderr, "ClickHouse %s (%s) ready in %.2f s: native %s, HTTP %s\n",
			server.Version, server.Kind, time.Since(begin).Seconds(), server.TCP, server.HTTP)
	}
	if opts.Only == "kafka" || opts.Only == "" {
		begin = time.Now()
		server := must.Get(kafka.Start(ctx, opts, fail))
		defer func() { err = errors.Join(err, server.Stop()) }()
		running.Kafka = &server.KafkaInfo
		fmt.Fprintf(opts.Stderr, "Kafka %s (%s) ready in %.2f s: %v\n",
			server.Version, server.Kind, time.Since(begin).Seconds(), server.Brokers)
	}
	must.Do(json.NewEncoder(stdout).Encode(running))
	<-ctx.Done()
	fmt.Fprintln(opts.Stderr, cmp.Or(opts.Only, "stores")+": stopping")
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// watchParent calls stop when the parent exits and, if standard input is a pipe or a socket, when
// that is closed. Its goroutines end with the process.
func watchParent(stop func()) {
	if info, err := os.Stdin.Stat(); err == nil && info.Mode()&(fs.ModeNamedPipe|fs.ModeSocket) != 0 {
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			stop()
		}()
	}
	parent := os.Getppid()
	go func() {
		for os.Getppid() == parent {
			time.Sleep(100 * time.Millisecond)
		}
		stop()
	}()
}

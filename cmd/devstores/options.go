package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"trafficd/cmd/devstores/internal/clickhouse"
	"trafficd/cmd/devstores/internal/kafka"
)

// The values of --only.
const (
	both           = ""
	onlyClickHouse = "clickhouse"
	onlyKafka      = "kafka"
)

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
		broker:         kafka.KindFake,
		brokers:        1,
		kafkaPorts:     []int{9092},
		partitions:     6,
	}
}

func (o *options) bind(flags *pflag.FlagSet) {
	flags.SortFlags = false
	flags.StringVar(&o.dir, "dir", o.dir, "folder of all data and logs; survives a restart")
	flags.StringVar(&o.only, "only", o.only, "start one store: clickhouse or kafka")
	flags.IntVar(&o.clickhouseTCP, "clickhouse-tcp", o.clickhouseTCP, "port of ClickHouse's native protocol, 0 = a free one")
	flags.IntVar(&o.clickhouseHTTP, "clickhouse-http", o.clickhouseHTTP, "port of ClickHouse over HTTP, 0 = a free one")
	flags.StringVar(&o.clickhouseKind, "clickhouse-kind", o.clickhouseKind, "which ClickHouse: "+strings.Join(clickhouse.Kinds, ", "))
	flags.StringVar(&o.broker, "broker", o.broker, "which broker: "+strings.Join(kafka.Kinds, ", "))
	flags.IntVar(&o.brokers, "brokers", o.brokers, "number of brokers")
	flags.IntVar(&o.node, "node", 0, "run only this one of the brokers, counted from 1; the others run elsewhere with the same --kafka and --controllers (apache only)")
	flags.IntSliceVar(&o.controllers, "controllers", nil, "port of each controller, with --node")
	flags.IntSliceVar(&o.kafkaPorts, "kafka", o.kafkaPorts, "port of each broker, 0 = a free one; brokers without one get a free one")
	flags.StringSliceVar(&o.advertised, "advertise", nil, "host:port that each broker tells its clients, such as a proxy's; default is where it listens (apache only)")
	flags.IntVar(&o.partitions, "partitions", o.partitions, "partitions of topics that come into being by use")
	flags.StringArrayVar(&o.topics, "topic", nil, "create this topic, as name:partitions; repeatable")
	flags.StringArrayVar(&o.properties, "set", nil, "set a broker property, as key=value; repeatable")
	flags.BoolVar(&o.withParent, "with-parent", o.withParent, "end when the parent dies or a pipe on standard input closes")
}

func (o options) validate() error {
	if only := []string{both, onlyClickHouse, onlyKafka}; !slices.Contains(only, o.only) {
		return fmt.Errorf("cannot start only %q: --only takes %s or %s", o.only, onlyClickHouse, onlyKafka)
	}
	for _, port := range append([]int{o.clickhouseTCP, o.clickhouseHTTP}, o.kafkaPorts...) {
		if port < 0 || port > 65535 {
			return fmt.Errorf("cannot listen on port %d: ports go from 1 to 65535, and 0 means a free one", port)
		}
	}
	return nil
}

// kafkaTopics takes --topic apart.
func (o options) kafkaTopics() (map[string]int, error) {
	topics := map[string]int{}
	for _, topic := range o.topics {
		name, count, _ := strings.Cut(topic, ":")
		partitions, err := strconv.Atoi(count)
		if name == "" || err != nil || partitions < 1 {
			return nil, fmt.Errorf("cannot read --topic %q: it wants name:partitions, such as measurements:6", topic)
		}
		topics[name] = partitions
	}
	return topics, nil
}

// kafkaProperties takes --set apart.
func (o options) kafkaProperties() (map[string]string, error) {
	properties := map[string]string{}
	for _, property := range o.properties {
		key, value, ok := strings.Cut(property, "=")
		if !ok || key == "" {
			return nil, fmt.Errorf("cannot read --set %q: it wants key=value, such as min.insync.replicas=2", property)
		}
		properties[key] = value
	}
	return properties, nil
}

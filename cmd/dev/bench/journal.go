package main

import (
	"context"
	"io"
	"strings"
	"time"

	"trafficd/cmd/dev/launch"
	"trafficd/cmd/dev/must"
)

// journalInApache calls journals with three Apache brokers, at least two of which store each frame.
func (o options) journalInApache(ctx context.Context) {
	properties := map[string]string{"min.insync.replicas": "2"}
	o.journals(ctx, launch.Options{Broker: launch.Apache, Brokers: 3, Properties: properties})
}

type compared struct {
	*daemon
	name      string
	took      []float64 // latency of each batch in milliseconds
	overLocal []float64 // in each round, CPU time divided by that of the daemon "local"
	rates     []float64 // in each round, items per second
}

// journals compares a daemon whose journal is on disk with one whose journal is in Kafka and, with
// --before, with another version whose journal is on disk. In each round, it measures each of them:
// the CPU time until the batches are forwarded to Kafka, their latency, and the items per second.
func (o options) journals(ctx context.Context, stores launch.Options) {
	stores.Only, stores.Stderr, stores.Topics = "kafka", io.Discard, map[string]int{"measurements": 6}
	running := must.Get(launch.StartStores(ctx, stores))
	defer func() { _ = running.Close() }()
	brokers := strings.Join(running.Kafka.Brokers, ",")
	b := synthetic()
	var all []*compared
	add := func(name, binary string, settings ...string) {
		settings = append(settings, "kafka.enabled=true", "kafka.brokers="+brokers, "kafka.topic=measurements")
		all = append(all, &compared{daemon: start(ctx, binary, b.detectors, settings...), name: name})
	}
	defer func() {
		for _, c := range all {
			c.stop()
		}
	}()
	add("local", o.daemon)
	add("kafka", o.daemon, "journal.kind=kafka", "journal.log.brokers="+brokers)
	if o.before != "" {
		add("before", o.before)
	}
	for round := range o.rounds + 1 {
		var local float64 // CPU time
		for _, c := range all {
			before := c.cpu()
			took := c.latencies(b, o.batches, 0)
			c.awaitDelivered(ctx)
			cpu := float64(c.cpu() - before)
			if c == all[0] {
				local = cpu
			}
			each, began := max(1, o.batches/4), time.Now()
			c.load(b, 4, each)
			c.awaitDelivered(ctx)
			rate := float64(4*each*b.items) / time.Since(began).Seconds()
			if round > 0 { // round 0 is a warm-up
				c.took, c.overLocal, c.rates = append(c.took, took...), append(c.overLocal, cpu/local), append(c.rates, rate)
			}
		}
	}
	for _, c := range all[1:] {
		o.line("journal_"+c.name+"_cpu_over_local", median(c.overLocal), "ratio")
	}
	for _, c := range all {
		o.line("journal_"+c.name+"_items_per_s", median(c.rates), "items/s")
		o.line("journal_"+c.name+"_p50_ms", median(c.took), "ms")
		o.line("journal_"+c.name+"_p99_ms", p99(c.took), "ms")
	}
}

func (d *daemon) awaitDelivered(ctx context.Context) {
	must.Do(launch.Eventually(ctx, 5*time.Minute, func() error { return d.Delivered(ctx) }))
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"trafficd/cmd/internal/launch"
)

// journals compares a daemon with a journal in three Apache brokers, and one of another version, to
// one with a journal on its disk, in turn: the CPU time of a batch until it is forwarded to Kafka,
// the time to its 207, and the batches in a second. All are of one product instance.
func (o options) journals(ctx context.Context, stores launch.Options) error {
	stores.Only, stores.Stderr, stores.Topics = "kafka", io.Discard, map[string]int{"measurements": 6}
	running, err := launch.StartStores(ctx, stores)
	if err != nil {
		return err
	}
	defer func() { _ = running.Close() }()
	brokers := strings.Join(running.Kafka.Brokers, ",")
	b := synthetic()
	all := []*compared{{name: "local", binary: o.daemon}, {name: "kafka", binary: o.daemon}}
	if o.before != "" {
		all = append(all, &compared{name: "before", binary: o.before})
	}
	for _, c := range all {
		if c.daemon, err = newDaemon(c.binary, b.detectors); err != nil {
			return err
		}
		defer c.stop()
		c.Set("kafka.enabled=true", "kafka.brokers="+brokers, "kafka.topic=measurements")
		if c.name == "kafka" {
			c.Set("journal.kind=kafka", "journal.log.brokers="+brokers)
		}
		if err := c.start(ctx); err != nil {
			return err
		}
	}
	for round := range o.rounds + 1 {
		var local float64 // CPU time
		for _, c := range all {
			before := c.cpu()
			took, err := c.times(b, o.batches)
			if err = errors.Join(err, c.forwarded(ctx)); err != nil {
				return err
			}
			cpu := float64(c.cpu() - before)
			if c.name == "local" {
				local = cpu
			}
			each, began := max(1, o.batches/4), time.Now()
			if _, err = c.load(b, 4, each); err == nil {
				err = c.forwarded(ctx)
			}
			if err != nil {
				return err
			}
			rate := float64(4*each*b.items) / time.Since(began).Seconds()
			if round > 0 { // the first is a warm-up
				c.took, c.overLocal, c.rates = append(c.took, took...), append(c.overLocal, cpu/local), append(c.rates, rate)
			}
		}
	}
	for _, c := range all {
		if c.name != "local" {
			o.line(fmt.Sprintf("journal_%s_cpu_over_local", c.name), median(c.overLocal), "ratio")
		}
	}
	for _, c := range all {
		o.line(fmt.Sprintf("journal_%s_items_per_s", c.name), median(c.rates), "items/s")
		slices.Sort(c.took)
		for _, p := range []int{50, 99} {
			o.line(fmt.Sprintf("journal_%s_p%d_ms", c.name, p), c.took[(len(c.took)-1)*p/100], "ms")
		}
	}
	return nil
}

type compared struct {
	*daemon
	name, binary string
	took         []float64 // milliseconds to each 207
	overLocal    []float64 // CPU time of each round, divided by that of local
	rates        []float64 // items per second of each round
}

// times sends n bodies in sequence and returns the milliseconds until each 207.
func (d *daemon) times(b body, n int) (ms []float64, err error) {
	c, err := d.dial()
	if err != nil {
		return nil, err
	}
	defer c.Close()
	for range n {
		begin := time.Now()
		if err := c.post(b); err != nil {
			return nil, err
		}
		ms = append(ms, float64(time.Since(begin).Microseconds())/1000)
	}
	return ms, nil
}

// forwarded waits until the daemon has delivered everything.
func (d *daemon) forwarded(ctx context.Context) error {
	return launch.Eventually(ctx, 5*time.Minute, func() error {
		metrics, err := d.Metrics(ctx)
		if err != nil {
			return err
		}
		if lag := metrics.Sum("trafficd_pipeline_lag_frames"); lag != 0 {
			return fmt.Errorf("%v frames have not been delivered yet", lag)
		}
		return nil
	})
}

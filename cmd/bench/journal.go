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

// journals compares a daemon with a journal in three Apache brokers to one with a journal on its
// disk, in turn: the CPU time of a batch until it is forwarded to Kafka, and the time to its 207.
func (o options) journals(ctx context.Context, stores launch.Options) error {
	stores.Only, stores.Stderr, stores.Topics = "kafka", io.Discard, map[string]int{"measurements": 6}
	running, err := launch.StartStores(ctx, stores)
	if err != nil {
		return err
	}
	defer func() { _ = running.Close() }() // only their data may remain
	brokers := strings.Join(running.Kafka.Brokers, ",")
	b := synthetic()
	var both [2]*daemon
	for i, kind := range []string{"local", "kafka"} {
		d, err := newDaemon(o.daemon, b.detectors)
		if err != nil {
			return err
		}
		defer d.stop()
		both[i] = d
		d.Set("journal.kind="+kind, "journal.log.brokers="+brokers, "kafka.enabled=true", "kafka.brokers="+brokers, "kafka.topic=measurements")
		if err := d.start(ctx); err != nil {
			return err
		}
	}
	var over []float64
	var times [2][]float64
	for round := range o.rounds + 1 {
		var cpu [2]float64
		for i, d := range both {
			before := d.cpu()
			took, err := d.times(b, o.batches)
			if err = errors.Join(err, d.forwarded(ctx)); err != nil {
				return err
			}
			cpu[i] = float64(d.cpu() - before)
			if round > 0 { // the first is a warm-up
				times[i] = append(times[i], took...)
			}
		}
		if round > 0 {
			over = append(over, cpu[1]/cpu[0])
		}
	}
	o.line("journal_kafka_cpu_over_local", median(over), "ratio")
	for i, kind := range []string{"local", "kafka"} {
		slices.Sort(times[i])
		for _, p := range []int{50, 99} {
			o.line(fmt.Sprintf("journal_%s_p%d_ms", kind, p), times[i][(len(times[i])-1)*p/100], "ms")
		}
	}
	return nil
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
			return fmt.Errorf("%v frames are not yet delivered", lag)
		}
		return nil
	})
}

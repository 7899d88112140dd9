// Package bench measures a daemon's way from the socket to the journal and what its parts cost alone, in one run
// on one machine: times here vary, their ratios do not.
package bench

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"
)

// Options is what is measured.
type Options struct {
	Daemon string // the program trafficd
	Rounds int    // each figure is the median over the rounds
	Bodies int    // batches in a round
	Lines  io.Writer
	Notes  io.Writer
	Named  []Body // bodies beside the synthetic one
}

// Run prints `bench: <name> <value> <unit>` lines.
func Run(ctx context.Context, o Options) error {
	synthetic := Synthetic()
	for _, body := range append([]Body{synthetic}, o.Named...) {
		if err := o.way(ctx, body); err != nil {
			return err
		}
	}
	if err := o.throughput(ctx, synthetic); err != nil {
		return err
	}
	if err := o.memory(ctx, synthetic); err != nil {
		return err
	}
	if err := o.defuse(ctx); err != nil {
		return err
	}
	return o.geometries(ctx)
}

// costs are CPU times of one body in milliseconds.
type costs struct{ gunzip, scan, ingest []float64 }

// way measures one body: gunzip, gunzip and scan, and the daemon's whole way, turn by turn.
func (o Options) way(ctx context.Context, body Body) error {
	d, err := start(ctx, o.Daemon, body.Detectors)
	if err != nil {
		return err
	}
	defer d.stop()
	fmt.Fprintf(o.Notes, "%s: %d items, %d bytes of JSON, %d of gzip, %d rounds of %d batches\n", body.Name, body.Items, body.Length, len(body.Gzip), o.Rounds, o.Bodies)
	c, err := d.dial()
	if err != nil {
		return err
	}
	defer c.Close()
	var cost costs
	allocs := 0.0
	for round := range o.Rounds + 1 {
		gunzip, err := perBody(o.Bodies, body.gunzip)
		if err != nil {
			return err
		}
		scan, err := perBody(o.Bodies, body.scan)
		if err != nil {
			return err
		}
		ingest, mallocs, err := d.perBatch(c, body, o.Bodies)
		if err != nil {
			return err
		}
		if round == 0 {
			continue // everything was cold
		}
		cost.gunzip, cost.scan, cost.ingest = append(cost.gunzip, gunzip), append(cost.scan, scan), append(cost.ingest, ingest)
		allocs = mallocs
	}
	o.print(body.Name, cost, allocs)
	return nil
}

func (o Options) print(name string, c costs, allocs float64) {
	ratio := func(over []float64) float64 {
		list := make([]float64, len(over))
		for i := range over {
			list[i] = c.ingest[i] / over[i]
		}
		return median(list)
	}
	o.line(name+"gunzip_ms", median(c.gunzip), "ms")
	o.line(name+"gunzip_scan_ms", median(c.scan), "ms")
	o.line(name+"ingest_cpu_ms", median(c.ingest), "ms")
	o.line(name+"ingest_cpu_over_gunzip_scan", ratio(c.scan), "ratio")
	o.line(name+"ingest_cpu_over_gunzip", ratio(c.gunzip), "ratio")
	o.line(name+"ingest_allocs_per_batch", allocs, "allocs")
}

func (o Options) line(name string, value float64, unit string) {
	fmt.Fprintf(o.Lines, "bench: %s %.3g %s\n", name, value, unit)
}

// throughput measures items per second over some connections, client and daemon on the same machine.
func (o Options) throughput(ctx context.Context, body Body) error {
	d, err := start(ctx, o.Daemon, body.Detectors)
	if err != nil {
		return err
	}
	defer d.stop()
	for _, connections := range []int{1, 2, 4} {
		took, err := d.load(body, connections, o.Bodies)
		if err != nil {
			return err
		}
		o.line(fmt.Sprintf("http_items_per_s_%d", connections), float64(connections*o.Bodies*body.Items)/took.Seconds(), "items/s")
	}
	return nil
}

// memory measures the daemon's largest resident size while 64 batches at a time are under way.
func (o Options) memory(ctx context.Context, body Body) error {
	d, err := start(ctx, o.Daemon, body.Detectors)
	if err != nil {
		return err
	}
	defer d.stop()
	if _, err := d.load(body, 64, 5); err != nil {
		return err
	}
	peak, err := d.peakMB()
	if err != nil {
		return err
	}
	o.line("rss_64_batches_mb", peak, "MB")
	return nil
}

func median(list []float64) float64 {
	list = slices.Sorted(slices.Values(list))
	return list[len(list)/2]
}

// perBody gives the CPU milliseconds that do takes.
func perBody(n int, do func() error) (float64, error) {
	before := ownCPU()
	for range n {
		if err := do(); err != nil {
			return 0, err
		}
	}
	return float64((ownCPU()-before)/time.Microsecond) / 1000 / float64(n), nil
}

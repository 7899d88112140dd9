package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/procfs"

	"trafficd/cmd/dev/launch"
	"trafficd/cmd/dev/must"
	"trafficd/cmd/dev/traffic/town"
	"trafficd/schemas/contract"
)

// archiveDays lists the generated days. The first is archived without derived tables, and the
// second with them.
var archiveDays = [2]string{"2026-11-01", "2026-11-02"}

// archiveQueries lists the queries from schemas/clickhouse/README.md, for the second day.
var archiveQueries = []struct{ name, sql string }{
	{"latest", "SELECT detector_code, value, timestamp_to FROM measurements_latest " +
		"WHERE product_instance = 'bench' AND measure_type_code = 'speed'"},
	{"latest_all", "SELECT * FROM measurements_latest"},
	{"slice", "SELECT detector_code, measure_type_code, average FROM measurements_5m" +
		" WHERE product_instance = 'bench' AND bucket = '2026-11-02 08:05:00'"},
	{"15m_day", "SELECT bucket, detector_code, measure_type_code, average FROM measurements_15m" +
		" WHERE product_instance = 'bench' AND bucket >= '2026-11-02' AND bucket < '2026-11-03'"},
}

// archive benchmarks the archive with two days of measurements from all detectors.
func (o options) archive(ctx context.Context) {
	dir := tempDir()
	defer os.RemoveAll(dir)
	stores := must.Get(launch.StartStores(ctx, launch.Options{Dir: dir, Only: "clickhouse", Stderr: o.notes}))
	defer func() { _ = stores.Close() }() // the data is temporary, so an error does not matter
	network := must.Get(town.New(town.DefaultMeasurementConfig()))
	d := newDaemon(o.daemon, network.Detectors(), "clickhouse.enabled=true", "clickhouse.addresses="+stores.ClickHouse.TCP)
	defer d.stop()
	var cpu [2]time.Duration
	for i, interval := range []string{"0s", "10s"} {
		d.Set("clickhouse.derive_interval=" + interval)
		d.start(ctx)
		cpu[i] = o.archiveDay(ctx, d, stores.ClickHouse, archiveDays[i], i == 1)
		must.Do(d.Stop(35 * time.Second))
	}
	o.archiveFigures(ctx, stores.ClickHouse, cpu)
}

// sendDay sends a day of measurements of all detectors, each interval in batches of its own.
func sendDay(d *daemon, day string) {
	c := town.DefaultMeasurementConfig()
	c.From, c.Types, c.AllTypes = must.Get(time.Parse(time.DateOnly, day)), []string{"speed", "flow"}, true
	client := must.Get(d.dial())
	defer client.Close()
	var items [][]byte
	flush := func() {
		must.Do(client.post(newBody("", contract.Batch(items...), nil)))
		items = items[:0]
	}
	for item := range must.Get(town.New(c)).Items() {
		if len(items) == batchItems || item.StartsInterval && len(items) > 0 {
			flush()
		}
		items = append(items, bytes.Clone(item.JSON))
	}
	flush()
}

// archiveDay sends the measurements of a day. It returns the CPU time that ClickHouse uses until
// all of them are archived and merged and, if derived is true, all derived tables are up to date.
func (o options) archiveDay(ctx context.Context, d *daemon, c *launch.ClickHouse, day string, derived bool) time.Duration {
	awaitEmpty := func(table string) {
		until(ctx, table+" to be empty", func() bool { return must.Get(c.Do(ctx, "SELECT count() FROM "+table)) == "0" })
	}
	const pending = "trafficd.measurements_blocks FINAL WHERE derived = 0"
	if derived { // derive the previous day before the measurement begins
		awaitEmpty(pending)
	}
	before := cpuOf(c.PIDs()...)
	sendDay(d, day)
	d.awaitDelivered(ctx)
	if derived {
		awaitEmpty(pending)
	}
	awaitEmpty("system.merges")
	return cpuOf(c.PIDs()...) - before
}

// until waits up to two minutes for cond to return true. what completes the error message "timed
// out after two minutes waiting for". It calls cond only every 100 ms, because each call uses CPU
// time of the program being measured.
func until(ctx context.Context, what string, cond func() bool) {
	for range 1200 {
		if cond() {
			return
		}
		pause(ctx, 100*time.Millisecond)
	}
	must.Do(errors.New("timed out after two minutes waiting for " + what))
}

func (o options) archiveFigures(ctx context.Context, c *launch.ClickHouse, cpu [2]time.Duration) {
	rows := must.Get(c.Do(ctx, "SELECT count() FROM trafficd.measurements"))
	fmt.Fprintf(o.notes, "%s rows; ClickHouse CPU time per day: %v, or %v with derived tables\n", rows, cpu[0], cpu[1])
	o.line("archive_derived_over_delivery", float64(cpu[1])/float64(cpu[0]), "ratio")
	for _, q := range archiveQueries {
		o.medians(o.rounds, func(add series) {
			start := time.Now()
			must.Get(c.Do(ctx, strings.ReplaceAll(q.sql, "measurements_", "trafficd.measurements_")+" FORMAT Null"))
			add("archive_"+q.name+"_ms", milliseconds(time.Since(start)), "ms")
		})
	}
	tables := must.Get(c.Do(ctx, "SELECT table, sum(bytes_on_disk) / "+rows+" FROM system.parts"+
		" WHERE active AND database = 'trafficd' GROUP BY table ORDER BY table"))
	total := 0.0
	for line := range strings.Lines(tables) {
		table, text, _ := strings.Cut(strings.TrimSpace(line), "\t")
		size := must.Get(strconv.ParseFloat(text, 64))
		total += size
		if size > 0.005 {
			o.line("archive_"+strings.TrimPrefix(table, "measurements_")+"_bytes_per_row", size, "B")
		}
	}
	o.line("archive_bytes_per_row", total, "B")
}

// cpuOf returns the total CPU time of the given processes, with a resolution of 10 ms.
func cpuOf(pids ...int) (total time.Duration) {
	for _, pid := range pids {
		p, _ := procfs.NewProc(pid)
		s, _ := p.Stat() // zeros if it has exited
		total += time.Duration(s.UTime+s.STime) * 10 * time.Millisecond
	}
	return total
}

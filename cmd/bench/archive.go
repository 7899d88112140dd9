package main

import (
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"trafficd/cmd/internal/launch"
)

// archiveDays lists the generated days. The first is archived without derived tables, the second
// with them.
var archiveDays = [2]string{"2026-11-01", "2026-11-02"}

// archiveQueries lists the queries of schemas/clickhouse/README.md, for the second day.
var archiveQueries = []struct{ name, sql string }{
	{"latest", "SELECT detector_code, value, timestamp_to FROM measurements_latest " +
		"WHERE product_instance = 'bench' AND measure_type_code = 'speed'"},
	{"latest_all", "SELECT * FROM measurements_latest"},
	{"slice", "SELECT detector_code, measure_type_code, average FROM measurements_5m" +
		" WHERE product_instance = 'bench' AND bucket = '2026-11-02 08:05:00'"},
	{"15m_day", "SELECT bucket, detector_code, measure_type_code, average FROM measurements_15m" +
		" WHERE product_instance = 'bench' AND bucket >= '2026-11-02' AND bucket < '2026-11-03'"},
}

// archive measures the archive with two days of measurements of all detectors.
func (o options) archive(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "trafficd-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	stores, err := launch.StartStores(ctx, launch.Options{Dir: dir, Only: "clickhouse", Stderr: o.notes})
	if err != nil {
		return err
	}
	defer func() { _ = stores.Close() }() // the folder is removed anyway
	detectors, err := o.generateDetectors(ctx, filepath.Join(dir, "detectors.csv"))
	if err != nil {
		return err
	}
	d, err := newDaemon(o.daemon, detectors)
	if d != nil {
		defer d.stop()
	}
	if err != nil {
		return err
	}
	d.Set("clickhouse.enabled=true", "clickhouse.addresses="+stores.ClickHouse.TCP)
	var cpu [2]time.Duration
	for i, interval := range []string{"0s", "10s"} {
		d.Set("clickhouse.derive_interval=" + interval)
		if err := d.start(ctx); err != nil {
			return err
		}
		if cpu[i], err = o.archiveDay(ctx, d, stores.ClickHouse, archiveDays[i], i == 1); err != nil {
			return err
		}
		if err := d.Stop(35 * time.Second); err != nil {
			return err
		}
	}
	return o.archiveFigures(ctx, stores.ClickHouse, cpu)
}

// generateDetectors returns the codes of the detectors of `trafficctl generate`.
func (o options) generateDetectors(ctx context.Context, file string) ([]string, error) {
	generate := exec.CommandContext(ctx, o.trafficctl, "generate", "--intervals", "1", "--registry-out", file, "--output", os.DevNull,
		"--format", "csv", "--quiet")
	if out, err := generate.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("cannot generate detectors with %s: %w: %s", o.trafficctl, err, out)
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		return nil, err
	}
	var codes []string
	for _, row := range rows[1:] {
		codes = append(codes, row[0])
	}
	return codes, nil
}

// archiveDay sends a day and returns the CPU time of ClickHouse until everything is archived,
// derived and merged.
func (o options) archiveDay(ctx context.Context, d *daemon, c *launch.ClickHouse, day string, derived bool) (time.Duration, error) {
	none := func(table string) func() (bool, error) {
		return func() (bool, error) {
			n, err := c.Do(ctx, "SELECT count() FROM "+table)
			return n == "0", err
		}
	}
	pending := none("trafficd.measurements_blocks FINAL WHERE derived = 0")
	if derived { // deriving the previous day does not count
		if err := until(ctx, "the previous day is derived", pending); err != nil {
			return 0, err
		}
	}
	before := cpuOf(c.PIDs()...)
	send := exec.CommandContext(ctx, o.trafficctl, "generate", "--from", day, "--types", "speed,flow", "--all-types", "--send",
		"--url", "http://"+d.API, "--key", benchKey, "--quiet", "--json")
	if out, err := send.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("cannot send a day with %s: %w: %s", o.trafficctl, err, out)
	}
	err := d.forwarded(ctx)
	if err == nil && derived {
		err = until(ctx, "the day is derived", pending)
	}
	if err == nil {
		err = until(ctx, "merges have ended", none("system.merges"))
	}
	return cpuOf(c.PIDs()...) - before, err
}

// until waits until reached returns true, for two minutes at most.
func until(ctx context.Context, what string, reached func() (bool, error)) error {
	for range 1200 {
		if ok, err := reached(); ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
	return errors.New("not within two minutes: " + what)
}

func (o options) archiveFigures(ctx context.Context, c *launch.ClickHouse, cpu [2]time.Duration) error {
	rows, err := c.Do(ctx, "SELECT count() FROM trafficd.measurements")
	if err != nil {
		return err
	}
	fmt.Fprintf(o.notes, "%s rows; CPU of ClickHouse for a day: %v, with derived tables %v\n", rows, cpu[0], cpu[1])
	o.line("archive_derived_over_delivery", float64(cpu[1])/float64(cpu[0]), "ratio")
	for _, q := range archiveQueries {
		var times []float64
		for range 3 + o.rounds {
			start := time.Now()
			if _, err := c.Do(ctx, strings.ReplaceAll(q.sql, "measurements_", "trafficd.measurements_")+" FORMAT Null"); err != nil {
				return err
			}
			times = append(times, float64(time.Since(start).Microseconds())/1000)
		}
		o.line("archive_"+q.name+"_ms", median(times[3:]), "ms")
	}
	tables, err := c.Do(ctx, "SELECT table, sum(bytes_on_disk) / "+rows+" FROM system.parts"+
		" WHERE active AND database = 'trafficd' GROUP BY table ORDER BY table")
	if err != nil {
		return err
	}
	total := 0.0
	for line := range strings.Lines(tables) {
		table, text, _ := strings.Cut(strings.TrimSpace(line), "\t")
		size, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return err
		}
		total += size
		if size > 0.005 {
			o.line("archive_"+strings.TrimPrefix(table, "measurements_")+"_bytes_per_row", size, "B")
		}
	}
	o.line("archive_bytes_per_row", total, "B")
	return nil
}

// cpuOf returns the CPU time of processes.
func cpuOf(pids ...int) (total time.Duration) {
	for _, pid := range pids {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			continue
		}
		fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
		for _, field := range fields[11:13] { // utime and stime in hundredths of a second
			n, _ := strconv.Atoi(field)
			total += time.Duration(n) * 10 * time.Millisecond
		}
	}
	return total
}

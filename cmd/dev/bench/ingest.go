package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/klauspost/compress/gzip"
	"golang.org/x/sys/unix"

	"trafficd/cmd/dev/must"
)

// ingest compares, in each round, the CPU time of decompression, of decompression and a JSON scan,
// and of the daemon from the socket to the journal.
func (o options) ingest(ctx context.Context, body body) {
	d := start(ctx, o.daemon, body.detectors)
	defer d.stop()
	fmt.Fprintf(o.notes, "%s: %d items, %d bytes of JSON, %d of gzip, %d rounds of %d batches\n",
		body.name, body.items, body.length, len(body.zipped), o.rounds, o.batches)
	c := must.Get(d.dial())
	defer c.Close()
	o.medians(o.rounds, func(add series) {
		gunzip, scan := cpuPerCall(o.batches, body.gunzip), cpuPerCall(o.batches, body.scan)
		ingest, allocs := d.perBatch(ctx, c, body, o.batches)
		add(body.name+"gunzip_ms", gunzip, "ms")
		add(body.name+"gunzip_scan_ms", scan, "ms")
		add(body.name+"ingest_cpu_ms", ingest, "ms")
		add(body.name+"ingest_cpu_over_gunzip_scan", ingest/scan, "ratio")
		add(body.name+"ingest_cpu_over_gunzip", ingest/gunzip, "ratio")
		add(body.name+"ingest_allocs_per_batch", allocs, "allocs")
	})
}

// inflate compares the CPU time of the daemon's gzip decompression with that of klauspost's.
func (o options) inflate(body body) {
	o.medians(3*o.rounds, func(add series) {
		theirs := cpuPerCall(o.batches/5+1, body.gunzip)
		add(body.name+"inflate_over_klauspost", cpuPerCall(o.batches/5+1, body.inflate)/theirs, "ratio")
	})
}

func (o options) line(name string, value float64, unit string) {
	fmt.Fprintf(o.lines, "bench: %s %.3g %s\n", name, value, unit)
}

// throughput measures items per second and latency, with the client and the daemon on one machine.
func (o options) throughput(ctx context.Context, body body) {
	d := start(ctx, o.daemon, body.detectors)
	defer d.stop()
	var interval time.Duration // between batches, at 70% of the highest rate
	for _, connections := range []int{1, 2, 4} {
		took := d.load(body, connections, o.batches)
		o.line(fmt.Sprintf("http_items_per_s_%d", connections), float64(connections*o.batches*body.items)/took.Seconds(), "items/s")
		interval = time.Duration(float64(took) / float64(connections*o.batches) / 0.7)
	}
	o.medians(o.rounds, func(add series) {
		ms := d.sendPaced(body, 16, interval, 20*o.batches)
		add("http_p50_ms", median(ms), "ms")
		add("http_p99_over_p50", p99(ms)/median(ms), "ratio")
		ms = commits(filepath.Join(d.Dir, "disk"), interval, 20*o.batches)
		add("disk_p99_over_p50", p99(ms)/median(ms), "ratio")
	})
}

// commits overwrites and syncs as many bytes as a batch has in the journal, n times at the given
// interval, in a file as large as a segment. It returns the latency of each write in milliseconds.
func commits(path string, interval time.Duration, n int) (ms []float64) {
	f := must.Get(os.OpenFile(path, os.O_WRONLY|os.O_CREATE|unix.O_DSYNC, 0o600)) // each write is synced, as by fdatasync
	defer f.Close()
	commit := make([]byte, 106<<12)
	segment := int64(64<<20/len(commit)) * int64(len(commit))
	must.Get(f.WriteAt(make([]byte, segment), 0))
	began := time.Now()
	for i := range n {
		due := began.Add(time.Duration(i) * interval)
		time.Sleep(time.Until(due))
		must.Get(f.WriteAt(commit, int64(i)*int64(len(commit))%segment))
		ms = append(ms, milliseconds(time.Since(due)))
	}
	return ms
}

// registry measures a daemon with a million detectors in its registry: the time until it is ready,
// its resident size, and the peak.
func (o options) registry(ctx context.Context) {
	codes := make([]string, 1_000_000)
	for i := range codes {
		codes[i] = fmt.Sprintf("DET-%07d", i)
	}
	d := newDaemon(o.daemon, codes)
	defer d.stop()
	began := time.Now()
	d.start(ctx)
	o.line("registry_1m_ready_ms", float64(time.Since(began).Milliseconds()), "ms")
	time.Sleep(time.Second) // lets the daemon return the memory that it used to read the registry
	o.line("registry_1m_rss_mb", d.rssMB(), "MB")
	o.line("registry_1m_peak_mb", d.peakMB(), "MB")
}

// memory measures the daemon's resident size when idle, and its peak with 64 concurrent batches.
func (o options) memory(ctx context.Context, body body) {
	o.medians(o.rounds, func(add series) {
		d := start(ctx, o.daemon, body.detectors)
		defer d.stop()
		add("rss_idle_mb", d.rssMB(), "MB")
		d.load(body, 64, 5)
		add("rss_64_batches_mb", d.peakMB(), "MB")
	})
}

func median(list []float64) float64 {
	list = slices.Sorted(slices.Values(list))
	return list[len(list)/2]
}

// cpuPerCall calls do n times and returns the mean CPU time of a call in milliseconds.
func cpuPerCall(n int, do func()) float64 {
	before := ownCPU()
	for range n {
		do()
	}
	return milliseconds(ownCPU()-before) / float64(n)
}

// bomb is a small body that decompresses to a large one: head, and then repeat that many times.
type bomb struct {
	name         string
	head, repeat string
	times        int
	status       int // expected
}

var bombs = []bomb{
	{"zeros", "", "\x00", 1 << 30, http.StatusBadRequest},
	{"string", `{"measurements":[{"detectorCode":"`, "a", 512 << 20, http.StatusRequestEntityTooLarge},
	{"spaces", `{"measurements":[`, " ", 512 << 20, http.StatusRequestEntityTooLarge},
	{"items", `{"measurements":[{}`, ",{}", 33_000_000, http.StatusRequestEntityTooLarge},
}

func (b bomb) gzip() []byte {
	var zipped bytes.Buffer
	w := gzip.NewWriter(&zipped)
	_, err := io.WriteString(w, b.head)
	block := bytes.Repeat([]byte(b.repeat), 1<<16)
	for left := b.times; left > 0 && err == nil; left -= 1 << 16 {
		_, err = w.Write(block[:min(left, 1<<16)*len(b.repeat)])
	}
	if err = errors.Join(err, w.Close()); err != nil {
		panic(err) // writing to memory cannot fail
	}
	return zipped.Bytes()
}

// decompressionBombs measures the daemon's CPU time per bomb, and its peak resident size.
func (o options) decompressionBombs(ctx context.Context) {
	d := start(ctx, o.daemon, []string{"A"})
	defer d.stop()
	for _, b := range bombs {
		body := b.gzip()
		fmt.Fprintf(o.notes, "bomb of %s: %d bytes of gzip\n", b.name, len(body))
		const times = 5
		before := d.cpu()
		for range times {
			resp, stop, err := d.open(ctx, head(benchKey, len(body), ""), body)
			must.Do(err)
			must.Do(check(resp, b.status, ""))
			stop()
		}
		o.line("bomb_"+b.name+"_ms", milliseconds(d.cpu()-before)/times, "ms")
	}
	o.line("bombs_rss_mb", d.peakMB(), "MB")
}

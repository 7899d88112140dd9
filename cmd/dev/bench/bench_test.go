package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"trafficd/cmd/dev/launch"
	"trafficd/cmd/dev/needs"
)

// programs returns options for a quick measurement of trafficd.
func programs(t *testing.T) options {
	t.Helper()
	needs.Everything(t, "a quiet machine for minutes")
	daemon, err := launch.Program(t.Context(), "trafficd")
	require.NoError(t, err)
	return options{daemon: daemon, rounds: 1, batches: 2, notes: t.Output()}
}

// TestIngestLines checks that all items are accepted, and that the figures have the names and the
// format that other programs parse.
func TestIngestLines(t *testing.T) {
	o := programs(t)
	var out bytes.Buffer
	o.lines = &out
	require.NoError(t, run(t.Context(), []part{o.batchCosts}))
	var names []string
	for line := range bytes.Lines(out.Bytes()) {
		m := regexp.MustCompile(`^bench: (\S+) ([0-9.e+]+) (\S+)\n$`).FindSubmatch(line)
		require.NotNil(t, m, "%s", line)
		names = append(names, string(m[1]))
	}
	require.Equal(t, []string{
		"inflate_over_klauspost", "text_inflate_over_klauspost",
		"gunzip_ms", "gunzip_scan_ms", "ingest_cpu_ms", "ingest_cpu_over_gunzip_scan", "ingest_cpu_over_gunzip", "ingest_allocs_per_batch",
		"http_items_per_s_1", "http_items_per_s_2", "http_items_per_s_4", "http_p50_ms", "http_p99_over_p50", "disk_p99_over_p50",
		"rss_idle_mb", "rss_64_batches_mb",
	}, names)
}

// TestJournalLines checks that both daemons forward everything, and that the figures have the
// names that other programs parse.
func TestJournalLines(t *testing.T) {
	o := programs(t)
	var out bytes.Buffer
	o.lines = &out
	require.NoError(t, run(t.Context(), []part{func(ctx context.Context) { o.journals(ctx, launch.Options{}) }}))
	require.Regexp(t, `^bench: journal_kafka_cpu_over_local \S+ ratio
bench: journal_local_items_per_s \S+ items/s
bench: journal_local_p50_ms \S+ ms
bench: journal_local_p99_ms \S+ ms
bench: journal_kafka_items_per_s \S+ items/s
bench: journal_kafka_p50_ms \S+ ms
bench: journal_kafka_p99_ms \S+ ms
$`, out.String())
}

// TestLayerDaemon checks that a daemon serves generated forecasts and rebuilds the layer when they
// change.
func TestLayerDaemon(t *testing.T) {
	o := programs(t)
	require.NoError(t, run(t.Context(), []part{func(ctx context.Context) {
		all := network(10, 5, quarter())
		require.Len(t, all, 10)
		require.Len(t, all[0].Forecast, 5)
		d := o.layerDaemon(ctx, all)
		defer d.stop()
		d.rebuild(ctx, all)
	}}))
}

func TestReadBody(t *testing.T) {
	file := filepath.Join(t.TempDir(), "town.day.ndjson")
	require.NoError(t, os.WriteFile(file, []byte("{\"detectorCode\":\"A\",\"value\":1}\n{\"detectorCode\":\"A\",\"value\":2}\n"), 0o600))
	b, err := readBody(file)
	require.NoError(t, err)
	require.Equal(t, "town_", b.name)
	require.Equal(t, 2, b.items)
	require.Len(t, b.detectors, batchItems)
	require.NotPanics(t, b.gunzip)
	require.NotPanics(t, b.scan)

	require.NoError(t, os.WriteFile(file, []byte("{}\nnot JSON\n"), 0o600))
	_, err = readBody(file)
	var syntax *json.SyntaxError
	require.ErrorAs(t, err, &syntax)
	require.ErrorContains(t, err, "line 2")
}

func TestInvalidFlags(t *testing.T) {
	for _, flag := range []string{"--rounds", "--batches"} {
		c := command()
		c.SetArgs([]string{flag, "0", "--daemon", "/nonexistent/trafficd"})
		require.EqualError(t, c.Execute(), "--rounds and --batches must be at least 1")
	}
}

func TestMedian(t *testing.T) {
	require.Equal(t, 2.0, median([]float64{3, 1, 2}))
}

// TestPlain checks that the handler with which the daemon is compared accepts and writes every
// item.
func TestPlain(t *testing.T) {
	d := &daemon{launch.Daemon{Dir: t.TempDir()}}
	var err error
	d.API, err = launch.FreeAddress()
	require.NoError(t, err)
	b := synthetic()
	registry := filepath.Join(d.Dir, "registry")
	require.NoError(t, os.WriteFile(registry, []byte(strings.Join(b.detectors, "\n")), 0o600))
	go func() { _ = plain(d.API, registry, d.output()) }() // until the process ends
	var c *client
	require.NoError(t, launch.Eventually(t.Context(), time.Minute, func() (err error) {
		c, err = d.dial()
		return err
	}))
	defer c.Close()
	require.NoError(t, c.post(b))
	d.awaitLines(t.Context(), b.items)
}

// TestMissingEdge checks that a proxy that is not installed is named.
func TestMissingEdge(t *testing.T) {
	t.Setenv("PATH", "")
	t.Setenv("TRAFFICD_CACHE", t.TempDir())
	for _, e := range edges {
		_, err := new(target).enter(t.Context(), &e)
		require.ErrorContains(t, err, e.args[0]+" is not installed (")
	}
}

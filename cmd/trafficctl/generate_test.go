package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func small(args ...string) []string {
	return append([]string{"generate", "--detectors", "50", "--interval", "1h"}, args...)
}

// TestGenerateThenSend checks that all compressions contain the same measurements, and send
// reads each of them.
func TestGenerateThenSend(t *testing.T) {
	plain := requireSuccess(t, "", small()...)
	require.Equal(t, plain.out, runWith(t, "", small()...).out)
	want := strings.Split(strings.TrimSpace(plain.out), "\n")
	for _, name := range []string{"m.ndjson", "m.ndjson.gz", "m.ndjson.zst"} {
		path := filepath.Join(t.TempDir(), name)
		requireSuccess(t, "", small("--output", path)...)
		first := textOf(t, path)
		requireSuccess(t, "", small("--output", path)...)
		require.True(t, first == textOf(t, path), "same seed, same bytes: %s", name)

		d := newDaemon(t)
		requireSuccess(t, "", to(d, "send", path, "--concurrency", "1")...)
		require.Equal(t, want, texts(d), name)
	}
}

// TestGenerateSend checks that with --send, each interval is one batch, in order of time, and the
// registry contains every detector.
func TestGenerateSend(t *testing.T) {
	d := newDaemon(t)
	registry := filepath.Join(t.TempDir(), "detectors.csv")
	requireSuccess(t, "", to(d, small("--send", "--json", "--registry-out", registry)...)...)
	require.Len(t, d.Batches(), 24)
	last := ""
	text := textOf(t, registry)
	for _, batch := range d.Batches() {
		var m struct{ DetectorCode, TimestampFrom string }
		require.NoError(t, json.Unmarshal(batch[0], &m))
		require.Greater(t, m.TimestampFrom, last)
		last = m.TimestampFrom
		require.Contains(t, text, m.DetectorCode+",")
	}
}

// TestGenerateSendFaults checks that each fault is rejected, and all other items are accepted.
func TestGenerateSendFaults(t *testing.T) {
	d := newDaemon(t)
	r := runWith(t, "", to(d, small("--send", "--json", "--error-rate", "0.5", "--gap-rate", "0")...)...)
	require.Equal(t, exitRejected, r.code, r.err)
	sum := summaryOf(t, r)
	require.EqualValues(t, 50*24, sum["accepted"].(float64)+sum["rejected"].(float64))
	require.InDelta(t, 600, sum["rejected"], 120)
}

// TestGenerateOverTheLimit checks that a batch with more items than the daemon examines gets
// BATCH_LIMIT_EXCEEDED.
func TestGenerateOverTheLimit(t *testing.T) {
	d := newDaemon(t)
	r := runWith(t, "", to(d, "generate", "--detectors", "14100", "--interval", "24h", "--gap-rate", "0", "--send", "--json", "--batch", "20000")...)
	require.Equal(t, exitRejected, r.code, r.err)
	require.Equal(t, map[string]any{"BATCH_LIMIT_EXCEEDED": 100.0}, summaryOf(t, r)["codes"])
}

// TestGeneratedForecastsAgree checks that measurements and forecasts of a town agree: a detector
// measures about the speed that is forecast for its street.
func TestGeneratedForecastsAgree(t *testing.T) {
	flags := []string{"--from", "2026-11-03T07:30:00Z", "--utc-offset", "1", "--seed", "3"}
	var m struct {
		DetectorCode string
		Value        float64
	}
	measured := map[string]float64{}
	r := requireSuccess(t, "", append([]string{"generate", "--detectors", "400", "--types", "speed", "--interval", "5m", "--intervals", "1"}, flags...)...)
	for line := range strings.Lines(r.out) {
		require.NoError(t, json.Unmarshal([]byte(line), &m))
		measured[m.DetectorCode] = m.Value
	}
	require.Greater(t, len(measured), 350)
	r = requireSuccess(t, "", append([]string{"forecast", "generate", "--streets", "400", "--periods", "1", "--step", "5m", "--format", "protobuf"}, flags...)...)
	found := 0
	for _, s := range decoded(t, r.out).StreetForecast {
		if value, ok := measured[fmt.Sprintf("D%d-%d", s.Street, s.Fromnode)]; ok {
			found++
			require.InEpsilon(t, s.Forecast[0].Speed, value, 0.2)
		}
	}
	require.Equal(t, len(measured), found)
}

func TestGenerateBadFlags(t *testing.T) {
	f := func(want string, args ...string) {
		t.Helper()
		requireFailure(t, "", want, small(args...)...)
	}
	f("--from", "--from", "tomorrow")
	f("--detectors", "--detectors", "0")
	f("must end in the year 2260 or earlier", "--interval", "24h", "--intervals", "107000")
	f("--output", "--send", "--output", "x")
	f("registry", "--registry-out", "no/such/directory/r.csv")
	f("cannot write", "--output", "no/such/directory/m.ndjson")
	f("standard output is already used", "--registry-out", "-")
	f("standard output is already used", "--registry-out", "-", "--send")
}

// TestRegistryToStandardOutput checks that the registry is not discarded.
func TestRegistryToStandardOutput(t *testing.T) {
	r := requireSuccess(t, "", small("--registry-out", "-", "--output", os.DevNull)...)
	require.True(t, strings.HasPrefix(r.out, "detectorCode,"), r.out)
}

func TestGenerateWarnsAboutTheFuture(t *testing.T) {
	d := newDaemon(t)
	r := runWith(t, "", to(d, small("--send", "--from", "2200-01-01")...)...)
	require.Contains(t, r.err, "future")
}

// TestGenerateWithoutSend checks that flags for sending require --send.
func TestGenerateWithoutSend(t *testing.T) {
	f := func(args ...string) {
		t.Helper()
		require.Empty(t, requireFailure(t, "", args[0]+" requires --send", small(args...)...).out)
	}
	f("--json")
	f("--url", "http://127.0.0.1:1")
	f("--rejected", "x")
	f("--concurrency", "2")
	requireSuccess(t, "", small("--quiet")...)
}

// TestGenerateInterrupted checks that an interrupt ends the generation of a file and removes what
// was written.
func TestGenerateInterrupted(t *testing.T) {
	f := func(atOnce bool, path string) {
		t.Helper()
		ctx, interrupt := context.WithCancel(t.Context())
		if atOnce {
			interrupt()
		}
		var errs bytes.Buffer
		code := run(ctx, []string{"generate", "--detectors", "100", "--days", "366", "--output", path}, streams{out: &interrupting{then: interrupt}, err: &errs})
		require.Equal(t, exitFailed, code)
		require.Contains(t, errs.String(), "cannot write measurements to "+path+": interrupted")
		require.NoFileExists(t, path)
		require.NoFileExists(t, path+".new")
	}
	f(false, stdio)
	f(true, temporary(t, "m.ndjson"))
	f(true, temporary(t, "m.ndjson.gz"))
}

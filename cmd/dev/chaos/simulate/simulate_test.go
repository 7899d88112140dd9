package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"trafficd/pipeline/batch"
)

var hours = flag.Int("hours", 0, "simulated hours, each with the next seed; 0 for a few minutes")

// TestMain uses the coders of frames, which share channels, before the first bubble would own them.
func TestMain(m *testing.M) {
	runtime.MemProfileRate = 0 // samples use random numbers
	first := batch.Response{Key: "key", Items: 1}
	if err := batch.DecodeFrame(batch.AppendFrame(nil, new(batch.Batch), &first), new(batch.Batch), new(batch.Response)); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// outcome is what a run showed.
type outcome struct {
	wrong    []string // broken promises
	hash     uint64   // of all events
	events   int
	accepted int // items with a 207
	lost     int // requests without a response
}

// epoch is the simulated time at which a run starts.
var epoch = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

// simulate runs one schedule.
func simulate(t *testing.T, seed uint64, length time.Duration, faults []fault, show io.Writer) (o outcome) {
	cryptotest.SetGlobalRandom(t, seed)
	dead := filepath.Join(t.TempDir(), "dead_letters.jsonl")
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(2 << 30)) // collects all the same beyond
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(epoch))
		w := newWorld(t, seed, dead, show)
		defer w.close()
		for _, r := range w.replicas {
			if err := r.start(); err != nil {
				t.Fatal(err)
			}
		}
		var sending sync.WaitGroup
		for i := range clients {
			c := &client{w: w, id: i, rng: random(seed, 100+uint64(i))}
			sending.Go(func() { c.run(w.start.Add(length)) })
		}
		for _, f := range faults {
			time.Sleep(time.Until(w.start.Add(f.at)))
			collect()
			if !w.over() {
				w.apply(f)
			}
		}
		time.Sleep(time.Until(w.start.Add(length)))
		w.settle()
		sending.Wait()
		w.settle()
		for _, r := range w.replicas {
			r.stop()
		}
		o.wrong, o.accepted = w.judge()
		o.hash, o.events, o.lost = w.trace.hash.Sum64(), w.trace.events, w.lost
	})
	return o
}

// collect frees memory while all goroutines wait. At other times, that would change their order.
func collect() {
	synctest.Wait()
	runtime.GC()
}

// TestSimulate simulates the hours that the flags ask for, each with faults of its own.
func TestSimulate(t *testing.T) {
	length, runs := time.Hour, *hours
	if runs == 0 {
		length, runs = 5*time.Minute, 4
	}
	var out io.Writer
	if *showEvents {
		out = os.Stdout
	}
	total := 0
	for seed := *startSeed; seed < *startSeed+uint64(runs); seed++ {
		faults := schedule(seed, length)
		if numbers, err := parseKeep(); len(numbers) > 0 || err != nil {
			require.NoError(t, err)
			all := faults
			faults = nil
			for _, i := range numbers {
				faults = append(faults, all[i])
			}
			length = min(length, faults[len(faults)-1].at+5*time.Minute)
		}
		t.Logf("schedule of %d faults", len(faults)) // known even if the run panics
		o := simulate(t, seed, length, faults, out)
		total += o.accepted
		t.Logf("seed %d: %d faults, %d items accepted, %d responses lost, %d events, hash %016x", seed, len(faults), o.accepted, o.lost, o.events, o.hash)
		if len(o.wrong) > 0 {
			t.Fatalf("wrong: %s\nafter the faults:\n%s", strings.Join(o.wrong, "\n"), text(faults))
		}
	}
	require.NotZero(t, total)
}

// text returns a schedule, one fault a line.
func text(faults []fault) string {
	var b strings.Builder
	for _, f := range faults {
		fmt.Fprintln(&b, f)
	}
	return b.String()
}

package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"trafficd/pipeline/batch"
)

var (
	firstSeed = flag.Uint64("seed", 1, "first seed")
	hours     = flag.Int("hours", 0, "simulated hours, each with the next seed; 0 for a few minutes")
	patience  = flag.Duration("shrink", time.Minute, "time to look for a shorter schedule that fails")
	show      = flag.Bool("trace", false, "show the events")
)

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
		if err := w.startDaemon(); err != nil {
			t.Fatal(err)
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
		w.stopDaemon()
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
	if *show {
		out = os.Stdout
	}
	began, total, count := time.Now(), 0, 0
	for seed := *firstSeed; seed < *firstSeed+uint64(runs); seed++ {
		faults := schedule(seed, length)
		o := simulate(t, seed, length, faults, out)
		total, count = total+o.accepted, count+len(faults)
		t.Logf("seed %d: %d faults, %d items accepted, %d responses lost, %d events, hash %016x", seed, len(faults), o.accepted, o.lost, o.events, o.hash)
		if len(o.wrong) > 0 {
			t.Logf("found after %s, %d simulated hours and %d faults", time.Since(began).Round(time.Second), seed-*firstSeed+1, count)
			t.Logf("wrong: %s", strings.Join(o.wrong, "\n"))
			shortest := shrink(t, seed, length, faults)
			t.Fatalf("seed %d fails; the shortest schedule found has %d faults:\n%s", seed, len(shortest), text(shortest))
		}
	}
	simulated := time.Duration(runs) * length
	t.Logf("simulated %s with %d faults in %s: %.0f hours a minute; %d items accepted", simulated, count, time.Since(began).Round(time.Millisecond),
		simulated.Hours()/time.Since(began).Minutes(), total)
	require.NotZero(t, total)
}

// shrink drops faults from a schedule while the run still fails (ddmin), and returns the rest.
func shrink(t *testing.T, seed uint64, length time.Duration, faults []fault) []fault {
	began := time.Now()
	for parts := 2; len(faults) > 0 && time.Since(began) < *patience; {
		size, dropped := (len(faults)+parts-1)/parts, false
		for from := 0; from < len(faults) && time.Since(began) < *patience; from += size {
			rest := slices.Concat(faults[:from], faults[min(from+size, len(faults)):])
			if len(simulate(t, seed, length, rest, nil).wrong) > 0 {
				faults, dropped = rest, true
				from -= size
			}
		}
		switch {
		case dropped:
			parts = max(2, min(parts-1, len(faults)))
		case size == 1:
			return faults
		default:
			parts = min(2*parts, len(faults))
		}
	}
	return faults
}

// text returns a schedule, one fault a line.
func text(faults []fault) string {
	var b strings.Builder
	for _, f := range faults {
		fmt.Fprintln(&b, f)
	}
	return b.String()
}

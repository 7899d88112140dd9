// Command simulate runs the daemon's intake, journal, deliveries and clients of the stores, with a
// disk, a network and stores in memory, in one process on a fake clock. The faults come from a
// seed. It compares what arrived with what was accepted.
//
// It builds its test with a Go runtime in which nothing is random in a bubble of testing/synctest:
// neither the scheduler, select and maps nor math/rand and the order of timers. Each seed has a
// process of its own, so that a seed has the same events whatever ran before. A few runs differ all
// the same; -runs compares them.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"sync"
	"time"

	"trafficd/cmd/dev/chaos/internal/faultinject"
	"trafficd/cmd/dev/must"
)

var (
	startSeed  = flag.Uint64("first", 1, "first seed")
	seedCount  = flag.Int("count", 10, "simulated hours, each with the next seed")
	runCount   = flag.Int("runs", 1, "number of runs of each seed, whose events must have the same hash")
	showEvents = flag.Bool("events", false, "show the events")
)

// changes make the runtime's random numbers a sequence of the bubble and those of maps follow the
// bubble's clock, because programs create maps outside of it, too. Goroutines are not interrupted,
// and no wait depends on the real clock.
var changes = []faultinject.Change{
	{File: "runtime/synctest.go", Old: "type synctestBubble struct {\n", New: "type synctestBubble struct {\n\trand uint64\n"},
	{File: "runtime/rand.go", Old: "func rand() uint64 {\n", New: `func rand() uint64 {
	if bubble := getg().bubble; bubble != nil { // splitmix64
		bubble.rand += 0x9e3779b97f4a7c15
		z := bubble.rand
		z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		return z ^ z>>31
	}
`},
	{File: "runtime/select.go", Old: "cheaprandn(uint32(norder + 1))", New: "uint32(rand() % uint64(norder+1))"},
	{File: "runtime/time.go", Old: "t.rand = cheaprand()", New: "t.rand = uint32(rand())"},
	{
		File: "runtime/rand.go",
		Old:  "func maps_rand() uint64 {\n",
		New: "func maps_rand() uint64 {\n\tif bubble := getg().bubble; bubble != nil {\n" +
			"\t\treturn uint64(bubble.now) * 0x9e3779b97f4a7c15\n\t}\n",
	},
	{
		File: "runtime/rand.go",
		Old:  "\tglobalRand.state.Init(*seed)\n",
		New:  "\tclear(seed[:])\n\tseed[0] = 1\n\tglobalRand.state.Init(*seed)\n",
	},
	{
		File: "runtime/proc.go",
		Old:  "func retake(now int64) uint32 {\n",
		New:  "func retake(now int64) uint32 {\n\treturn 0\n}\n\nfunc retake_(now int64) uint32 {\n",
	},
	{File: "internal/sync/mutex.go", Old: "starvationThresholdNs = 1e6", New: "starvationThresholdNs = 1 << 60"},
}

func main() {
	flag.Parse()
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "simulate:", err)
		os.Exit(1)
	}
}

var summary = regexp.MustCompile(`seed \d+: (\d+) faults, .*`)

func run(ctx context.Context) (err error) {
	defer must.Return(&err, "cannot simulate")
	dir := must.Get(os.MkdirTemp("", "simulate-"))
	defer func() { _ = os.RemoveAll(dir) }()
	overlay := must.Get(faultinject.Patch(ctx, dir, changes, map[string]string{}))
	program := filepath.Join(dir, "simulate.test")
	build := exec.CommandContext(ctx, "go", "test", "-c", overlay, "-o", program, "./cmd/dev/chaos/simulate")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOEXPERIMENT=norandomizedheapbase64")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("cannot build the simulation: %w\n%s", err, out)
	}
	began, total := time.Now(), 0
	var mu sync.Mutex
	var working sync.WaitGroup
	next := uint64(0)
	for range runtime.GOMAXPROCS(0) { // a run uses one processor
		working.Go(func() {
			mu.Lock()
			defer mu.Unlock()
			for next < uint64(*seedCount) {
				seed := *startSeed + next
				next++
				mu.Unlock()
				faults, failed := simulateSeed(ctx, program, seed)
				mu.Lock()
				total, err = total+faults, errors.Join(err, failed)
			}
		})
	}
	working.Wait()
	took := time.Since(began)
	fmt.Printf("simulated %d seeds %d times with %d faults each time in %s: %.0f hours a minute\n",
		next, *runCount, total, took.Round(time.Second), float64(next)*float64(*runCount)/took.Minutes())
	return err
}

// simulateSeed simulates the hour of a seed, and returns the number of its faults.
func simulateSeed(ctx context.Context, program string, seed uint64) (faults int, err error) {
	var first string
	equal := 0
	for range *runCount {
		run := exec.CommandContext(ctx, program, "-test.run=^TestSimulate$", "-test.v", "-test.timeout=0",
			"-seed="+strconv.FormatUint(seed, 10), "-hours=1", "-trace="+strconv.FormatBool(*showEvents))
		run.Env = append(os.Environ(), "GOMAXPROCS=1", "GODEBUG=asyncpreemptoff=1")
		out, err := run.CombinedOutput()
		if *showEvents || err != nil {
			fmt.Printf("%s", out)
		}
		if err != nil {
			return 0, fmt.Errorf("seed %d fails: %w", seed, err)
		}
		found := summary.FindSubmatch(out)
		if first == "" {
			first, faults = string(found[0]), must.Get(strconv.Atoi(string(found[1])))
		}
		if string(found[0]) == first {
			equal++
		}
	}
	fmt.Println(first)
	if equal != *runCount {
		return faults, fmt.Errorf("seed %d: only %d of %d runs have the same events", seed, equal, *runCount)
	}
	return faults, nil
}

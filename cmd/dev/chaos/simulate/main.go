// Command simulate runs the daemon's intake, journal, deliveries and clients of the stores, with a
// disk, a network and stores in memory, in one process on a fake clock. The faults come from a
// seed. It compares what arrived with what was accepted.
//
// It builds its test with a Go runtime in which nothing is random in a bubble of testing/synctest:
// neither the scheduler, select and maps nor math/rand and the order of timers. Each seed has a
// process of its own, so that a seed has the same events whatever ran before; -runs compares them.
// If a seed fails, it prints the shortest schedule of faults with which it still fails.
//
// With -planted, it builds the simulation with one bug after the other of testdata/planted, and
// expects that it finds each.
//
// It cannot see faults of what it does not run: the HTTP server and its limits, the keys and the
// lists of detectors, clients that send parts of a body, the kernel's disk and network, real stores
// (chfake and kfake keep only those of their rules that the sinks rely on), several processors
// (one goroutine runs at a time until it waits), and what takes more than an hour, such as the
// end of an idempotency window.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"trafficd/cmd/dev/chaos/internal/faultinject"
	"trafficd/cmd/dev/must"
)

var (
	startSeed  = flag.Uint64("first", 1, "first seed")
	seedCount  = flag.Int("count", 10, "simulated hours, each with the next seed")
	runCount   = flag.Int("runs", 1, "number of runs of each seed, whose events must have the same hash")
	keepFaults = flag.String("keep", "", "the only faults of the schedule that happen, as numbers; all if empty")
	patience   = flag.Duration("shrink", 2*time.Minute, "time to look for a shorter schedule that fails")
	showEvents = flag.Bool("events", false, "show the events")
	planted    = flag.Duration("planted", 0, "look for each planted bug for this long, instead of simulating the daemon as it is")
)

// changes make the runtime's random numbers a sequence of the bubble and those of maps follow the
// bubble's clock, because programs create maps outside of it, too. Goroutines are not interrupted,
// and no wait depends on the real clock. The global queue has its turn when the local one is empty,
// not each 61st time, because garbage collections count, too, and what they run depends on the real
// clock; nor does a finalizer run before the goroutine that is next.
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
	{File: "runtime/proc.go", Old: "if pp.schedtick%61 == 0 && ", New: "if false && "},
	{
		File: "runtime/proc.go",
		Old:  "wakefing(); gp != nil {\n\t\t\tready(gp, 0, true)",
		New:  "wakefing(); gp != nil {\n\t\t\tready(gp, 0, false)",
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

func run(ctx context.Context) (err error) {
	defer must.Return(&err, "cannot simulate")
	dir := must.Get(os.MkdirTemp("", "simulate-"))
	defer func() { _ = os.RemoveAll(dir) }()
	_ = must.Get(faultinject.Patch(ctx, dir, changes, map[string]string{}))
	if *planted > 0 {
		return findPlanted(ctx, dir)
	}
	program := must.Get(build(ctx, dir, "simulate", nil))
	began, total := time.Now(), 0
	var mu sync.Mutex
	inParallel(*seedCount, func(i int) {
		faults, failed := simulateSeed(ctx, program, *startSeed+uint64(i))
		mu.Lock()
		defer mu.Unlock()
		total, err = total+faults, errors.Join(err, failed)
	})
	took := time.Since(began)
	fmt.Printf("simulated %d seeds %d times with %d faults each time in %s: %.0f hours a minute\n",
		*seedCount, *runCount, total, took.Round(time.Second), float64(*seedCount**runCount)/took.Minutes())
	return err
}

// inParallel calls do with 0 to n-1. A run uses one processor.
func inParallel(n int, do func(i int)) {
	var next atomic.Int64
	var working sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		working.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				do(i)
			}
		})
	}
	working.Wait()
}

// build builds the simulation with the changed runtime in dir and with the given files instead of
// those of the repository.
func build(ctx context.Context, dir, name string, files map[string]string) (program string, err error) {
	defer must.Return(&err, "cannot build the simulation")
	var overlay struct{ Replace map[string]string }
	must.Do(json.Unmarshal(must.Get(os.ReadFile(filepath.Join(dir, "overlay.json"))), &overlay))
	maps.Copy(overlay.Replace, files)
	program = filepath.Join(dir, name+".test")
	must.Do(os.WriteFile(program+".json", must.Get(json.Marshal(overlay)), 0o644))
	cmd := exec.CommandContext(ctx, "go", "test", "-c", "-overlay", program+".json", "-o", program, "./cmd/dev/chaos/simulate")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOEXPERIMENT=norandomizedheapbase64")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return program, nil
}

// result is what a run of a seed printed.
type result struct {
	out     []byte
	summary string
	faults  int
	failed  error
}

var (
	scheduleLine = regexp.MustCompile(`schedule of (\d+) faults`)
	summaryLine  = regexp.MustCompile(`seed \d+: \d+ faults, .*`)
	wrongLine    = regexp.MustCompile(`wrong: .*|fatal error: .*|panic: .*`)
)

// runSeed simulates the hour of a seed in a process of its own, with the given faults of its
// schedule, or with all if keep is nil.
func runSeed(ctx context.Context, program string, seed uint64, keep []int) (r result) {
	run := exec.CommandContext(ctx, program, "-test.run=^TestSimulate$", "-test.v", "-test.timeout=0",
		"-first="+strconv.FormatUint(seed, 10), "-hours=1", "-events="+strconv.FormatBool(*showEvents), "-keep="+numbers(keep))
	run.Env = append(os.Environ(), "GOMAXPROCS=1", "GODEBUG=asyncpreemptoff=1")
	r.out, r.failed = run.CombinedOutput()
	if found := scheduleLine.FindSubmatch(r.out); found != nil {
		r.faults, _ = strconv.Atoi(string(found[1]))
	}
	r.summary = string(summaryLine.Find(r.out))
	if r.summary == "" && r.failed == nil {
		r.failed = errors.New("the run has no result")
	}
	return r
}

// parseKeep returns the numbers in the flag -keep, nil if there are none.
func parseKeep() (list []int, err error) {
	for text := range strings.FieldsFuncSeq(*keepFaults, func(r rune) bool { return r == ',' }) {
		n, err := strconv.Atoi(text)
		if err != nil {
			return nil, fmt.Errorf("invalid -keep: %w", err)
		}
		list = append(list, n)
	}
	return list, nil
}

func numbers(list []int) string {
	return strings.ReplaceAll(strings.Trim(fmt.Sprint(list), "[]"), " ", ",")
}

// simulateSeed simulates a seed several times, and returns the number of its faults.
func simulateSeed(ctx context.Context, program string, seed uint64) (faults int, err error) {
	keep, err := parseKeep()
	if err != nil {
		return 0, err
	}
	var first result
	equal := 0
	for i := range *runCount {
		r := runSeed(ctx, program, seed, keep)
		if r.failed != nil {
			shortest, out := shrink(ctx, program, seed, r, keep)
			fmt.Printf("%s", out)
			return 0, fmt.Errorf("seed %d fails (%w), also with %d faults only; to repeat it, run "+
				"make simulate SEED=%d HOURS=1 TRACE=yes ARGS='-keep %s'", seed, r.failed, len(shortest), seed, numbers(shortest))
		}
		if *showEvents {
			fmt.Printf("%s", r.out)
		}
		if i == 0 {
			first = r
		}
		if r.summary == first.summary {
			equal++
		}
	}
	fmt.Println(first.summary)
	if equal != *runCount {
		return first.faults, fmt.Errorf("seed %d: only %d of %d runs have the same events", seed, equal, *runCount)
	}
	return first.faults, nil
}

// shrink drops faults from the schedule of a failed run while it still fails: first those after the
// failure, then those long before it, and then any (ddmin). It returns the numbers of the faults
// that are left, and the output of their run.
func shrink(ctx context.Context, program string, seed uint64, failed result, keep []int) (left []int, out []byte) {
	began := time.Now()
	left, out = keep, failed.out
	if keep == nil {
		for i := range failed.faults {
			left = append(left, i)
		}
	}
	fails := func(list []int) bool {
		if len(list) == 0 || time.Since(began) > *patience || ctx.Err() != nil {
			return false
		}
		r := runSeed(ctx, program, seed, list)
		if r.failed != nil {
			left, out = list, r.out
		}
		return r.failed != nil
	}
	for low := 0; low < len(left)-1; {
		if middle := (low + len(left)) / 2; !fails(left[:middle]) {
			low = middle
		}
	}
	for last := 1; last < len(left); last *= 2 { // the latest ones often suffice
		if fails(left[len(left)-last:]) {
			break
		}
	}
	for parts := 2; time.Since(began) < *patience; {
		size, dropped := (len(left)+parts-1)/parts, false
		for from := 0; from < len(left); {
			if fails(slices.Concat(left[:from], left[min(from+size, len(left)):])) {
				dropped = true
			} else {
				from += size
			}
		}
		switch {
		case dropped:
			parts = max(2, min(parts-1, len(left)))
		case size <= 1:
			return left, out
		default:
			parts = min(2*parts, len(left))
		}
	}
	return left, out
}

// findPlanted looks for each planted bug, and prints what found it.
func findPlanted(ctx context.Context, dir string) (err error) {
	patches := must.Get(filepath.Glob("cmd/dev/chaos/simulate/testdata/planted/*.patch"))
	var mu sync.Mutex
	var missed []string
	inParallel(len(patches), func(i int) {
		name := strings.TrimSuffix(filepath.Base(patches[i]), ".patch")
		line, failed := findBug(ctx, dir, name, patches[i])
		mu.Lock()
		defer mu.Unlock()
		if failed != nil || strings.HasPrefix(line, notFound) {
			missed = append(missed, name)
		}
		err = errors.Join(err, failed)
		fmt.Printf("%s: %s\n", name, line)
	})
	fmt.Printf("found %d of %d planted bugs\n", len(patches)-len(missed), len(patches))
	if err == nil && len(missed) > 0 {
		err = fmt.Errorf("not found: %s", strings.Join(missed, ", "))
	}
	return err
}

const notFound = "not found"

// findBug simulates one seed after the other with a bug until one fails. It describes the result.
func findBug(ctx context.Context, dir, name, patch string) (line string, err error) {
	defer must.Return(&err, "cannot look for "+name)
	program := must.Get(build(ctx, dir, name, must.Get(plant(ctx, filepath.Join(dir, name), patch))))
	defer func() { _ = os.Remove(program) }()
	began := time.Now()
	within, cancel := context.WithTimeout(ctx, *planted)
	defer cancel()
	for seed := *startSeed; ; seed++ {
		r := runSeed(within, program, seed, nil)
		if within.Err() != nil {
			return fmt.Sprintf("%s in %s and %d hours", notFound, *planted, seed-*startSeed), nil
		}
		if r.failed == nil {
			continue
		}
		took := time.Since(began)
		shortest, out := shrink(ctx, program, seed, r, nil)
		return fmt.Sprintf("found after %s with seed %d; still fails with %d faults (-keep %s); %s",
			took.Round(time.Second), seed, len(shortest), numbers(shortest), wrongLine.Find(out)), nil
	}
}

// plant writes the files that a patch changes to dir, and returns the names of those that they
// replace.
func plant(ctx context.Context, dir, patch string) (files map[string]string, err error) {
	defer must.Return(&err, "cannot plant "+patch)
	files = map[string]string{}
	text := must.Get(os.ReadFile(patch))
	for _, name := range regexp.MustCompile(`(?m)^\+\+\+ b/(\S+)`).FindAllSubmatch(text, -1) {
		file := filepath.Join(dir, string(name[1]))
		must.Do(os.MkdirAll(filepath.Dir(file), 0o755))
		must.Do(os.WriteFile(file, must.Get(os.ReadFile(string(name[1]))), 0o644))
		files[must.Get(filepath.Abs(string(name[1])))] = file
	}
	apply := exec.CommandContext(ctx, "git", "apply", "-")
	apply.Dir, apply.Stdin, apply.Env = dir, bytes.NewReader(text), append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(dir))
	if out, err := apply.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, out)
	}
	return files, nil
}

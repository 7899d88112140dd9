// Package nemesis injects faults by plan: a seed determines, for each target, the order of its faults, their parameters and
// the pauses between them. Targets are hit independently, so their faults coincide in every combination.
package nemesis

import (
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"
)

// Fault is one way to disturb a target.
type Fault struct {
	Name   string
	Weight int // relative to the target's other faults
	// Hit injects the fault and undoes it before it returns, without delay once ctx is done. It draws all parameters
	// from r first, so that the plan does not depend on the outcome.
	Hit func(ctx context.Context, r *rand.Rand) error
}

// Target is hit by one fault at a time.
type Target struct {
	Name   string
	Gap    time.Duration // mean pause between two faults
	Faults []Fault
}

// Counts maps "target fault" to its number of hits.
type Counts map[string]int

// Of returns the sum over the faults of a target whose names have one of the prefixes.
func (c Counts) Of(target string, prefixes ...string) int {
	n := 0
	for name, count := range c {
		fault, ok := strings.CutPrefix(name, target+" ")
		if ok && slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(fault, p) }) {
			n += count
		}
	}
	return n
}

// Add adds another run's counts.
func (c Counts) Add(o Counts) {
	for name, n := range o {
		c[name] += n
	}
}

// Run hits all targets until ctx ends. When it returns, all faults are undone; an error means that one could not be.
func Run(ctx context.Context, seed uint64, targets []Target, log func(format string, args ...any)) (Counts, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	counts, errs := make([]Counts, len(targets)), make([]error, len(targets))
	var all sync.WaitGroup
	for i, t := range targets {
		all.Go(func() {
			counts[i] = Counts{}
			if errs[i] = t.run(ctx, seed, counts[i], log); errs[i] != nil {
				stop() // results after a permanent fault are meaningless
			}
		})
	}
	all.Wait()
	sum := Counts{}
	for i := range targets {
		sum.Add(counts[i])
		if errs[i] != nil {
			return sum, errs[i]
		}
	}
	return sum, nil
}

func (t Target) run(ctx context.Context, seed uint64, counts Counts, log func(format string, args ...any)) error {
	if t.Gap <= 0 || len(t.Faults) == 0 {
		return nil
	}
	r := t.source(seed)
	for {
		if !Sleep(ctx, time.Duration(r.ExpFloat64()*float64(t.Gap))) {
			return nil
		}
		f := t.choose(r)
		log("%s: %s", t.Name, f.Name)
		counts[t.Name+" "+f.Name]++
		if err := f.Hit(ctx, r); err != nil {
			return fmt.Errorf("%s: %s: %w", t.Name, f.Name, err)
		}
	}
}

// source returns the target's own random source, so that events at one target do not change the plan of another.
func (t Target) source(seed uint64) *rand.Rand {
	h := fnv.New64a()
	_, _ = h.Write([]byte(t.Name)) // never fails
	return rand.New(rand.NewPCG(seed, h.Sum64()))
}

func (t Target) choose(r *rand.Rand) Fault {
	sum := 0
	for _, f := range t.Faults {
		sum += f.Weight
	}
	n := r.IntN(sum)
	for _, f := range t.Faults {
		if n -= f.Weight; n < 0 {
			return f
		}
	}
	panic("unreachable: n was below the sum")
}

// Between returns a random duration in [low, high].
func Between(r *rand.Rand, low, high time.Duration) time.Duration {
	return low + time.Duration(r.Int64N(int64(high-low)+1))
}

// Sleep waits for d and reports whether d elapsed before ctx was done.
func Sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

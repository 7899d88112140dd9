// Package nemesis injects faults according to a plan: for each target, a seed determines the order
// of the faults, their parameters and the pauses between them. Faults are injected into each target
// independently, so faults on different targets may coincide.
package nemesis

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"trafficd/cmd/dev/launch"
)

// Hit injects a fault, undoes it and returns. Once ctx is done, it undoes the fault immediately. It
// draws all parameters from r first, so that the plan does not depend on the outcome.
type Hit func(ctx context.Context, r *rand.Rand) error

// ErrNotInjected is returned by a Hit that could not inject its fault. Counts omits such hits.
var ErrNotInjected = errors.New("the fault was not injected")

// Fault is one way to disturb a target.
type Fault struct {
	Name   string
	Weight int // relative to the target's other faults
	Hit    Hit
}

// During returns a Hit whose fault lasts for a random time: begin draws the parameters and injects
// the fault, and end undoes it, even if begin returned ErrNotInjected.
func During(shortest, longest time.Duration, begin func(*rand.Rand) error, end func() error) Hit {
	return func(ctx context.Context, r *rand.Rand) error {
		duration := shortest + time.Duration(r.Int64N(int64(longest-shortest)+1))
		err := begin(r)
		if err != nil && !errors.Is(err, ErrNotInjected) {
			return err
		}
		launch.Sleep(ctx, duration)
		return cmp.Or(end(), err)
	}
}

// Target is a part of the system. It is hit by one fault at a time.
type Target struct {
	Name   string
	Number int           // distinguishes targets with the same name
	Gap    time.Duration // mean pause before each fault; 0 = never hit
	Faults []Fault
}

// Counts maps the names of a target and a fault, joined by a space, to the number of hits.
type Counts map[string]int

// Of returns the number of hits on a target by faults whose names begin with one of the prefixes.
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

// Total returns the number of hits.
func (c Counts) Total() (n int) {
	for _, count := range c {
		n += count
	}
	return n
}

// Add adds the counts of o to c.
func (c Counts) Add(o Counts) {
	for name, n := range o {
		c[name] += n
	}
}

// Run hits all targets until ctx is done or a Hit returns an error other than ErrNotInjected.
// Unless it returns an error, all faults have been undone.
func Run(ctx context.Context, seed uint64, targets []Target, log func(format string, args ...any)) (Counts, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	counts := make([]Counts, len(targets))
	err := launch.Each(targets, func(i int, t Target) (err error) {
		if counts[i], err = t.run(ctx, seed, log); err != nil {
			stop() // the fault may be permanent, which would make the results meaningless
		}
		return err
	})
	if err == nil {
		<-ctx.Done() // in case all gaps are 0
	}
	sum := Counts{}
	for _, c := range counts {
		sum.Add(c)
	}
	return sum, err
}

func (t Target) run(ctx context.Context, seed uint64, log func(format string, args ...any)) (Counts, error) {
	counts, sum := Counts{}, 0
	for _, f := range t.Faults {
		sum += f.Weight
	}
	if t.Gap <= 0 || sum == 0 {
		return counts, nil
	}
	// Each target has its own random source, so that one target does not change another's plan.
	h := fnv.New64a()
	_, _ = h.Write([]byte(t.Name)) // never fails
	r := rand.New(rand.NewPCG(seed, h.Sum64()+uint64(t.Number)))
	for launch.Sleep(ctx, time.Duration(r.ExpFloat64()*float64(t.Gap))) {
		n := r.IntN(sum)
		i := slices.IndexFunc(t.Faults, func(f Fault) bool {
			n -= f.Weight
			return n < 0
		})
		f := t.Faults[i]
		log("%s %d: %s", t.Name, t.Number, f.Name)
		err := f.Hit(ctx, r)
		switch {
		case err == nil:
			log("%s %d: %s is over", t.Name, t.Number, f.Name)
			counts[t.Name+" "+f.Name]++
		case errors.Is(err, ErrNotInjected):
			log("%s %d: %v", t.Name, t.Number, err)
		default:
			return counts, fmt.Errorf("%s: %s: %w", t.Name, f.Name, err)
		}
	}
	return counts, nil
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"time"

	"trafficd/cmd/chaos/internal/ledger"
	"trafficd/cmd/chaos/internal/load"
	"trafficd/cmd/chaos/internal/nemesis"
	"trafficd/cmd/chaos/internal/rig"
)

// trials follow the faults of a run with several replicas: each measures one thing, under load.
type trials struct {
	config
	rig     *rig.Rig
	clients load.Clients
	book    *ledger.Ledger
	counts  nemesis.Counts // of all faults
	log     func(format string, args ...any)
	out     io.Writer
}

// trialLimit bounds each trial.
const trialLimit = 10 * time.Minute

func (t *trials) run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, trialLimit)
	defer cancel()
	if t.Equal > 0 {
		if err := t.equalKeys(ctx); err != nil {
			return err
		}
	}
	if t.Rollouts+t.Kills == 0 {
		return nil
	}
	if err := t.asShipped(ctx); err != nil {
		return err
	}
	return errors.Join(t.rollouts(ctx), t.takeovers(ctx))
}

// underLoad sends batches while it calls do, and returns what the clients counted meanwhile.
func (t *trials) underLoad(ctx context.Context, how load.Manner, do func(ctx context.Context) error) (ledger.Tally, error) {
	before := t.book.Tally()
	soft, stop := context.WithCancel(ctx)
	sent := send(soft, ctx, t.clients, how, t.book)
	err := do(soft)
	stop()
	keepUp(t.rig, sent)
	after := t.book.Tally()
	return ledger.Tally{
		Batches: after.Batches - before.Batches, Resent: after.Resent - before.Resent,
		Requests: after.Requests - before.Requests, Answers: after.Answers - before.Answers,
	}, err
}

// equalKeys sends each batch to all replicas at once, several times, while they are killed. Answers
// that differ are wrong, and the judge finds more than one effect.
func (t *trials) equalKeys(ctx context.Context) error {
	begin, kills := t.book.Tally().Requests, 0
	tally, err := t.underLoad(ctx, load.Equal, func(ctx context.Context) error {
		enough, stop := context.WithCancel(ctx)
		defer stop()
		go func() {
			for t.book.Tally().Requests < begin+t.Equal && nemesis.Sleep(enough, 50*ms) {
			}
			stop()
		}()
		var targets []nemesis.Target
		for n, d := range t.rig.Replicas {
			kill := nemesis.Fault{Name: kill9, Weight: 1, Hit: nemesis.During(0, 500*ms, always(d.Kill), d.Start)}
			targets = append(targets, nemesis.Target{Name: daemon, Number: n, Gap: 6 * time.Second, Faults: []nemesis.Fault{kill}})
		}
		counts, err := nemesis.Run(enough, t.Seed, targets, t.log)
		kills = counts.Of(daemon, kill9)
		t.counts.Add(counts)
		return err
	})
	fmt.Fprintf(t.out, "chaos: equal keys: %d requests with %d keys, %d with a 207, %d kills\n",
		tally.Requests, tally.Batches, tally.Answers, kills)
	return err
}

// asShipped restarts the replicas with the shipped settings for a rolling restart and a takeover.
// The other settings of the rig make faults more frequent.
func (t *trials) asShipped(ctx context.Context) error {
	for _, d := range t.rig.Replicas {
		d.Set("api.drain_grace=2s", "journal.log.session_timeout=6s")
	}
	return t.restartAll(ctx)
}

// restartAll restarts the replicas in turn, each when the previous one is ready and HAProxy has
// noticed.
func (t *trials) restartAll(ctx context.Context) error {
	const noticed = 2 * time.Second // rise 2 × inter 500 ms
	for _, d := range t.rig.Replicas {
		if err := errors.Join(d.Terminate(), d.Start()); err != nil {
			return err
		}
		if err := d.AwaitReady(ctx, time.Minute); err != nil {
			return err
		}
		nemesis.Sleep(ctx, noticed)
	}
	return nil
}

// rollouts counts the requests that fail behind HAProxy.
func (t *trials) rollouts(ctx context.Context) error {
	if t.Rollouts == 0 {
		return nil
	}
	tally, err := t.underLoad(ctx, load.Balanced, func(ctx context.Context) error {
		for range t.Rollouts {
			if err := t.restartAll(ctx); err != nil {
				return err
			}
		}
		return nil
	})
	fmt.Fprintf(t.out, "chaos: rolling restart: %d restarts, %d requests through HAProxy, %d failed\n",
		t.Rollouts*len(t.rig.Replicas), tally.Requests, tally.Resent)
	return err
}

// takeovers measures the time from the kill of a replica, and so from its last 207, until the
// others have delivered to a store everything that had been accepted by then.
func (t *trials) takeovers(ctx context.Context) error {
	if t.Kills == 0 {
		return nil
	}
	var times []time.Duration
	_, err := t.underLoad(ctx, load.Balanced, func(ctx context.Context) error {
		r := rand.New(rand.NewPCG(t.Seed, 0))
		for range t.Kills {
			d := t.rig.Replicas[r.IntN(len(t.rig.Replicas))]
			if err := t.rig.Delivered(ctx, trialLimit, nil); err != nil { // all partitions are owned
				return err
			}
			t.counts.Add(nemesis.Counts{daemon + " " + kill9: 1})
			killed := time.Now()
			if err := d.Kill(); err != nil {
				return err
			}
			err := t.rig.Delivered(ctx, trialLimit, func() { times = append(times, time.Since(killed)) })
			if err = errors.Join(err, d.Start()); err != nil {
				return err
			}
			if err := d.AwaitReady(ctx, time.Minute); err != nil {
				return err
			}
		}
		return nil
	})
	if len(times) > 0 {
		slices.Sort(times)
		at := func(q float64) float64 { return times[int(q*float64(len(times)-1))].Seconds() }
		fmt.Fprintf(t.out, "chaos: takeover: %d kills, p50 %.1f s, p99 %.1f s, max %.1f s\n", t.Kills, at(0.5), at(0.99), at(1))
	}
	return err
}

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"trafficd/cmd/dev/chaos/internal/judge"
	"trafficd/cmd/dev/chaos/internal/ledger"
	"trafficd/cmd/dev/chaos/internal/load"
	"trafficd/cmd/dev/chaos/internal/nemesis"
	"trafficd/cmd/dev/chaos/internal/rig"
	"trafficd/cmd/dev/launch"
	"trafficd/cmd/dev/must"
)

// observer reads the forecast layer throughout a run and judges it at the end.
type observer struct {
	rig       *rig.Rig
	book      *ledger.Ledger
	responses []judge.Response
	stop      func() // stops reading, and waits for a read in progress

	mu      sync.Mutex
	outages [][2]time.Time // start and end of each fault, including the target's recovery
}

// recovery is how long publications may be delayed after the end of a fault: the forecaster retries
// after 5 seconds, needs up to 10 to connect, and begins a transaction.
const recovery = 20 * time.Second

// observe starts reading the layer, unless there is no forecaster.
func observe(ctx context.Context, r *rig.Rig, book *ledger.Ledger) *observer {
	o := &observer{rig: r, book: book, stop: func() {}}
	if r.Forecaster == nil {
		return o
	}
	ctx, cancel := context.WithCancel(ctx)
	var reading sync.WaitGroup
	o.stop = func() { cancel(); reading.Wait() }
	reading.Go(func() { // ends with stop
		for launch.Sleep(ctx, 50*ms) {
			o.read(ctx)
		}
	})
	return o
}

// read requests the layer and records it, or an unexpected response.
func (o *observer) read(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	begin := time.Now()
	r, err := launch.GetLayer(ctx, http.DefaultClient, "http://"+o.rig.Replicas[0].API, load.APIKey(0), "")
	if err != nil || r.Status == http.StatusServiceUnavailable {
		return // the daemon is not running, or not ready
	}
	if r.Status != http.StatusOK {
		o.book.AddUnexpected("forecasts: status %d: %s", r.Status, r.Body)
		return
	}
	layer, err := judge.ParseLayer(r.Body)
	if err != nil {
		o.book.AddUnexpected("forecasts: %v", err)
		return
	}
	if n := len(o.responses); n > 0 && o.responses[n-1].Layer.Matches(layer) && layer.Matches(o.responses[n-1].Layer) {
		o.responses[n-1].Last = begin
		return
	}
	o.responses = append(o.responses, judge.Response{First: begin, Last: begin, Layer: layer})
}

// recordOutages makes each fault that can delay forecasts record an outage. Faults of the disk
// (which holds only the journal), the daemon's clock and the clients' network cannot delay them.
func (o *observer) recordOutages(targets []nemesis.Target) []nemesis.Target {
	for _, t := range targets {
		if t.Name == disk || t.Name == clock || t.Name == network+" of clients" {
			continue
		}
		for i, f := range t.Faults {
			t.Faults[i].Hit = func(ctx context.Context, r *rand.Rand) error {
				begin := time.Now()
				err := f.Hit(ctx, r)
				o.mu.Lock()
				defer o.mu.Unlock()
				o.outages = append(o.outages, [2]time.Time{begin, time.Now().Add(recovery)})
				return err
			}
		}
	}
	return targets
}

// outageBetween returns how much of the time between from and to was covered by outages.
func (o *observer) outageBetween(from, to time.Time) (sum time.Duration) {
	slices.SortFunc(o.outages, func(a, b [2]time.Time) int { return a[0].Compare(b[0]) })
	for _, outage := range o.outages {
		if outage[0].After(from) {
			from = outage[0]
		}
		end := outage[1]
		if end.After(to) {
			end = to
		}
		if end.After(from) {
			sum += end.Sub(from)
			from = end
		}
	}
	return sum
}

// settle waits until everything is delivered, starts a second forecaster that writes to a file, and
// waits until the daemon serves the same forecasts. Then it stops the first forecaster and judges
// the recorded responses.
func (o *observer) settle(ctx context.Context, out io.Writer) (err error) {
	defer must.Return(&err)
	r := o.rig
	if r.Forecaster == nil {
		return nil
	}
	defer o.stop()
	ctx, cancel := context.WithTimeout(ctx, 3*settleLimit)
	defer cancel()
	err = launch.Eventually(ctx, settleLimit, func() error {
		return cmp.Or(r.Revive(), r.Replicas[0].Delivered(ctx))
	})
	if err != nil {
		return nil // Drain reports it
	}
	reference, file, err := r.StartReference()
	must.Do(err)
	defer func() { _ = reference.Kill() }()
	mismatch := launch.Eventually(ctx, settleLimit, func() (err error) {
		defer must.Return(&err)
		must.Do(r.Revive())
		want := must.Get(judge.ParseLayer(must.Get(os.ReadFile(file))))
		served := &observer{rig: r, book: o.book}
		if served.read(ctx); len(served.responses) == 0 {
			return errors.New("the daemon serves no layer")
		}
		if got := served.responses[0].Layer; len(want) == 0 || !got.Matches(want) {
			return fmt.Errorf("the daemon's layer (%d streets until %v) differs from that of a newly started forecaster (%d until %v)",
				len(got), got.End(), len(want), want.End())
		}
		return nil
	})
	if mismatch != nil {
		o.book.AddUnexpected("forecasts: %v", mismatch)
	}
	o.stop()
	must.Do(r.Forecaster.Terminate())
	records := must.Get(launch.ReadTopic(ctx, r.Broker.Addresses(), rig.Forecasts, kgo.FetchIsolationLevel(kgo.ReadCommitted())))
	published := must.Get(judge.Publications(records))
	for _, fault := range judge.Forecasts(r.ForecastSettings, published, o.responses, o.outageBetween) {
		o.book.AddUnexpected("forecasts: %s", fault)
	}
	fmt.Fprintf(out, "forecasts: %d publications of %d streets, %d different layers served\n",
		len(published), r.ForecastSettings.Streets, len(o.responses))
	return nil
}

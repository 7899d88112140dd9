package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"

	ch "github.com/ClickHouse/clickhouse-go/v2"

	"trafficd/cmd/dev/chaos/internal/judge"
	"trafficd/cmd/dev/chaos/internal/ledger"
	"trafficd/cmd/dev/chaos/internal/load"
	"trafficd/cmd/dev/chaos/internal/rig"
	"trafficd/cmd/dev/launch"
	"trafficd/schemas/contract"
)

const (
	finalWithin = 5 * time.Second // from the delivery to the final state of a batch
	maxAsked    = 2000            // batches whose final state is asked for
)

// batches asks what became of batches: of recent ones throughout a run, and of many at its end.
type batches struct {
	rig     *rig.Rig
	book    *ledger.Ledger
	stop    func() // stops asking, and waits for a question in progress
	sampled int    // states that were compared with a store during the run
}

// observeBatches starts to ask for recent batches, and to compare the answers with the stores.
func observeBatches(ctx context.Context, r *rig.Rig, book *ledger.Ledger) *batches {
	b := &batches{rig: r, book: book}
	ctx, cancel := context.WithCancel(ctx)
	var asking sync.WaitGroup
	b.stop = func() { cancel(); asking.Wait() }
	asking.Go(func() { // ends with stop
		for n := 0; launch.Sleep(ctx, 300*time.Millisecond); n++ {
			b.sample(ctx, n%20 == 0)
		}
	})
	return b
}

// ask returns what a replica says of the batch of an item. The error is nil only for a 200 and a
// 404.
func (b *batches) ask(ctx context.Context, item ledger.Accepted) (s contract.BatchStatus, err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	replica := b.rig.Replicas[rand.IntN(len(b.rig.Replicas))]
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+replica.API+contract.BatchesPath+item.Batch, nil)
	if err != nil {
		return s, err
	}
	req.Header.Set("Authorization", "apiKey "+load.KeyOf(item.Detector))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return s, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return s, err
	case resp.StatusCode == http.StatusNotFound:
		return s, nil
	case resp.StatusCode != http.StatusOK:
		return s, fmt.Errorf("status %d: %s", resp.StatusCode, body)
	}
	return s, json.Unmarshal(body, &s)
}

// sample compares the state of the latest batch with what a store has afterwards.
func (b *batches) sample(ctx context.Context, topic bool) {
	item, ok := b.book.Latest()
	if !ok {
		return
	}
	s, err := b.ask(ctx, item)
	if err != nil || s.Archived == nil || s.Forwarded == nil {
		return // the daemon or the archive is away, or no receipt is known yet
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	claimed, store, has := s.Archived.Items, "archive", b.archived
	if topic {
		claimed, store, has = s.Forwarded.Items, "topic", b.forwarded
	}
	if n, err := has(ctx, item.Batch); err == nil { // otherwise the store is away
		if b.sampled++; n < claimed {
			b.book.AddUnexpected("batch %s: %d items are said to be in the %s, which has %d", item.Batch, claimed, store, n)
		}
	}
}

// archived returns the number of a batch's rows on the server that has the most. It fails unless
// all servers respond.
func (b *batches) archived(ctx context.Context, id string) (most int, err error) {
	for _, node := range b.rig.Archive.Nodes {
		conn, err := ch.Open(&ch.Options{Addr: []string{node.TCP}})
		if err != nil {
			return 0, err
		}
		var n uint64
		err = conn.QueryRow(ctx, "SELECT count() FROM "+b.rig.Archive.Table+" WHERE batch_id = ?", id).Scan(&n)
		_ = conn.Close()
		if err != nil {
			return 0, err
		}
		most = max(most, int(n))
	}
	return most, nil
}

func (b *batches) forwarded(ctx context.Context, id string) (n int, err error) {
	records, err := launch.ReadTopic(ctx, b.rig.Broker.Addresses(), rig.Topic)
	for _, r := range records {
		if r.Header("batch-id") == id {
			n++
		}
	}
	return n, err
}

// settle returns the states of up to maxAsked batches. Those that are not final after finalWithin
// stay so.
func (b *batches) settle(ctx context.Context) (states map[string]contract.BatchStatus, err error) {
	deadline := time.Now().Add(finalWithin)
	accepted, _, _ := b.book.Read()
	all := slices.CompactFunc(slices.Clone(accepted), func(x, y ledger.Accepted) bool { return x.Batch == y.Batch })
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	all = all[:min(len(all), maxAsked)]
	states = map[string]contract.BatchStatus{}
	var mu sync.Mutex
	const parallel = 4
	var askers [parallel]int
	err = launch.Each(askers[:], func(n, _ int) error {
		for i := n; i < len(all); i += parallel {
			for ctx.Err() == nil {
				s, err := b.ask(ctx, all[i])
				if err == nil && (s.Final || time.Now().After(deadline)) {
					mu.Lock()
					states[all[i].Batch] = s
					mu.Unlock()
					break
				}
				launch.Sleep(ctx, 100*time.Millisecond)
			}
		}
		return ctx.Err()
	})
	return states, err
}

// report judges the states, and prints how many there were.
func (b *batches) report(
	states map[string]contract.BatchStatus, accepted []ledger.Accepted, archive, topic []judge.Arrival, lost bool, out io.Writer,
) (wrong []string) {
	wrong = judge.Batches(states, accepted, archive, topic, lost)
	final := 0
	for _, s := range states {
		if s.Final {
			final++
		}
	}
	fmt.Fprintf(out, "batches: asked %d final %d wrong %d; compared with a store during the run %d\n",
		len(states), final, len(wrong), b.sampled)
	return wrong
}

// Package load is the clients of a run. Each owns its detectors and sends one
// batch after the other, every one under an Idempotency-Key and again and
// again until it has its 207, as `trafficctl send` does; so the order within a
// detector is defined, and in the end every batch is known to be accepted.
//
// Some items are bad on purpose, some attempts are called off before their
// answer, and some batches are sent once more after their 207.
package load

import (
	"context"
	"encoding/csv"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"trafficd/cmd/chaos/internal/ledger"
)

// Config is the size of the load.
type Config struct {
	Clients   int
	Detectors int // of each client
	Items     int // of a batch, at most
	Pause     time.Duration
	Seed      uint64
}

// Run sends until ctx ends, and then finishes what is under way: every batch
// that was begun gets its 207 before hard ends. The error says which did not.
func Run(ctx, hard context.Context, cfg Config, endpoint, apiKey string, l *ledger.Ledger) error {
	errs := make([]error, cfg.Clients)
	var all sync.WaitGroup
	for n := range cfg.Clients {
		all.Go(func() {
			rng := rand.New(rand.NewPCG(cfg.Seed, uint64(n)))
			c := &client{maker: newMaker(rng, n, cfg.Detectors), post: newPoster(endpoint, apiKey), ledger: l}
			defer c.post.close()
			errs[n] = c.run(ctx, hard, cfg)
		})
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// WriteRegistry writes the codes of all detectors that Run uses.
func WriteRegistry(path string, cfg Config) error {
	rows := [][]string{{"code"}}
	for c := range cfg.Clients {
		for d := range cfg.Detectors {
			rows = append(rows, []string{detector(c, d)})
		}
	}
	var text strings.Builder
	if err := csv.NewWriter(&text).WriteAll(rows); err != nil {
		return fmt.Errorf("cannot write the registry: %w", err)
	}
	if err := os.WriteFile(filepath.Clean(path), []byte(text.String()), 0o644); err != nil {
		return fmt.Errorf("cannot write the registry: %w", err)
	}
	return nil
}

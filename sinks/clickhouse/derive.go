package clickhouse

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	ch "github.com/ClickHouse/clickhouse-go/v2"

	"trafficd/pipeline/batch"
	"trafficd/pipeline/lib/metrics"
	schema "trafficd/schemas/clickhouse"
)

const (
	maxDeriveBlocks = 64             // maximum number of blocks in one update of the derived tables
	maxDeriveSpan   = 24 * time.Hour // maximum total of the ranges of received_at of its blocks, unless there is only one
	deriveTimeout   = 30 * time.Minute
)

// record adds the block to the table of blocks, so that the next update of the derived tables
// includes it. The block counts as delivered only after record has succeeded.
func (s *Sink) record(ctx context.Context, rows batch.Block) error {
	ctx, cancel := context.WithTimeout(ctx, s.config.WriteTimeout)
	defer cancel()
	shards, err := s.hosts.byShard()
	if err != nil {
		return hinted(err)
	}
	statement := s.config.layout().Record(false, describe(rows))
	for _, live := range shards {
		settings := s.hosts.quorumSettings(s.hosts.requiredReplicas())
		settings["async_insert"] = 0
		if err := live[0].conn.Exec(ch.Context(ctx, ch.WithSettings(settings)), statement); err != nil {
			return fmt.Errorf("cannot record a block of %d rows of %s: %w", rows.Rows(), s.table, hinted(err))
		}
	}
	return nil
}

// Derive brings the derived tables up to date with the blocks that were delivered before the call.
// An interrupted update is repeated by the next one.
func (s *Sink) Derive(ctx context.Context) error {
	shards, err := s.hosts.byShard()
	if err != nil {
		return hinted(err)
	}
	for _, live := range shards {
		for more := true; more; {
			// All daemons use the same replica, so it has the rows that other daemons have derived.
			if more, err = s.deriveSome(ctx, live[0]); err != nil {
				return fmt.Errorf("cannot update the tables derived from %s: %w", s.table, hinted(err))
			}
		}
	}
	return nil
}

// deriveSome updates the derived tables on one server with the oldest pending blocks, and reports
// whether there may be more. Its memory and time are limited, even if a migration has recorded the
// blocks of years, each with the rows of a day.
func (s *Sink) deriveSome(ctx context.Context, h *host) (more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, deriveTimeout)
	defer cancel()
	settings := s.hosts.quorumSettings(s.hosts.requiredReplicas())
	maps.Copy(settings, schema.DeriveSettings)
	ctx = ch.Context(ctx, ch.WithSettings(settings))
	defer metrics.Since(deriveSeconds, time.Now())
	if s.config.Cluster != "" {
		if err := s.checkCaughtUp(ctx, h); err != nil {
			return false, err
		}
	}
	l := s.config.layout()
	var blocks []schema.Block
	if err := h.conn.Select(ctx, &blocks, l.Pending(maxDeriveBlocks)); err != nil || len(blocks) == 0 {
		return false, err
	}
	more = len(blocks) == maxDeriveBlocks
	span := blocks[0].Last.Sub(blocks[0].First)
	for i, b := range blocks[1:] {
		if span += b.Last.Sub(b.First); span > maxDeriveSpan {
			blocks, more = blocks[:i+1], true
			break
		}
	}
	for _, statement := range append(l.Derive(blocks...), l.Record(true, blocks...)) {
		if err := h.conn.Exec(ctx, statement); err != nil {
			return false, err
		}
	}
	return more, nil
}

// checkCaughtUp returns an error if the replica lacks parts that another live replica has.
func (s *Sink) checkCaughtUp(ctx context.Context, h *host) error {
	for _, name := range []string{s.config.layout().Local(), s.config.layout().Derived("by_time")} {
		table := fmt.Sprintf("`%s`.`%s`", s.config.Database, name)
		// PULL updates the queue of parts to fetch, but does not fetch them.
		if err := h.conn.Exec(ctx, "SYSTEM SYNC REPLICA "+table+" PULL"); err != nil {
			return err
		}
		var waiting uint64
		query := fmt.Sprintf("SELECT count() FROM system.replication_queue AS q"+
			" INNER JOIN system.replicas AS r ON q.database = r.database AND q.table = r.table"+
			" WHERE q.database = '%s' AND q.table = '%s' AND q.type IN ('GET_PART', 'ATTACH_PART') AND r.replica_is_active[q.source_replica] = 1",
			s.config.Database, name)
		if err := h.conn.QueryRow(ctx, query).Scan(&waiting); err != nil {
			return err
		}
		if waiting > 0 {
			return fmt.Errorf("%s has yet to fetch %d parts of %s from other replicas", h.address, waiting, table)
		}
	}
	return nil
}

// updateDerived updates the units, the detectors and the derived tables. A failure only delays the
// update.
func (s *Sink) updateDerived(ctx context.Context) {
	err := errors.Join(s.saveUnits(ctx), s.saveDetectors(ctx), s.Derive(ctx))
	if ctx.Err() != nil {
		return
	}
	failed := s.deriveFailed
	if s.deriveFailed = err != nil; s.deriveFailed {
		deriveErrors.Inc()
		if !failed {
			s.log.Warn().Err(err).Msg("archive: the derived tables are not updated; will retry")
		}
		return
	}
	derivedAt.Set(float64(time.Now().Unix()))
	if failed {
		s.log.Info().Msg("archive: the derived tables are updated again")
	}
}

// periodic calls a function at regular intervals in a goroutine.
type periodic struct {
	once    sync.Once
	cancel  context.CancelFunc // nil until start
	running sync.WaitGroup
}

// start calls f until stop, and waits for the interval before each call. Only the first start has
// an effect.
func (p *periodic) start(interval time.Duration, f func(context.Context)) {
	p.once.Do(func() {
		ctx, cancel := context.WithCancel(context.Background())
		p.cancel = cancel
		p.running.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case <-time.After(interval):
					f(ctx)
				}
			}
		})
	})
}

// stop ends the calls: it cancels the one in progress, if any, and waits for it to return.
func (p *periodic) stop() {
	if p.cancel != nil {
		p.cancel()
		p.running.Wait()
	}
}

package clickhouse

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	ch "github.com/ClickHouse/clickhouse-go/v2"
	"github.com/google/uuid"

	"trafficd/pipeline/batch"
	"trafficd/pipeline/metrics"
)

// rounds is the number of times that the missing rows of a block are sent, each time under another
// token. The second round is needed when the server remembers a token but does not have the rows
// (see doc.go); one more for each further crash at the same moment.
const rounds = 4

// deadAfter is the wait before rows that a server has received, but that no live replica has, are
// sent under another token. If a dead replica has them and returns, they are in the archive twice
// until a merge, and once with FINAL.
var deadAfter = 10 * time.Second // a variable for tests

// resolve completes a block that may have been applied, in whole or in part: it looks up which rows
// are in the table and sends the others, until none is missing.
func (s *Sink) resolve(ctx context.Context, plan string, rows batch.Block) error {
	if s.config.Cluster != "" {
		s.hosts.refresh(ctx) // the failure may have been that of a server
	}
	months := newMonths(rows)
	missing, err := s.missing(ctx, rows)
	if err != nil {
		return err
	}
	found := foundSome
	switch missing.Rows() {
	case 0:
		found = foundAll
	case rows.Rows():
		found = foundNone
	}
	resolvedTotal[found].Inc()
	s.log.Info().Str("plan", plan).Int("rows", rows.Rows()).Int("missing", missing.Rows()).Msg("archive: block in doubt looked up")
	for round := 0; round < rounds && len(missing) > 0; round++ {
		token := plan
		if round > 0 {
			if err := s.waitForDead(plan, missing.Rows()); err != nil {
				return err
			}
			token = fmt.Sprintf("%s/again%d", plan, round)
		}
		// Not with a quorum: if another attempt's part is on a dead replica only, the server would
		// wait for that one. The look-up counts the copies.
		if err := s.send(ctx, token, missing, months, 1); err != nil {
			return err
		}
		if missing, err = s.missing(ctx, rows); err != nil {
			return err
		}
	}
	clear(s.since)
	if err := s.hosts.away(); err != nil && len(missing) > 0 {
		return fmt.Errorf("%d rows of %s are on no live replica: %w", missing.Rows(), s.table, hinted(err))
	}
	// The server has acknowledged rows under several tokens and drops them by one of its own rules,
	// such as a TTL. Retrying forever would stop the archive.
	if len(missing) > 0 {
		rowsVanished.Add(float64(missing.Rows()))
		s.log.Warn().Str("plan", plan).Int("rows", missing.Rows()).
			Msg("archive: acknowledged rows are not in the table; does it have a TTL, or did someone delete them?")
	}
	return nil
}

// waitForDead returns an error until rows may be sent under another token: at once if all servers
// are live, otherwise after deadAfter.
func (s *Sink) waitForDead(plan string, rows int) error {
	away := s.hosts.away()
	if away == nil {
		return nil
	}
	if _, known := s.since[plan]; !known {
		s.since = map[string]time.Time{plan: time.Now()}
	}
	if waited := time.Since(s.since[plan]); waited < deadAfter {
		return fmt.Errorf("%d rows of %s are on no live replica, perhaps on a dead one; they are sent again after %s: %w",
			rows, s.table, deadAfter, hinted(away))
	}
	return nil
}

// How long a look-up waits for rows to be on as many replicas as an insert waits for.
const (
	copyLooks    = 20
	copyInterval = 100 * time.Millisecond
)

// missing returns the rows that are not in the table, in their order; nil if all are. A row that a
// later row of the same block has replaced is not missing. In a cluster, it returns an error as
// long as rows are on fewer replicas than they must be.
func (s *Sink) missing(ctx context.Context, rows batch.Block) (batch.Block, error) {
	ctx, cancel := context.WithTimeout(ctx, s.config.WriteTimeout)
	defer cancel()
	defer metrics.Since(lookSeconds, time.Now())
	for look := 1; ; look++ {
		f, err := s.look(ctx, rows)
		if err != nil {
			return nil, fmt.Errorf("cannot look up %d rows in %s: %w", rows.Rows(), s.table, hinted(err))
		}
		missing, thin := f.rest(s.hosts.copies())
		if thin == 0 {
			return missing, nil
		}
		if look == copyLooks {
			return nil, fmt.Errorf("%d rows of %s are on fewer than %d replicas: %s", thin, s.table, s.hosts.copies(), hints[classQuorum])
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(copyInterval):
		}
	}
}

// look asks every live server, and does not wait for the others. What is on one of them is in the
// table.
func (s *Sink) look(ctx context.Context, rows batch.Block) (*findings, error) {
	live := s.hosts.live()
	found := make([]*findings, len(live))
	errs := make([]error, len(live))
	var looking sync.WaitGroup
	for i, h := range live {
		looking.Go(func() { found[i], errs[i] = s.lookAt(ctx, h, rows) })
	}
	looking.Wait()
	if s.config.Cluster == "" {
		return found[0], errs[0]
	}
	all := newFindings(rows)
	for i, h := range live {
		if errs[i] != nil {
			s.hosts.set(h, errs[i])
			continue
		}
		for id, copies := range found[i].copies {
			all.copies[id] += copies
		}
	}
	_, err := s.hosts.byShard()
	return all, err
}

// lookAt selects all rows of the block's months that were received in its time range. received_at
// never decreases on a replica, so that these are the block and what other replicas received at the
// same time; the server skips the rest by its index.
func (s *Sink) lookAt(ctx context.Context, h *host, rows batch.Block) (*findings, error) {
	if s.config.Cluster != "" {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.config.WriteTimeout/4) // leaves time for the other servers
		defer cancel()
	}
	found, err := h.conn.Query(ch.Context(ctx, ch.WithSettings(lookSettings)), lookStatement(s.table, rows))
	if err != nil {
		return nil, err
	}
	defer found.Close()
	f := newFindings(rows)
	count := 0
	for found.Next() {
		var id uuid.UUID
		var index uint32
		if err := found.Scan(&id, &index); err != nil {
			return nil, err
		}
		count += f.mark(rowID{batch.ID(id), index})
	}
	if count > 0 && count < rows.Rows() {
		f.countReplaced()
	}
	return f, found.Err()
}

// lookSettings make a look-up return every row of the table, or fail, whatever the server's profile
// says: a row that is in the table but not returned would be sent again.
var lookSettings = ch.Settings{
	"use_query_cache":         0,
	"limit":                   0,
	"offset":                  0,
	"final":                   0,
	"read_overflow_mode":      "throw",
	"read_overflow_mode_leaf": "throw",
	"result_overflow_mode":    "throw",
	"timeout_overflow_mode":   "throw",
}

func lookStatement(table string, rows batch.Block) string {
	first, last := receivedRange(rows)
	list := strings.Trim(strings.ReplaceAll(fmt.Sprint(newMonths(rows).list), " ", ", "), "[]")
	return fmt.Sprintf("SELECT batch_id, batch_index FROM %s WHERE toYYYYMM(timestamp_from) IN (%s)"+
		" AND received_at BETWEEN fromUnixTimestamp64Nano(%d, 'UTC') AND fromUnixTimestamp64Nano(%d, 'UTC')",
		table, list, first, last)
}

// receivedRange returns the earliest and the latest received_at of rows, in nanoseconds.
func receivedRange(rows batch.Block) (first, last int64) {
	first, last = rows[0].ReceivedAt, rows[0].ReceivedAt
	for _, s := range rows {
		first, last = min(first, s.ReceivedAt), max(last, s.ReceivedAt)
	}
	return first, last
}

type rowID struct {
	batch batch.ID
	index uint32
}

// findings holds the number of replicas that have each row of a block.
type findings struct {
	rows   batch.Block
	copies map[rowID]int
}

func newFindings(rows batch.Block) *findings {
	f := &findings{rows: rows, copies: make(map[rowID]int, rows.Rows())}
	f.each(func(id rowID, _ batch.Span, _ int) { f.copies[id] = 0 })
	return f
}

// mark records that the row is on one replica, and returns how many rows of the block that adds.
// Rows of other blocks are ignored.
func (f *findings) mark(id rowID) int {
	if copies, ours := f.copies[id]; !ours || copies > 0 {
		return 0
	}
	f.copies[id] = 1
	return 1
}

// key is the table's ORDER BY: a later row replaces an earlier one with the same key.
type key struct {
	instance, code, typ string
	from, to            int64
}

func keyOf(s batch.Span, row int) key {
	return key{s.ProductInstance, string(s.Code(row)), string(s.TypeCode(int(s.Type[row]))), s.Batch.From[row], s.Batch.To[row]}
}

// countReplaced marks the missing rows that a merge has replaced by a row of the same block: a part
// is written whole, so if one of two rows with the same key is there, both were. Sending the
// earlier one again would let it replace the later one, as both may have the same received_at.
func (f *findings) countReplaced() {
	present := make(map[key]bool)
	f.each(func(id rowID, s batch.Span, row int) {
		if f.copies[id] > 0 {
			present[keyOf(s, row)] = true
		}
	})
	f.each(func(id rowID, s batch.Span, row int) {
		if present[keyOf(s, row)] {
			f.mark(id)
		}
	})
}

// rest returns the rows that are on no replica, and the number of those that are on too few.
func (f *findings) rest(need int) (missing batch.Block, thin int) {
	f.each(func(id rowID, s batch.Span, row int) {
		switch copies := f.copies[id]; {
		case copies == 0:
			appendRow(&missing, s, row)
		case copies < need:
			thin++
		}
	})
	return missing, thin
}

func (f *findings) each(visit func(id rowID, s batch.Span, row int)) {
	for _, s := range f.rows {
		for row := s.From; row < s.To; row++ {
			visit(rowID{s.ID, s.Index[row]}, s, row)
		}
	}
}

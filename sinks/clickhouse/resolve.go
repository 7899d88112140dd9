package clickhouse

import (
	"context"
	"fmt"
	"strings"
	"time"

	ch "github.com/ClickHouse/clickhouse-go/v2"
	"github.com/google/uuid"

	"trafficd/pipeline/batch"
	"trafficd/pipeline/metrics"
)

// rounds is how often the missing rows of a block are sent, each time under another token. The
// second round is needed when the server remembers a token but does not have the rows (see doc.go);
// one more for each further crash at the same moment.
const rounds = 4

// resolve completes a block that may have been applied, in whole or in part: it looks up which rows
// are in the table and sends the others, until none is missing.
func (s *Sink) resolve(ctx context.Context, plan string, rows batch.Block) error {
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
			token = fmt.Sprintf("%s/again%d", plan, round)
		}
		if err := s.send(ctx, token, missing, months); err != nil {
			return err
		}
		// Keeper stores a token and its part in one step, so that in a cluster one round is enough;
		// a second look could miss what another replica has.
		if s.config.Cluster != "" {
			return nil
		}
		if missing, err = s.missing(ctx, rows); err != nil {
			return err
		}
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

// missing returns the rows that are not in the table, in their order; nil if all are. A row that a
// later row of the same block has replaced is not missing.
func (s *Sink) missing(ctx context.Context, rows batch.Block) (batch.Block, error) {
	ctx, cancel := context.WithTimeout(ctx, s.config.WriteTimeout)
	defer cancel()
	defer metrics.Since(lookSeconds, time.Now())
	f, err := s.look(ctx, rows)
	if err != nil {
		return nil, fmt.Errorf("cannot look up %d rows in %s: %w", rows.Rows(), s.table, hinted(err))
	}
	if f.count > 0 && f.count < rows.Rows() {
		f.countReplaced()
	}
	return f.rest(), nil
}

// look selects all rows of the block's months that were received in its time range. received_at
// never decreases on a replica, so that these are the block and what other replicas received at the
// same time; the server skips the rest by its index.
func (s *Sink) look(ctx context.Context, rows batch.Block) (*findings, error) {
	if s.config.Cluster != "" {
		if err := s.conn.Exec(ctx, "SYSTEM SYNC REPLICA "+s.table+" LIGHTWEIGHT"); err != nil {
			return nil, err
		}
	}
	found, err := s.conn.Query(ch.Context(ctx, ch.WithSettings(lookSettings)), lookStatement(s.table, rows))
	if err != nil {
		return nil, err
	}
	defer found.Close()
	f := newFindings(rows)
	for found.Next() {
		var id uuid.UUID
		var index uint32
		if err := found.Scan(&id, &index); err != nil {
			return nil, err
		}
		f.mark(rowID{batch.ID(id), index})
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

type findings struct {
	rows  batch.Block
	found map[rowID]bool // every row of the block → in the table
	count int            // of rows in the table
}

func newFindings(rows batch.Block) *findings {
	f := &findings{rows: rows, found: make(map[rowID]bool, rows.Rows())}
	f.each(func(id rowID, _ batch.Span, _ int) { f.found[id] = false })
	return f
}

// mark records that the row is in the table. Rows of other blocks are ignored.
func (f *findings) mark(id rowID) {
	if found, ours := f.found[id]; ours && !found {
		f.found[id] = true
		f.count++
	}
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
		if f.found[id] {
			present[keyOf(s, row)] = true
		}
	})
	f.each(func(id rowID, s batch.Span, row int) {
		if present[keyOf(s, row)] {
			f.mark(id)
		}
	})
}

func (f *findings) rest() batch.Block {
	var rest batch.Block
	f.each(func(id rowID, s batch.Span, row int) {
		if !f.found[id] {
			appendRow(&rest, s, row)
		}
	})
	return rest
}

func (f *findings) each(visit func(id rowID, s batch.Span, row int)) {
	for _, s := range f.rows {
		for row := s.From; row < s.To; row++ {
			visit(rowID{s.ID, s.Index[row]}, s, row)
		}
	}
}

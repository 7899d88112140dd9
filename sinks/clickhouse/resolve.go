package clickhouse

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	ch "github.com/ClickHouse/clickhouse-go/v2"
	"github.com/google/uuid"

	"trafficd/pipeline/batch"
	"trafficd/pipeline/lib/metrics"
	schema "trafficd/schemas/clickhouse"
)

// maxRounds is the maximum number of times that missing rows are sent, each time with a different
// token. A server killed between writing a token and activating the part ignores all later inserts
// with that token (see doc.go), so each such crash requires one more round.
const maxRounds = 4

// deadAfter is how long rows that may be on a dead replica must have been missing before they are
// sent with a different token (see doc.go). Tests replace it.
var deadAfter = 10 * time.Second

// resolve completes an in-doubt block: it sends the rows that are not in the table, up to maxRounds
// times, except those that the server has refused. It returns a *batch.PermanentError with the
// refused rows and, if all servers are live, those that are still missing.
func (s *Sink) resolve(ctx context.Context, plan string, rows batch.Block, refused []batch.RejectedRows) error {
	if s.config.Cluster != "" {
		s.hosts.refresh(ctx) // a server may have failed since the last poll
	}
	months := newMonths(rows)
	missing, err := s.missingRows(ctx, rows)
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
	found.Inc()
	s.log.Info().Str("plan", plan).Int("rows", rows.Rows()).Int("missing", missing.Rows()).Msg("archive: looked up an in-doubt block")
	missing, rejected := cutRefused(missing, refused)
	for round := 0; round < maxRounds && len(missing) > 0; round++ {
		if err := s.checkVisible(ctx); err != nil {
			return err
		}
		token := plan
		if round > 0 {
			if err := s.checkDeadReplicas(plan, missing.Rows()); err != nil {
				return err
			}
			token = fmt.Sprintf("%s/again%d", plan, round)
		}
		// One replica is enough, because the lookup counts replicas. With a quorum, a server that knows
		// the token would wait for copies of the earlier part, even if only a dead replica has it.
		again, err := s.send(ctx, token, missing, months, 1)
		if err != nil {
			return err
		}
		if missing, err = s.missingRows(ctx, rows); err != nil {
			return err
		}
		refused = append(refused, again...)
		missing, rejected = cutRefused(missing, refused)
	}
	clear(s.missingSince)
	if err := s.hosts.unavailable(); err != nil && len(missing) > 0 {
		return fmt.Errorf("%d rows of %s are on no live replica: %w", missing.Rows(), s.table, hinted(err))
	}
	// The server has acknowledged the rows with several tokens and then deleted or hidden them.
	// Retrying forever would block the archive.
	if missing = s.withoutExpired(missing); len(missing) > 0 {
		rowsVanished.Add(float64(missing.Rows()))
		rejected = append(rejected, batch.RejectedRows{Rows: missing, Reason: errVanished})
	}
	if len(rejected) > 0 {
		return &batch.PermanentError{Err: rejected[0].Reason, Rejected: rejected}
	}
	return nil
}

// cutRefused divides missing rows into those that the server has not refused and those that it has.
func cutRefused(missing batch.Block, refused []batch.RejectedRows) (others batch.Block, rejected []batch.RejectedRows) {
	if len(refused) == 0 {
		return missing, nil
	}
	reasons := map[rowID]error{}
	for _, r := range refused {
		reasons[rowID{r.Rows[0].ID, r.Rows[0].Index[r.Rows[0].From]}] = r.Reason
	}
	newFindings(missing).each(func(id rowID, s batch.Span, row int) {
		if reason := reasons[id]; reason != nil {
			s.From, s.To = row, row+1
			rejected = append(rejected, batch.RejectedRows{Rows: batch.Block{s}, Reason: reason})
			return
		}
		appendRow(&others, s, row)
	})
	return others, rejected
}

var errVanished = errors.New("ClickHouse acknowledged the row several times, but a lookup does not find it: " +
	"check whether a row policy hides it from the daemon's user, or a TTL or a mutation deletes it")

// withoutExpired returns the rows that are not older than the setting retention_days. The server
// does not store a part in which all rows are older.
func (s *Sink) withoutExpired(rows batch.Block) (kept batch.Block) {
	if s.config.RetentionDays == 0 {
		return rows
	}
	oldest := time.Now().AddDate(0, 0, -s.config.RetentionDays).UnixNano()
	for _, span := range rows {
		for row := span.From; row < span.To; row++ {
			if span.Batch.From[row] > oldest {
				appendRow(&kept, span, row)
			}
		}
	}
	return kept
}

// checkVisible returns an error if a live server hides all rows from the daemon's user. The rows of
// the block may then be in the table, and would be inserted twice.
func (s *Sink) checkVisible(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.config.WriteTimeout)
	defer cancel()
	shards, err := s.hosts.byShard()
	if err != nil {
		return hinted(err)
	}
	for _, live := range shards {
		for _, h := range live {
			if err := s.config.checkVisible(ctx, h.conn, h.address); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkDeadReplicas returns nil if all servers are live, or rows have been missing for deadAfter.
// Otherwise, a dead replica may have the rows: it returns an error, so that the block is retried.
func (s *Sink) checkDeadReplicas(plan string, rows int) error {
	unavailable := s.hosts.unavailable()
	if unavailable == nil {
		return nil
	}
	if _, known := s.missingSince[plan]; !known {
		s.missingSince = map[string]time.Time{plan: time.Now()}
	}
	if waited := time.Since(s.missingSince[plan]); waited < deadAfter {
		return fmt.Errorf("%d rows of %s are on no live replica but may be on a dead one; will send them again after %s: %w",
			rows, s.table, deadAfter, hinted(unavailable))
	}
	return nil
}

// While rows are on too few replicas, the lookup is repeated every lookupInterval, up to maxLookups
// lookups in total.
const (
	maxLookups     = 20
	lookupInterval = 100 * time.Millisecond
)

// missingRows returns the rows that are not in the table, in their order, or nil if there are none.
// A row that a later row of the same block has replaced is not missing. In a cluster, missing
// returns an error if rows remain on fewer replicas than required.
func (s *Sink) missingRows(ctx context.Context, rows batch.Block) (batch.Block, error) {
	ctx, cancel := context.WithTimeout(ctx, s.config.WriteTimeout)
	defer cancel()
	defer metrics.Since(lookupSeconds, time.Now())
	for lookups := 1; ; lookups++ {
		f, err := s.lookUp(ctx, rows)
		if err != nil {
			return nil, fmt.Errorf("cannot look up %d rows in %s: %w", rows.Rows(), s.table, hinted(err))
		}
		missing, tooFew := f.missingRows(s.hosts.requiredReplicas())
		if tooFew == 0 {
			return missing, nil
		}
		if lookups == maxLookups {
			return nil, fmt.Errorf("%d rows of %s are on fewer than %d replicas: %s",
				tooFew, s.table, s.hosts.requiredReplicas(), hints[classQuorum])
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(lookupInterval):
		}
	}
}

// lookUp asks every live server which rows it has, and counts the replicas of each row. In a
// cluster, it returns an error only if ctx is done or a shard has no live server left.
func (s *Sink) lookUp(ctx context.Context, rows batch.Block) (*findings, error) {
	shards, err := s.hosts.byShard()
	if err != nil {
		return nil, err
	}
	live := slices.Concat(slices.Collect(maps.Values(shards))...)
	found := make([]*findings, len(live))
	errs := make([]error, len(live))
	var lookups sync.WaitGroup
	for i, h := range live {
		lookups.Go(func() { found[i], errs[i] = s.lookUpOn(ctx, h, rows) })
	}
	lookups.Wait()
	if s.config.Cluster == "" {
		return found[0], errs[0]
	}
	if err := ctx.Err(); err != nil {
		return nil, err // cancelled or timed out: do not mark servers as failed
	}
	all := newFindings(rows)
	for i, h := range live {
		if errs[i] != nil {
			s.hosts.set(h, errs[i])
			continue
		}
		for id, replicas := range found[i].replicas {
			all.replicas[id] += replicas
		}
	}
	_, err = s.hosts.byShard()
	return all, err
}

// lookUpOn returns which of the rows one server has. The query matches the block's months and its
// range of received_at, which the table indexes; rows of other daemons in that range are ignored.
func (s *Sink) lookUpOn(ctx context.Context, h *host, rows batch.Block) (*findings, error) {
	if s.config.Cluster != "" {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.config.WriteTimeout/4) // one slow server must not fail the whole lookup
		defer cancel()
	}
	found, err := h.conn.Query(ch.Context(ctx, ch.WithSettings(lookupSettings)), lookupStatement(s.table, rows))
	if err != nil {
		return nil, err
	}
	defer found.Close()
	f := newFindings(rows)
	receivedAt := map[batch.ID]int64{}
	for _, s := range rows {
		receivedAt[s.ID] = s.ReceivedAt
	}
	count := 0
	for found.Next() {
		var id uuid.UUID
		var index uint32
		var at int64
		if err := found.Scan(&id, &index, &at); err != nil {
			return nil, err
		}
		if at == receivedAt[batch.ID(id)] { // another daemon may have accepted the same batch
			count += f.mark(rowID{batch.ID(id), index})
		}
	}
	if count > 0 && count < rows.Rows() {
		f.markReplaced()
	}
	return f, found.Err()
}

// lookupSettings make a lookup return every matching row or fail, regardless of the user's settings
// profile: a row that is in the table but not returned would be sent again.
var lookupSettings = ch.Settings{
	"use_query_cache":          0,
	"limit":                    0,
	"offset":                   0,
	"final":                    0,
	"additional_table_filters": "{}",
	"additional_result_filter": "",
	"read_overflow_mode":       "throw",
	"read_overflow_mode_leaf":  "throw",
	"result_overflow_mode":     "throw",
	"timeout_overflow_mode":    "throw",
}

func lookupStatement(table string, rows batch.Block) string {
	return "SELECT batch_id, batch_index, toUnixTimestamp64Nano(received_at) FROM " + table + " WHERE " + describe(rows).Where()
}

// describe returns the months of rows and their range of received_at.
func describe(rows batch.Block) schema.Block {
	first, last := rows[0].ReceivedAt, rows[0].ReceivedAt
	for _, s := range rows {
		first, last = min(first, s.ReceivedAt), max(last, s.ReceivedAt)
	}
	return schema.Block{First: time.Unix(0, first), Last: time.Unix(0, last), Months: newMonths(rows).list}
}

type rowID struct {
	batch batch.ID
	index uint32
}

// findings holds the number of replicas that have each row of a block.
type findings struct {
	rows     batch.Block
	replicas map[rowID]int
}

func newFindings(rows batch.Block) *findings {
	f := &findings{rows: rows, replicas: make(map[rowID]int, rows.Rows())}
	f.each(func(id rowID, _ batch.Span, _ int) { f.replicas[id] = 0 })
	return f
}

// mark records that one replica has the row. It returns 1 if the row belongs to the block and was
// not marked before, and 0 otherwise.
func (f *findings) mark(id rowID) int {
	if replicas, known := f.replicas[id]; !known || replicas > 0 {
		return 0
	}
	f.replicas[id] = 1
	return 1
}

// key holds the columns of the table's ORDER BY: a later row replaces an earlier one with the same
// key.
type key struct {
	instance, code, typ string
	from, to            int64
}

func keyOf(s batch.Span, row int) key {
	return key{s.ProductInstance, string(s.Code(row)), string(s.TypeCode(int(s.Type[row]))), s.Batch.From[row], s.Batch.To[row]}
}

// markReplaced marks rows that a merge has replaced with a row of the same block; see doc.go,
// "Replaced rows".
func (f *findings) markReplaced() {
	present := make(map[key]bool)
	f.each(func(id rowID, s batch.Span, row int) {
		if f.replicas[id] > 0 {
			present[keyOf(s, row)] = true
		}
	})
	f.each(func(id rowID, s batch.Span, row int) {
		if present[keyOf(s, row)] {
			f.mark(id)
		}
	})
}

// missingRows returns the rows that are on no replica, and the number of rows that are on at least
// one replica but on fewer than required.
func (f *findings) missingRows(required int) (missing batch.Block, tooFew int) {
	f.each(func(id rowID, s batch.Span, row int) {
		switch replicas := f.replicas[id]; {
		case replicas == 0:
			appendRow(&missing, s, row)
		case replicas < required:
			tooFew++
		}
	})
	return missing, tooFew
}

func (f *findings) each(visit func(id rowID, s batch.Span, row int)) {
	for _, s := range f.rows {
		for row := s.From; row < s.To; row++ {
			visit(rowID{s.ID, s.Index[row]}, s, row)
		}
	}
}

package clickhouse

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ClickHouse/ch-go/proto"
	ch "github.com/ClickHouse/clickhouse-go/v2"
	"github.com/rs/zerolog"

	"trafficd/pipeline/batch"
	schema "trafficd/schemas/clickhouse"
)

// Sink writes blocks to the archive. It is not safe for concurrent use.
type Sink struct {
	Detectors *Detectors // detector lists to archive, or nil; must be set before the first Probe or Deliver
	Units     *Units     // units of measure types to archive, or nil; must be set before the first Probe or Deliver

	config    Config
	log       zerolog.Logger
	hosts     *hosts
	table     string // quoted name of the table that stores the rows, with its database
	statement string // INSERT

	deriving     periodic // updates the derived tables
	deriveFailed bool     // whether the last update failed; used by updateDerived only

	unsent       string               // the plan whose rows have never been sent; every other plan is in doubt
	missingSince map[string]time.Time // plan → when its rows, although resent, were first missing from every live replica
}

// New returns a sink for a valid configuration. It does not connect; the first Deliver or Probe
// does. The caller must close the sink.
func New(c Config, log zerolog.Logger) (*Sink, error) {
	hosts, err := newHosts(c, log)
	if err != nil {
		return nil, err
	}
	s := &Sink{config: c, log: log, hosts: hosts, table: fmt.Sprintf("`%s`.`%s`", c.Database, c.layout().Local())}
	// In a cluster the Distributed table sends each row to its shard.
	s.statement = insertInto(fmt.Sprintf("`%s`.`%s`", c.Database, c.Table))
	return s, nil
}

// enlargeAboveMonths is the number of months above which Plan enlarges a block. The server writes a
// part for each month, which takes about as long as inserting a few thousand rows.
const enlargeAboveMonths = 25

// Plan implements pipeline.Sink. The plan is the deduplication token of the block. state is empty
// or a suspect range. If the block begins in that range, Plan appends the range to the plan.
func (s *Sink) Plan(_ context.Context, state []byte, rows batch.Block) (n int, plan []byte, err error) {
	n = min(rows.Rows(), max(s.config.BlockRows, s.config.BlockRows*len(newMonths(rows).list)/enlargeAboveMonths))
	token := planOf(rows.Head(n))
	if (batch.Position{Frame: rows[0].Frame, Row: uint32(rows[0].From)}).Before(parseSuspect(string(state))) {
		s.unsent = ""
		return n, append([]byte(token), state...), nil
	}
	s.unsent = token
	return n, []byte(token), nil
}

// Deliver implements pipeline.Sink: it returns nil once the archive durably contains each planned
// row exactly once. If a row's value causes an error, it returns a *batch.PermanentError, and a
// suspect range as state. If the rejected block has a single row, the table does not contain it.
// If the error names rows, the table contains all others.
func (s *Sink) Deliver(ctx context.Context, plan []byte, rows batch.Block) (state []byte, err error) {
	defer countError(&err)
	token, suspect := cutPlan(string(plan))
	if len(rows) == 0 || planOf(rows) != token {
		return nil, fmt.Errorf("cannot deliver: the rows do not match plan %q", plan)
	}
	err = s.deliver(ctx, token, rows)
	if suspect == "" {
		suspect = suspectBefore(rows.End())
	}
	rejected, ok := errors.AsType[*batch.PermanentError](err)
	switch {
	case ok && rejected.Rejected == nil:
		return []byte(suspect), err
	case !ok && err != nil:
		return nil, err
	}
	if err := s.record(ctx, rows); err != nil {
		return nil, err // the next attempt will find the rows in the table
	}
	inserted := rows.Rows()
	if ok {
		for _, r := range rejected.Rejected {
			inserted -= r.Rows.Rows()
		}
	}
	s.Units.note(rows)
	rowsInserted.Add(float64(inserted))
	blocksDone.Inc()
	if rows.End().Before(parseSuspect(suspect)) {
		return []byte(suspect), err
	}
	return nil, err
}

// Probe creates or updates the tables if the setting migrate is true, and returns an error if rows
// cannot be inserted.
func (s *Sink) Probe(ctx context.Context) (err error) {
	defer countError(&err)
	ctx, cancel := context.WithTimeout(ctx, s.config.WriteTimeout)
	defer cancel()
	if err := s.ready(ctx); err != nil {
		return err
	}
	// An insert without rows checks the table, its columns, the grants, and the server's settings.
	h, err := s.hosts.pick()
	if err != nil {
		return hinted(err)
	}
	b, err := h.conn.PrepareBatch(ch.Context(ctx, ch.WithSettings(s.settings("probe"))), s.statement)
	if err == nil {
		for i, column := range b.Columns() {
			err = errors.Join(err, checkType(i, proto.ColumnType(column.Type())))
		}
		err = errors.Join(err, b.Close())
	}
	if err != nil {
		return fmt.Errorf("cannot insert into %s: %w", s.table, hinted(err))
	}
	return nil
}

// Migrate creates or updates the tables on every server, as the sink does if the setting migrate is
// true. It also creates dropped tables again, which the sink does not do, because an operator may
// restore them. If a server fails, Migrate continues with the next one. It returns all errors,
// joined.
func Migrate(ctx context.Context, c Config, log zerolog.Logger) error {
	hosts, err := newHosts(c, log)
	if err != nil {
		return err
	}
	defer func() { _ = hosts.close() }()
	var errs []error
	for _, h := range hosts.all {
		dropped, err := schema.ForgetDropped(ctx, h.conn, c.layout())
		if len(dropped) > 0 {
			log.Warn().Str("address", h.address).Strs("tables", dropped).Msg("archive: creating dropped tables again")
		}
		if err == nil {
			err = hosts.migrate(ctx, h)
		}
		if err == nil && c.Cluster != "" {
			err = c.checkCluster(ctx, h.conn)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", h.address, err))
		}
	}
	return errors.Join(errs...)
}

// Close stops updating the derived tables and closes all connections.
func (s *Sink) Close() error {
	s.deriving.stop()
	if s.config.DeriveInterval > 0 {
		derivedAt.Set(0)
	}
	if err := s.hosts.close(); err != nil {
		return fmt.Errorf("cannot close the connection to ClickHouse: %w", err)
	}
	return nil
}

func (s *Sink) deliver(ctx context.Context, token string, rows batch.Block) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	var refused []batch.RejectedRows
	var err error
	inDoubt := s.unsent != token
	if !inDoubt {
		refused, err = s.send(ctx, token, rows, newMonths(rows), s.hosts.requiredReplicas())
	}
	if err == nil && (inDoubt || refused != nil) {
		err = s.resolve(ctx, token, rows, refused)
	}
	// Rows of a rejected block may be in the table (see doc.go). The delivery loop halves the
	// block, and resolve looks up the halves; a single row is looked up here.
	if rejected, ok := errors.AsType[*batch.PermanentError](err); ok && rejected.Rejected == nil && rows.Rows() == 1 {
		if missing, lookErr := s.missingRows(ctx, rows); lookErr != nil || len(missing) == 0 {
			return lookErr
		}
	}
	return err
}

// parallelInserts is the number of groups inserted concurrently. The server writes the parts of an
// INSERT one after another and spends most of the time in fsync, whose cost concurrent INSERTs
// share.
const parallelInserts = 4

// send inserts rows in concurrent groups (see doc.go). rows must be some or all rows of the block
// from which months was created. The server acknowledges a group once the given number of replicas
// have it. send returns the rows that insertGroup left out.
func (s *Sink) send(ctx context.Context, token string, rows batch.Block, months *months, replicas int) ([]batch.RejectedRows, error) {
	h, err := s.hosts.pick()
	if err != nil {
		return nil, hinted(err)
	}
	groups := months.groups(rows)
	var next atomic.Int32
	var sent, failed atomic.Bool
	var errs [parallelInserts]error
	var refused [parallelInserts][]batch.RejectedRows
	var workers sync.WaitGroup
	for w := range min(parallelInserts, len(groups)) {
		workers.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(groups) && !failed.Load(); i = int(next.Add(1)) - 1 {
				if len(groups[i]) == 0 {
					continue
				}
				received, list, err := s.insertGroup(ctx, h, groups[i], fmt.Sprintf("%s/%d", token, i), replicas)
				if received {
					sent.Store(true)
				}
				refused[w] = append(refused[w], list...)
				if errs[w] = err; err != nil {
					failed.Store(true)
				}
			}
		})
	}
	workers.Wait()
	if sent.Load() {
		s.unsent = ""
	}
	// A rejection is permanent only if nothing else failed.
	var rejected error
	for _, err := range errs {
		switch {
		case errors.As(err, new(*batch.PermanentError)):
			rejected = err
		case err != nil:
			return nil, err
		}
	}
	return slices.Concat(refused[:]...), rejected
}

// ready returns an error if rows cannot be written now. Once they can, it starts updating the
// derived tables. Starting that in Probe is not enough, because a busy sink may never be probed.
func (s *Sink) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.config.WriteTimeout)
	defer cancel()
	if err := s.hosts.ready(ctx); err != nil {
		return hinted(err)
	}
	if s.config.DeriveInterval > 0 {
		deriveInterval.Set(s.config.DeriveInterval.Seconds())
		s.deriving.start(s.config.DeriveInterval, s.updateDerived)
	}
	return nil
}

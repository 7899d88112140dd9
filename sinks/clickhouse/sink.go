package clickhouse

import (
	"context"
	"errors"
	"fmt"

	ch "github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/rs/zerolog"

	"trafficd/pipeline/batch"
	schema "trafficd/schemas/clickhouse"
)

// Sink writes blocks to the archive. It is used by one goroutine.
type Sink struct {
	config    Config
	log       zerolog.Logger
	conn      driver.Conn
	table     string // that rows go to, with its database, quoted
	statement string
	migrated  bool
	scratch   scratch

	// unsent is the plan whose rows have never been sent; every other plan is in doubt, also after
	// a restart.
	unsent string
}

// New requires a valid configuration, but does not connect: the first Deliver does. The caller
// closes the sink.
func New(c Config, log zerolog.Logger) (*Sink, error) {
	conn, err := connect(c)
	if err != nil {
		return nil, err
	}
	table := fmt.Sprintf("`%s`.`%s`", c.Database, c.layout().Local())
	return &Sink{config: c, log: log, conn: conn, table: table, statement: insertStatement(table), migrated: !c.Migrate}, nil
}

// Plan determines the next block: the first n of rows, which must not be empty. The plan identifies
// the block by its first and last row and is its deduplication token. There is no state.
func (s *Sink) Plan(_ context.Context, _ []byte, rows batch.Block) (n int, plan []byte, err error) {
	n = cut(rows, s.config.BlockRows, s.config.MaxPartitions)
	s.unsent = planOf(rows.Head(n))
	return n, []byte(s.unsent), nil
}

// Deliver returns when the archive has each of the planned rows once, on disk. Errors say what can
// be done. It returns a *batch.PermanentError only if the server received the block, a row's value
// was at fault, and none of its rows is in the table. It does not read rows after it returns.
func (s *Sink) Deliver(ctx context.Context, plan []byte, rows batch.Block) (state []byte, err error) {
	if err := s.deliver(ctx, string(plan), rows); err != nil {
		errorsTotal[classify(err)].Inc()
		return nil, err
	}
	rowsInserted.Add(float64(rows.Rows()))
	blocksDone.Inc()
	return nil, nil
}

// Migrate creates or updates the tables now, as the sink does when `migrate` is true.
func Migrate(ctx context.Context, c Config, log zerolog.Logger) error {
	conn, err := connect(c)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	return migrate(ctx, conn, c, log)
}

func migrate(ctx context.Context, conn driver.Conn, c Config, log zerolog.Logger) error {
	applied, err := schema.Migrate(ctx, conn, c.layout())
	for _, name := range applied {
		log.Info().Str("migration", name).Str("database", c.Database).Str("table", c.Table).Msg("archive: migration applied")
	}
	return err
}

// connect prepares a connection without using it. The handshake does not name the database, which
// may not exist yet.
func connect(c Config) (driver.Conn, error) {
	server := c.ClickHouse
	server.Database = ""
	conn, err := server.Open(&ch.Options{
		Addr: c.Addresses, DialTimeout: c.DialTimeout, ReadTimeout: c.WriteTimeout,
		Compression: &ch.Compression{Method: compressions[c.Compression]},
	})
	if err != nil {
		return nil, fmt.Errorf("cannot prepare the connection to ClickHouse: %w", err)
	}
	return conn, nil
}

// Close ends the connection.
func (s *Sink) Close() error {
	if err := s.conn.Close(); err != nil {
		return fmt.Errorf("cannot close the connection to ClickHouse: %w", err)
	}
	return nil
}

func (s *Sink) deliver(ctx context.Context, plan string, rows batch.Block) error {
	if len(rows) == 0 || planOf(rows) != plan {
		return fmt.Errorf("cannot deliver: the rows are not those of plan %q", plan)
	}
	if err := s.migrate(ctx); err != nil {
		return err
	}
	sent := true // now or by an earlier attempt
	var err error
	if s.unsent == plan {
		sent, err = s.insert(ctx, rows, plan)
	} else {
		err = s.resolve(ctx, plan, rows)
	}
	if !sent {
		return err
	}
	s.unsent = ""
	if err == nil || classify(err) != classRefused {
		return err
	}
	// A refusal is permanent only if nothing of the block is in the table: some months could have
	// been written before the fault was met, or a view on the table may have raised it.
	missing, lookErr := s.missing(ctx, rows)
	if lookErr != nil {
		return errors.Join(err, lookErr)
	}
	if found := rows.Rows() - missing.Rows(); found > 0 {
		return fmt.Errorf("%w; %d rows of the block were applied nevertheless", err, found)
	}
	return &batch.PermanentError{Err: err}
}

func (s *Sink) migrate(ctx context.Context) error {
	if s.migrated {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.config.WriteTimeout)
	defer cancel()
	if err := migrate(ctx, s.conn, s.config, s.log); err != nil {
		return hinted(err)
	}
	s.migrated = true
	return nil
}

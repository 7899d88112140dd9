package clickhouse

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"

	native "github.com/ClickHouse/ch-go"
	ch "github.com/ClickHouse/clickhouse-go/v2"

	"trafficd/pipeline/batch"
)

const (
	searchRows = 1000 // number of rows inserted together; with more, each refused row costs more
	maxRefused = 500  // maximum number of rows to find, so that a restart loses little work
)

// search finds the rows of a group that the server refuses. It inserts them into a temporary table
// that has the columns and constraints of the archive's table, but stores nothing: INSERTs need no
// tokens and take about a millisecond.
type search struct {
	table   string         // of the archive
	conn    *native.Client // the only one on which the temporary table exists
	insert  string
	options ch.Settings
	refused []batch.RejectedRows
}

// findRefused returns the rows that violate a rule of the table. It returns none if there are more
// than maxRefused, if the server does not allow the search, or if the temporary table accepts all
// rows because something else raised the error, such as a view on the archive's table.
func (s *Sink) findRefused(ctx context.Context, h *host, group batch.Block) []batch.RejectedRows {
	var rows batch.Block // with a span for each row
	for _, span := range group {
		for at := span.From; at < span.To; at++ {
			rows = append(rows, batch.Span{Batch: span.Batch, Frame: span.Frame, From: at, To: at + 1})
		}
	}
	ctx, cancel := context.WithTimeout(ctx, s.config.WriteTimeout)
	defer cancel()
	conn, err := h.connect(ctx)
	if err == nil {
		defer func() { _ = conn.Close() }()
		defer context.AfterFunc(ctx, func() { _ = conn.Close() })() // Do itself would continue to wait
		err = conn.Do(ctx, native.Query{Body: "CREATE TEMPORARY TABLE search AS " + s.table + " ENGINE = Null"})
	}
	f := search{table: s.table, conn: conn, insert: insertInto("search"), options: s.settings("search")}
	f.options["calculate_text_stack_trace"] = 0
	for chunk := range slices.Chunk(rows, searchRows) {
		if err == nil {
			err = f.among(ctx, chunk)
		}
	}
	if err != nil {
		s.log.Warn().Err(asException(err)).Msg("archive: cannot search a block for the rows that the server refuses; halving it")
		return nil
	}
	return f.refused
}

// among finds the refused rows among rows.
func (f *search) among(ctx context.Context, rows batch.Block) error {
	data := &insertion{rows: rows}
	err := asException(data.send(ctx, f.conn, data.query(f.insert, f.options)))
	switch {
	case err == nil || classify(err) != classRejected:
		return err
	case len(f.refused) == maxRefused:
		return fmt.Errorf("there are more than %d", maxRefused)
	case len(rows) == 1:
		err = fmt.Errorf("cannot insert the row into %s: %w", f.table, hinted(err))
		f.refused = append(f.refused, batch.RejectedRows{Rows: rows, Reason: err})
		return nil
	}
	parts := []batch.Block{rows[:len(rows)/2], rows[len(rows)/2:]}
	if match := violation.FindStringSubmatch(err.Error()); match != nil {
		if row, _ := strconv.Atoi(match[1]); row > 0 && row <= len(rows) {
			parts = []batch.Block{rows[row-1 : row], slices.Concat(rows[:row-1], rows[row:])}
		}
	}
	for _, part := range parts {
		if err := f.among(ctx, part); err != nil {
			return err
		}
	}
	return nil
}

// violation matches the error of a violated constraint, which names the first row that violates it.
var violation = regexp.MustCompile(` is violated at row ([0-9]+)\.`)

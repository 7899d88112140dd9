package clickhouse

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	ch "github.com/ClickHouse/clickhouse-go/v2"
	"github.com/rs/zerolog"

	schema "trafficd/schemas/clickhouse"
)

const (
	// renameQuiet is how long a name must have got no measurements before it is renamed: a block that
	// is in doubt is searched in the archive, and would be taken for deleted.
	renameQuiet   = 10 * time.Minute
	renameTimeout = 24 * time.Hour // of a statement
)

// RenameIn renames a product instance or a detector in all tables, and returns the number of
// measurements that had the old name. After an error, it can be repeated.
func RenameIn(ctx context.Context, c Config, r schema.Rename, now time.Time) (measurements uint64, err error) {
	c.WriteTimeout = renameTimeout
	hosts, err := newHosts(c, zerolog.Nop())
	if err != nil {
		return 0, err
	}
	defer func() { _ = hosts.close() }()
	settings := maps.Clone(schema.DeriveSettings)
	settings["distributed_foreground_insert"] = 1
	ctx = ch.Context(ctx, ch.WithSettings(settings))
	l, first := c.layout(), hosts.all[0].conn
	count := func(where string) (n uint64, newest time.Time, err error) {
		query := fmt.Sprintf("SELECT count(), max(received_at) FROM `%s`.`%s` FINAL WHERE %s", l.Database, l.Table, where)
		if err = first.QueryRow(ctx, query).Scan(&n, &newest); err != nil {
			err = hinted(err)
		}
		return n, newest, err
	}
	measurements, newest, err := count(r.Old())
	if err != nil {
		return 0, err
	}
	switch {
	case measurements == 0:
		return 0, errors.New("the archive has no measurements with this name")
	case now.Sub(newest) < renameQuiet:
		return 0, fmt.Errorf("the last measurement with this name was accepted at %s: it must have been out of use for %s; "+
			"remove it from the detector lists and the keys, and wait", newest.UTC().Format(time.RFC3339), renameQuiet)
	}
	for _, statement := range l.Copy(r) {
		if err := first.Exec(ctx, statement); err != nil {
			return 0, fmt.Errorf("%s: %w", c.Addresses[0], hinted(err))
		}
	}
	switch copied, _, err := count(r.New()); {
	case err != nil:
		return 0, err
	case copied < measurements:
		return 0, fmt.Errorf("only %d of %d measurements have got the new name, so none is deleted", copied, measurements)
	}
	each := append(l.DeriveRenamed(r), l.DeleteOld(r)...)
	if c.Cluster != "" { // a replica may lack rows that another one has
		each = append([]string{fmt.Sprintf("SYSTEM SYNC REPLICA `%s`.`%s`", l.Database, l.Local())}, each...)
	}
	for _, statement := range each {
		for _, h := range hosts.all { // no row is deleted on any server before all have derived the new ones
			if err := h.conn.Exec(ctx, statement); err != nil {
				return 0, fmt.Errorf("%s: %w", h.address, hinted(err))
			}
		}
	}
	return measurements, nil
}

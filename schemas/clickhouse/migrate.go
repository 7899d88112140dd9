package clickhouse

import (
	"context"
	"fmt"
	"slices"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
)

// Conn is the part of driver.Conn that Migrate needs.
type Conn interface {
	Exec(ctx context.Context, query string, args ...any) error
	Query(ctx context.Context, query string, args ...any) (driver.Rows, error)
}

// Migrate creates the database and its tables, or updates them, and returns the names of the
// applied migrations. It may be called at any time, and by several daemons at once. The connection
// needs no default database.
func Migrate(ctx context.Context, c Conn, l Layout) (applied []string, err error) {
	list, err := Migrations(l)
	if err != nil {
		return nil, err
	}
	if err := prepare(ctx, c, l); err != nil {
		return nil, err
	}
	done, err := versions(ctx, c, l)
	if err != nil {
		return nil, err
	}
	for _, m := range list {
		if slices.Contains(done, m.Version) {
			continue
		}
		if err := apply(ctx, c, l, m); err != nil {
			return applied, err
		}
		applied = append(applied, m.Name)
	}
	return applied, nil
}

// prepare creates the database and the table of migrations. The engine Atomic makes DDL atomic;
// some servers have another default.
func prepare(ctx context.Context, c Conn, l Layout) error {
	database := fmt.Sprintf("CREATE DATABASE IF NOT EXISTS `%s`%s ENGINE = Atomic", l.Database, l.OnCluster())
	if err := c.Exec(ctx, database); err != nil {
		return fmt.Errorf("cannot create the database %s: %w", l.Database, err)
	}
	if err := c.Exec(ctx, journalTable(l)); err != nil {
		return fmt.Errorf("cannot create the table %s.schema_migrations: %w", l.Database, err)
	}
	return nil
}

// journalTable returns the DDL of the table of migrations. All hosts of a cluster share it, so its
// path has no {shard}.
func journalTable(l Layout) string {
	return fmt.Sprintf("CREATE TABLE IF NOT EXISTS `%s`.schema_migrations%s\n"+
		"(table_name String, version UInt32, name String, applied_at DateTime64(3, 'UTC') DEFAULT now64(3))\n"+
		"ENGINE = %s ORDER BY (table_name, version)",
		l.Database, l.OnCluster(),
		l.Engine("ReplacingMergeTree", l.Database+"/schema_migrations", "{shard}-{replica}", "applied_at"))
}

// versions lists the migrations that were applied.
func versions(ctx context.Context, c Conn, l Layout) (list []uint32, err error) {
	query := fmt.Sprintf("SELECT version FROM `%s`.schema_migrations WHERE table_name = '%s'", l.Database, l.Table)
	rows, err := c.Query(ctx, query)
	if err != nil {
		return nil, fmt.Errorf("cannot read %s.schema_migrations: %w", l.Database, err)
	}
	defer rows.Close()
	for rows.Next() {
		var version uint32
		if err := rows.Scan(&version); err != nil {
			return nil, fmt.Errorf("cannot read %s.schema_migrations: %w", l.Database, err)
		}
		list = append(list, version)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("cannot read %s.schema_migrations: %w", l.Database, err)
	}
	return list, nil
}

func apply(ctx context.Context, c Conn, l Layout, m Migration) error {
	for _, statement := range m.Statements {
		if err := c.Exec(ctx, statement); err != nil {
			return fmt.Errorf("cannot apply migration %d (%s) to %s.%s: %w", m.Version, m.Name, l.Database, l.Table, err)
		}
	}
	note := fmt.Sprintf("INSERT INTO `%s`.schema_migrations (table_name, version, name) SETTINGS async_insert = 0 VALUES ('%s', %d, '%s')",
		l.Database, l.Table, m.Version, m.Name)
	if err := c.Exec(ctx, note); err != nil {
		return fmt.Errorf("cannot record migration %d (%s) in %s.schema_migrations: %w", m.Version, m.Name, l.Database, err)
	}
	return nil
}

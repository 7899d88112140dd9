package clickhouse

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	ch "github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
)

// Migrate creates or updates the database and its tables on one server, and returns the names of
// the migrations that it applied, even if a later one fails. Several daemons may call it at the
// same time. The connection needs no default database. In a cluster, Migrate must be called for
// each server. It creates missing replicated tables with the definitions of the other servers,
// because the columns and the TTL must be the same on all replicas.
func Migrate(ctx context.Context, c driver.Conn, l Layout, others ...driver.Conn) (applied []string, err error) {
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
	list = slices.DeleteFunc(list, func(m Migration) bool { return slices.Contains(done, m.Version) })
	if l.Cluster != "" && len(list) > 0 {
		if err := join(ctx, c, l, others); err != nil {
			return nil, err
		}
	}
	for _, m := range list {
		if err := apply(ctx, c, l, m); err != nil {
			return applied, err
		}
		applied = append(applied, m.Name)
	}
	return applied, nil
}

// prepare creates the database and the migrations table. The Atomic engine makes DDL atomic; it is
// not the default on some servers.
func prepare(ctx context.Context, c driver.Conn, l Layout) error {
	database := fmt.Sprintf("CREATE DATABASE IF NOT EXISTS `%s` ENGINE = Atomic", l.Database)
	if err := c.Exec(ctx, database); err != nil {
		return fmt.Errorf("cannot create the database %s: %w", l.Database, err)
	}
	table := fmt.Sprintf("CREATE TABLE IF NOT EXISTS `%s`.%s\n"+
		"(table_name String, version UInt32, name String, applied_at DateTime64(3, 'UTC') DEFAULT now64(3))\n"+
		"ENGINE = ReplacingMergeTree(applied_at) ORDER BY (table_name, version)", l.Database, l.MigrationsTable())
	if err := c.Exec(ctx, table); err != nil {
		return fmt.Errorf("cannot create the table %s.%s: %w", l.Database, l.MigrationsTable(), err)
	}
	return nil
}

// versions returns the numbers of the migrations that have been applied.
func versions(ctx context.Context, c driver.Conn, l Layout) (list []uint32, err error) {
	var rows []struct {
		Version uint32 `ch:"version"`
	}
	query := fmt.Sprintf("SELECT version FROM `%s`.%s WHERE table_name = '%s'", l.Database, l.MigrationsTable(), l.Table)
	if err := c.Select(ctx, &rows, query); err != nil {
		return nil, fmt.Errorf("cannot read %s.%s: %w", l.Database, l.MigrationsTable(), err)
	}
	for _, r := range rows {
		list = append(list, r.Version)
	}
	return list, nil
}

// Pending reports whether there are migrations that Migrate has yet to apply.
func Pending(ctx context.Context, c driver.Conn, l Layout) (bool, error) {
	names, err := tableNames(ctx, c, l)
	if err != nil || !names[l.MigrationsTable()] {
		return err == nil, err
	}
	done, err := versions(ctx, c, l)
	if err != nil {
		return false, err
	}
	list, err := Migrations(l)
	return slices.ContainsFunc(list, func(m Migration) bool { return !slices.Contains(done, m.Version) }), err
}

func tableNames(ctx context.Context, c driver.Conn, l Layout) (map[string]bool, error) {
	var tables []struct {
		Name string `ch:"name"`
	}
	if err := c.Select(ctx, &tables, fmt.Sprintf("SELECT name FROM system.tables WHERE database = '%s'", l.Database)); err != nil {
		return nil, fmt.Errorf("cannot list the tables of %s: %w", l.Database, err)
	}
	names := map[string]bool{}
	for _, t := range tables {
		names[t.Name] = true
	}
	return names, nil
}

// ForgetDropped makes the next Migrate apply migrations again if tables or views were dropped, and
// returns their names. Migrations do not change the rows of existing tables.
func ForgetDropped(ctx context.Context, c driver.Conn, l Layout) (dropped []string, err error) {
	dropped, since, err := Dropped(ctx, c, l)
	if err == nil && len(dropped) > 0 {
		err = c.Exec(ctx, fmt.Sprintf("ALTER TABLE `%s`.%s DELETE WHERE table_name = '%s' AND version >= %d SETTINGS mutations_sync = 1",
			l.Database, l.MigrationsTable(), l.Table, since))
	}
	return dropped, err
}

var created = regexp.MustCompile("^CREATE ([A-Z ]+) `[^`]+`\\.`?([^`\\s]+)")

// Dropped returns the tables and views that do not exist although migrations have created them, and
// the number of the first migration to apply again. For a table, that is the first of all, so that
// the derived tables are filled again.
func Dropped(ctx context.Context, c driver.Conn, l Layout) (dropped []string, since uint32, err error) {
	seen, err := tableNames(ctx, c, l)
	if err != nil || !seen[l.MigrationsTable()] {
		return nil, 0, err
	}
	done, err := versions(ctx, c, l)
	if err != nil {
		return nil, 0, err
	}
	if seen, err = tableNames(ctx, c, l); err != nil { // again, because the tables of done may have been created since
		return nil, 0, err
	}
	list, err := Migrations(l)
	for _, m := range list {
		for _, statement := range m.Statements {
			parts := created.FindStringSubmatch(statement)
			if parts == nil || seen[parts[2]] || !slices.Contains(done, m.Version) {
				continue
			}
			seen[parts[2]] = true
			switch isView := strings.Contains(parts[1], "VIEW"); {
			case !isView:
				since = 0
			case len(dropped) == 0:
				since = m.Version
			}
			dropped = append(dropped, parts[2])
		}
	}
	return dropped, since, err
}

// join creates the replicated tables that other servers have.
func join(ctx context.Context, c driver.Conn, l Layout, others []driver.Conn) error {
	for _, other := range others {
		statements, err := replicatedTables(ctx, other, l)
		if err != nil {
			continue // the server may be dead; the next one has the same tables
		}
		for _, statement := range statements {
			if err := exec(ctx, c, l, statement); err != nil {
				return fmt.Errorf("cannot create a replicated table in database %s: %w", l.Database, err)
			}
		}
	}
	return nil
}

// replicatedTables returns the statements that create the replicated tables of a server.
func replicatedTables(ctx context.Context, c driver.Conn, l Layout) (statements []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	var rows []struct {
		Statement string `ch:"create_table_query"`
	}
	query := fmt.Sprintf("SELECT create_table_query FROM system.tables WHERE database = '%s' AND engine LIKE 'Replicated%%'"+
		" AND (name = '%s' OR startsWith(name, '%s_') OR startsWith(name, 'forecaster_'))", l.Database, l.Local(), l.Table)
	err = c.Select(ctx, &rows, query)
	for _, r := range rows {
		statements = append(statements, strings.Replace(r.Statement, "CREATE TABLE ", "CREATE TABLE IF NOT EXISTS ", 1))
	}
	return statements, err
}

// The server's error codes that exec handles.
const (
	otherColumns    = 122 // INCOMPATIBLE_COLUMNS: Keeper has a newer definition of the table
	replicaExists   = 253 // REPLICA_ALREADY_EXISTS: Keeper lists this replica for a table that the server does not have
	cannotAssignDDL = 517 // CANNOT_ASSIGN_ALTER: the replica has not yet applied the ALTER of another replica
)

// exec runs a statement that creates or alters a table. It waits until the replica has applied
// earlier ALTERs.
func exec(ctx context.Context, c driver.Conn, l Layout, statement string) error {
	for {
		err := c.Exec(ctx, statement)
		var exception *ch.Exception
		switch errors.As(err, &exception); {
		case exception != nil && exception.Code == cannotAssignDDL && ctx.Err() == nil:
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
		case exception != nil && exception.Code == otherColumns:
			return fmt.Errorf("%w; run trafficd migrate with all servers in clickhouse.addresses, which creates the table as on other servers", err)
		case exception != nil && exception.Code == replicaExists:
			return fmt.Errorf("%w; if the server lost its disk, remove its replica from Keeper by running on another server of its shard:"+
				" SYSTEM DROP REPLICA '<replica>' FROM DATABASE %s; repeat that with '<shard>-<replica>'", err, l.Database)
		default:
			return err
		}
	}
}

func apply(ctx context.Context, c driver.Conn, l Layout, m Migration) error {
	for _, statement := range m.Statements {
		if err := exec(ctx, c, l, statement); err != nil {
			return fmt.Errorf("cannot apply migration %d (%s) to %s.%s: %w", m.Version, m.Name, l.Database, l.Table, err)
		}
	}
	insert := fmt.Sprintf("INSERT INTO `%s`.%s (table_name, version, name) SETTINGS async_insert = 0 VALUES ('%s', %d, '%s')",
		l.Database, l.MigrationsTable(), l.Table, m.Version, m.Name)
	if err := c.Exec(ctx, insert); err != nil {
		return fmt.Errorf("cannot record migration %d (%s) in %s.%s: %w", m.Version, m.Name, l.Database, l.MigrationsTable(), err)
	}
	return nil
}

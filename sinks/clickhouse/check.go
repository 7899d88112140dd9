package clickhouse

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	ch "github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/rs/zerolog"

	schema "trafficd/schemas/clickhouse"
)

// Check checks the files that the configuration names and, if deep is true, each server: its
// connection, user, grants, tables and clock. Each joined error starts with a setting's key. Check
// changes nothing on the servers. deep requires a valid configuration.
func (c Config) Check(ctx context.Context, deep bool) error {
	s, err := New(c, zerolog.Nop())
	if err != nil {
		return errors.Unwrap(err) // strip the section name
	}
	_ = s.Close() // the sink was not used
	if err := c.TLS.CheckFiles("tls."); err != nil || !deep {
		return err
	}
	var errs []error
	replicas := map[string]string{} // shard and replica → address
	for _, address := range c.Addresses {
		replica, err := c.checkServer(ctx, address)
		if other, duplicate := replicas[replica]; duplicate && replica != "" {
			err = errors.Join(err, fmt.Errorf("cluster: %s and %s are both %s: define distinct shard and replica macros on each server",
				other, address, replica))
		}
		replicas[replica] = address
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// checkServer checks one server. In a cluster, replica describes the server's replica and shard.
func (c Config) checkServer(ctx context.Context, address string) (replica string, err error) {
	single := c
	single.Addresses, single.Cluster = []string{address}, ""
	single.Migrate, single.DeriveInterval = false, 0 // Probe must not create or update tables
	s, err := New(single, zerolog.Nop())
	if err != nil {
		return "", err
	}
	defer func() { _ = s.Close() }()
	conn := s.hosts.all[0].conn
	server := c.ClickHouse
	server.Database = ""
	if err := server.Check(ctx, "addresses", address, c.DialTimeout); err != nil {
		return "", err
	}
	var errs []error
	for _, g := range c.grants() {
		var granted bool
		// Servers before 24.11 do not support CHECK GRANT; there, Probe fails if a grant is missing.
		if err := conn.QueryRow(ctx, "CHECK GRANT "+g).Scan(&granted); err == nil && !granted {
			errs = append(errs, fmt.Errorf("username: user %q lacks a grant on %s: GRANT %s TO %s", c.Username, address, g, c.Username))
		}
	}
	if c.Cluster != "" {
		if err := c.checkCluster(ctx, conn); err != nil {
			errs = append(errs, fmt.Errorf("%w (%s)", err, address))
		} else if err := conn.QueryRow(ctx, "SELECT 'replica ' || getMacro('replica') || ' of shard ' || getMacro('shard')").
			Scan(&replica); err != nil {
			errs = append(errs, fmt.Errorf("cluster: the shard and replica macros must be defined on %s: %w", address, err))
		}
	}
	if c.Migrate && len(errs) == 0 { // other users may not see the tables
		if pending, err := schema.Pending(ctx, conn, c.layout()); err == nil && pending {
			return replica, nil // the daemon is changing the tables, or will
		}
		dropped, _, err := schema.Dropped(ctx, conn, c.layout())
		if len(dropped) > 0 {
			err = fmt.Errorf("%s of database %s on %s do not exist any more: restore them, or run trafficd migrate, which creates them again",
				strings.Join(dropped, ", "), c.Database, address)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("table: %w", err))
		}
	}
	if len(errs) > 0 {
		return replica, errors.Join(errs...)
	}
	err = s.Probe(ctx)
	var exception *ch.Exception
	missing := errors.As(err, &exception) && slices.Contains([]int32{60, 81}, exception.Code) // UNKNOWN_TABLE, UNKNOWN_DATABASE
	switch {
	case missing:
		return replica, fmt.Errorf("migrate: table %s does not exist on %s: run trafficd migrate, or set clickhouse.migrate to true",
			s.table, address)
	case err != nil:
		return replica, fmt.Errorf("table: %s: %w", address, err)
	}
	return replica, c.checkTables(ctx, conn, address)
}

// checkCluster returns an error if the server's configuration does not contain the cluster, or if
// addresses does not list all of its servers.
func (c Config) checkCluster(ctx context.Context, conn driver.Conn) error {
	var servers []string
	query := fmt.Sprintf("SELECT groupArray(host_name || ':' || toString(port)) FROM system.clusters WHERE cluster = '%s'", c.Cluster)
	switch err := conn.QueryRow(ctx, query).Scan(&servers); {
	case err != nil:
		return fmt.Errorf("cluster: %w", err)
	case len(servers) == 0:
		return fmt.Errorf("cluster: no cluster %q in the server's remote_servers", c.Cluster)
	case len(servers) != len(c.Addresses):
		return fmt.Errorf("addresses: lists %d servers, but cluster %q has %d (%s): list all of them, because "+
			"each needs the tables and is searched for in-doubt blocks",
			len(c.Addresses), c.Cluster, len(servers), strings.Join(servers, ", "))
	}
	return nil
}

// checkTables returns an error for each table engine or setting that would break the sink's
// guarantees.
func (c Config) checkTables(ctx context.Context, conn driver.Conn, address string) error {
	var engines map[string]string
	query := fmt.Sprintf("SELECT mapFromArrays(groupArray(name), groupArray(engine_full)) FROM system.tables"+
		" WHERE database = '%s'", c.Database)
	if err := conn.QueryRow(ctx, query).Scan(&engines); err != nil {
		return fmt.Errorf("table: %s: %w", address, err)
	}
	var errs []error
	for _, table := range c.layout().Synced() {
		engine, exists := engines[table]
		if !exists {
			if !c.Migrate { // otherwise the daemon will create it
				errs = append(errs, fmt.Errorf("migrate: table `%s`.`%s` does not exist on %s: run trafficd migrate", c.Database, table, address))
			}
			continue
		}
		if c.Cluster != "" && !strings.HasPrefix(engine, "Replicated") {
			errs = append(errs, fmt.Errorf("table: %s on %s has engine %.40q, must be replicated in a cluster", table, address, engine))
		}
		for _, s := range []struct {
			name string
			want int
		}{{"fsync_after_insert", 1}, {"fsync_part_directory", 1}, {"old_parts_lifetime", 480}} {
			if value, found := settingValue(engine, s.name); !found || value < s.want {
				errs = append(errs, c.wrongSetting(table, address, s.name, s.want, "acknowledged rows could be lost in a power failure"))
			}
		}
	}
	if key := c.layout().ShardingKey(); c.Cluster != "" && !strings.Contains(engines[c.Table], key) {
		errs = append(errs, fmt.Errorf("table: %s on %s has engine %.80q, must be Distributed with sharding key %s: "+
			"otherwise queries with FINAL return wrong results",
			c.Table, address, engines[c.Table], key))
	}
	return errors.Join(append(errs, c.checkVisible(ctx, conn, address), c.checkWindow(ctx, conn, address, engines[c.layout().Local()]))...)
}

// checkVisible returns an error if the user sees no rows of the table although it has some.
func (c Config) checkVisible(ctx context.Context, conn driver.Conn, address string) error {
	local := c.layout().Local()
	var stored, visible bool
	query := fmt.Sprintf("SELECT ifNull(total_rows, 0) > 0 FROM system.tables WHERE database = '%s' AND name = '%s'", c.Database, local)
	err := conn.QueryRow(ctx, query).Scan(&stored)
	if err == nil && stored { // a statement of its own, so that it sees the rows that the first one counted
		query = fmt.Sprintf("SELECT count() > 0 FROM (SELECT 1 FROM `%s`.`%s` LIMIT 1)", c.Database, local)
		err = conn.QueryRow(ctx, query).Scan(&visible)
	}
	if err != nil || !stored || visible {
		return nil // a missing table or grant is reported elsewhere
	}
	return fmt.Errorf("username: row policies on %s hide all rows of `%s`.`%s` from user %q, so they could be inserted twice and would "+
		"be missing in the derived tables: CREATE ROW POLICY trafficd ON `%s`.* USING 1 TO %s",
		address, c.Database, local, c.Username, c.Database, c.Username)
}

func (c Config) wrongSetting(table, address, name string, want int, reason string) error {
	return fmt.Errorf("table: %s of %s on %s must be at least %d (%s): run ALTER TABLE `%s`.`%s` MODIFY SETTING %s = %d",
		name, table, address, want, reason, c.Database, table, name, want)
}

// settingValue returns the integer value of a setting in a table's engine_full, and reports whether
// it was found.
func settingValue(engine, setting string) (value int, found bool) {
	_, text, found := strings.Cut(engine, " "+setting+" = ")
	if !found {
		return 0, false
	}
	_, err := fmt.Sscanf(text, "%d", &value)
	return value, err == nil
}

// checkWindow returns an error if the deduplication window is too small for the number of parts
// that were inserted in the busiest minute of the last day. It returns nil if the server has no
// part_log.
func (c Config) checkWindow(ctx context.Context, conn driver.Conn, address, engine string) error {
	local := c.layout().Local()
	var parts uint64
	query := fmt.Sprintf("SELECT max(parts) FROM (SELECT count() AS parts FROM system.part_log"+
		" WHERE event_type IN ('NewPart', 'DownloadPart') AND database = '%s' AND table = '%s' "+
		"AND event_time > now() - INTERVAL 1 DAY GROUP BY toStartOfMinute(event_time))", c.Database, local)
	if conn.QueryRow(ctx, query).Scan(&parts) != nil {
		return nil // no part_log
	}
	name := "non_replicated_deduplication_window"
	if c.Cluster != "" {
		name = "replicated_deduplication_window"
	}
	required := int(float64(parts) / 60 * (c.WriteTimeout + 5*time.Second).Seconds())
	if window, _ := settingValue(engine, name); window < max(required, 1) {
		reason := fmt.Sprintf("it is %d, but up to %d parts may be inserted before a retry", window, required)
		return c.wrongSetting(local, address, name, max(2*required, 10_000), reason)
	}
	return nil
}

func (c Config) grants() []string {
	local := fmt.Sprintf("ON `%s`.`%s`", c.Database, c.layout().Local())
	engine := "Null" // to find rejected rows (see search.go)
	if c.Migrate {
		engine = "*"
	}
	list := []string{"INSERT " + local, "SELECT " + local, "CREATE ARBITRARY TEMPORARY TABLE ON *.*", "TABLE ENGINE ON " + engine}
	for _, name := range schema.DerivedTables {
		derived := fmt.Sprintf("ON `%s`.`%s`", c.Database, c.layout().Derived(name))
		list = append(list, "INSERT "+derived, "SELECT "+derived)
	}
	if c.DeriveInterval > 0 {
		for _, name := range []string{"registry", "units"} {
			list = append(list, fmt.Sprintf("INSERT ON `%s`.`%s_%s`", c.Database, c.Table, name))
		}
	}
	receipts := "ON " + c.layout().Receipts()
	list = append(list, "INSERT "+receipts, "SELECT "+receipts)
	for _, name := range []string{ // for the map (package sites)
		"registry", "detectors", "last", "1h", "current", "health", "detector_health", "sick_hours",
	} {
		list = append(list, fmt.Sprintf("SELECT ON `%s`.`%s_%s`", c.Database, c.Table, name))
	}
	if c.Migrate {
		for _, privilege := range []string{"CREATE DATABASE", "CREATE TABLE", "CREATE VIEW", "DROP VIEW", "DROP TABLE", "ALTER TABLE", "SELECT"} {
			list = append(list, fmt.Sprintf("%s ON `%s`.*", privilege, c.Database))
		}
		for _, privilege := range []string{"INSERT", "SELECT"} {
			list = append(list, fmt.Sprintf("%s ON `%s`.%s", privilege, c.Database, c.layout().MigrationsTable()))
		}
	}
	if c.Cluster != "" {
		distributed := fmt.Sprintf("ON `%s`.`%s`", c.Database, c.Table)
		list = append(list, "INSERT "+distributed, "SELECT "+distributed,
			"SYSTEM SYNC REPLICA "+local, fmt.Sprintf("SYSTEM SYNC REPLICA ON `%s`.`%s`", c.Database, c.layout().Derived("by_time")))
	}
	return list
}

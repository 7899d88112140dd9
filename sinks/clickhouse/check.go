package clickhouse

import (
	"context"
	"errors"
	"fmt"
	"slices"

	ch "github.com/ClickHouse/clickhouse-go/v2"
	"github.com/rs/zerolog"

	schema "trafficd/schemas/clickhouse"
)

// Check reports what is wrong with the files that the configuration names and, if deep, with each
// server: connection, user, grants, tables and clock. Each of the joined errors starts with the key of
// a setting. It changes nothing on the servers. An invalid configuration is not checked deeply.
func (c Config) Check(ctx context.Context, deep bool) error {
	s, err := New(c, zerolog.Nop())
	if err != nil {
		return errors.Unwrap(err) // without the section
	}
	_ = s.Close() // it was not used
	if !deep || c.Validate() != nil {
		return nil
	}
	var errs []error
	for _, address := range c.Addresses {
		errs = append(errs, c.checkServer(ctx, address))
	}
	return errors.Join(errs...)
}

func (c Config) checkServer(ctx context.Context, address string) error {
	migrate := c.Migrate
	c.Addresses, c.Migrate = []string{address}, false // with Migrate, Probe would create the tables
	s, err := New(c, zerolog.Nop())
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }()
	server := c.ClickHouse
	server.Database = ""
	if err := server.Check(ctx, "addresses", address, c.DialTimeout); err != nil {
		return err
	}
	var errs []error
	for _, g := range c.grants(migrate) {
		var granted bool
		// Servers before 24.11 do not know the statement; Probe fails there if a grant is missing.
		if err := s.conn.QueryRow(ctx, "CHECK GRANT "+g).Scan(&granted); err == nil && !granted {
			errs = append(errs, fmt.Errorf("username: user %q lacks a grant on %s: GRANT %s TO %s", c.Username, address, g, c.Username))
		}
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	err = s.Probe(ctx)
	var exception *ch.Exception
	missing := errors.As(err, &exception) && slices.Contains([]int32{60, 81}, exception.Code) // UNKNOWN_TABLE, UNKNOWN_DATABASE
	switch {
	case missing && migrate:
		return nil // the daemon creates them
	case missing:
		return fmt.Errorf("migrate: table %s does not exist on %s: run trafficd migrate, or set clickhouse.migrate to true", s.table, address)
	case err != nil:
		return fmt.Errorf("table: %s: %w", address, err)
	}
	return nil
}

// grants lists the grants that the sink needs.
func (c Config) grants(migrate bool) []string {
	local := fmt.Sprintf("ON `%s`.`%s`", c.Database, c.layout().Local())
	list := []string{"INSERT " + local, "SELECT " + local}
	for _, name := range schema.DerivedTables {
		derived := fmt.Sprintf("ON `%s`.`%s`", c.Database, c.layout().Derived(name))
		list = append(list, "INSERT "+derived, "SELECT "+derived)
	}
	if c.DeriveInterval > 0 {
		list = append(list, fmt.Sprintf("INSERT ON `%s`.`%s_registry`", c.Database, c.Table))
	}
	if migrate {
		for _, privilege := range []string{"CREATE DATABASE", "CREATE TABLE", "CREATE VIEW", "ALTER TABLE", "SELECT"} {
			list = append(list, fmt.Sprintf("%s ON `%s`.*", privilege, c.Database))
		}
		for _, privilege := range []string{"INSERT", "SELECT"} {
			list = append(list, fmt.Sprintf("%s ON `%s`.schema_migrations", privilege, c.Database))
		}
	}
	if c.Cluster != "" {
		list = append(list, "SYSTEM SYNC REPLICA "+local)
		if migrate {
			list = append(list, "CLUSTER ON *.*")
		}
	}
	return list
}

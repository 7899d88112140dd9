package clickhouse

import "fmt"

// Layout names the objects that the migrations create.
type Layout struct {
	Database string
	Table    string // name of the table to query
	Cluster  string // cluster name in the server configuration; empty for a single server
}

// Local returns the unqualified name of the table that stores the rows. In a cluster, it is the
// replicated table, not the Distributed table (contract 4.2).
func (l Layout) Local() string {
	if l.Cluster != "" {
		return l.Table + "_local"
	}
	return l.Table
}

// Derived returns the name of a derived table. Like Local, it names the table that stores the rows.
func (l Layout) Derived(name string) string {
	l.Table += "_" + name
	return l.Local()
}

// InsertDetectors returns an INSERT statement for detectors, without its values: product instance,
// code, attributes, and the time at which the detector list was read.
func (l Layout) InsertDetectors() string {
	return "INSERT INTO `" + l.Database + "`.`" + l.Table + "_registry` (product_instance, detector_code, attributes, listed_at)"
}

// InsertUnits returns an INSERT statement for units, without its values: measure type and unit.
func (l Layout) InsertUnits() string {
	return "INSERT INTO `" + l.Database + "`.`" + l.Table + "_units` (measure_type_code, unit)"
}

// Receipts returns the quoted name of the table of receipts, with its database.
func (l Layout) Receipts() string { return "`" + l.Database + "`.`" + l.Table + "_receipts`" }

// ShardingKey returns the expression that determines the shard of a row in a cluster. All rows of a
// detector are on one shard, and so are all versions of a measurement, as FINAL requires.
func (Layout) ShardingKey() string { return "cityHash64(product_instance, detector_code)" }

// Good returns an SQL expression that reports whether the detector has not been found sick in the
// hour that contains a time. The key is product instance, measure type and detector. A query that
// does not use the expression does not build its set, which a hash of 8 bytes for each hour keeps
// small. ClickHouse 26.7 pushes a range of time into NOT EXISTS, but only of equal columns: for
// quarters of an hour, or without a range, that is up to three times slower than the set.
func (l Layout) Good(key, time string) string {
	const hash = "cityHash64(%s, intDiv(toUnixTimestamp(%s), 3600))"
	sick := fmt.Sprintf(hash, "product_instance, measure_type_code, detector_code", "bucket")
	return fmt.Sprintf(hash+" NOT IN (SELECT %s FROM `%s`.`%s_sick_hours`)", key, time, sick, l.Database, l.Table)
}

// Synced returns the unqualified names of the tables whose inserts are fsynced.
func (l Layout) Synced() []string {
	tables := []string{l.Local()}
	for _, name := range DerivedTables {
		tables = append(tables, l.Derived(name))
	}
	return tables
}

// MigrationsTable returns the name of the table that lists the migrations applied to a server. In a
// cluster it is not replicated: a server with a new disk has no tables, so its list must be empty
// too.
func (l Layout) MigrationsTable() string {
	if l.Cluster != "" {
		return "schema_migrations_local"
	}
	return "schema_migrations"
}

// Engine returns a table engine of the MergeTree family with its arguments. In a cluster, it
// returns the replicated variant; path identifies the table in Keeper, and replica identifies the
// replica.
func (l Layout) Engine(family, path, replica, args string) string {
	if l.Cluster == "" {
		return family + "(" + args + ")"
	}
	if args != "" {
		args = ", " + args
	}
	return "Replicated" + family + "('/clickhouse/tables/" + path + "', '" + replica + "'" + args + ")"
}

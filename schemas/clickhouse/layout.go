package clickhouse

// Layout names the objects that the migrations create.
type Layout struct {
	Database string
	Table    string // the table that is read
	Cluster  string // name of the cluster on the servers; empty: one server, no replication
}

// Local returns the name of the table for inserts, without the database: in a cluster the
// replicated table, not the Distributed one (contract 4).
func (l Layout) Local() string {
	if l.Cluster != "" {
		return l.Table + "_local"
	}
	return l.Table
}

// Derived returns the name of a table that is derived from the archive, for inserts as in Local.
// Queries read it without the suffix.
func (l Layout) Derived(name string) string {
	l.Table += "_" + name
	return l.Local()
}

// InsertDetectors returns the statement that a batch of detectors begins with: product instance,
// code, attributes and time.
func (l Layout) InsertDetectors() string {
	return "INSERT INTO `" + l.Database + "`.`" + l.Table + "_registry` (product_instance, detector_code, attributes, listed_at)"
}

// ShardingKey returns the expression that determines the shard of a row in a cluster. All rows of a
// detector are on one shard, and so are all versions of a measurement, as FINAL requires.
func (Layout) ShardingKey() string { return "cityHash64(product_instance, detector_code)" }

// Synced returns the tables whose inserts are fsynced, without the database.
func (l Layout) Synced() []string {
	tables := []string{l.Local()}
	for _, name := range DerivedTables {
		tables = append(tables, l.Derived(name))
	}
	return tables
}

// Journal returns the table that lists what was applied to a server. In a cluster it is not
// replicated: a server with a new disk lacks the tables of the others.
func (l Layout) Journal() string {
	if l.Cluster != "" {
		return "schema_migrations_local"
	}
	return "schema_migrations"
}

// Engine returns an engine of the MergeTree family, in a cluster the replicated one. path
// identifies the table in Keeper, replica the replica.
func (l Layout) Engine(family, path, replica, args string) string {
	if l.Cluster == "" {
		return family + "(" + args + ")"
	}
	if args != "" {
		args = ", " + args
	}
	return "Replicated" + family + "('/clickhouse/tables/" + path + "', '" + replica + "'" + args + ")"
}

package clickhouse

// Layout names what the migrations make.
type Layout struct {
	Database string
	Table    string // the table that is read
	Cluster  string // name of the cluster on the servers; empty: one server, no replication
}

// Local is the table that rows are inserted into, without the database: the
// replicated one of a cluster, never the Distributed one (contract 4).
func (l Layout) Local() string {
	if l.Cluster != "" {
		return l.Table + "_local"
	}
	return l.Table
}

// OnCluster is the clause that carries a statement to all hosts of a cluster.
func (l Layout) OnCluster() string {
	if l.Cluster != "" {
		return " ON CLUSTER `" + l.Cluster + "`"
	}
	return ""
}

// Engine gives one of the MergeTree family, in a cluster its replicated twin.
// path is what tells the table's replicas apart from other tables in Keeper,
// replica what tells them apart from one another.
func (l Layout) Engine(family, path, replica, args string) string {
	if l.Cluster == "" {
		return family + "(" + args + ")"
	}
	if args != "" {
		args = ", " + args
	}
	return "Replicated" + family + "('/clickhouse/tables/" + path + "', '" + replica + "'" + args + ")"
}

package clickhouse

import (
	"cmp"
	"errors"
	"net"
	"regexp"
	"time"

	native "github.com/ClickHouse/ch-go"

	"trafficd/pipeline/lib/dial"
	"trafficd/pipeline/lib/settings"
	schema "trafficd/schemas/clickhouse"
)

// Config is the clickhouse section of the configuration: where the archive is, and how to write to
// it.
type Config struct {
	// host:port of the native protocol: one server, or all servers of the cluster. Inserts are
	// spread over the available servers.
	Addresses       []string `setting:"addresses"`
	dial.ClickHouse `setting:",squash"`
	Table           string `setting:"table"` // name of the table
	// name of the cluster in the servers' configuration; empty: one server, no replication
	Cluster string `setting:"cluster"`
	// number of replicas of a shard that must have a row before it counts as delivered; 0: the
	// majority, or all live replicas if they are fewer
	Quorum  int  `setting:"quorum"`
	Migrate bool `setting:"migrate"` // create or update the tables when the server first responds

	// compression of inserts on the network, a constant that tests vary: none, lz4, zstd (more CPU
	// and less bandwidth), or auto: none for a server on this machine (localhost), lz4 for others
	Compression  string        `setting:"-"`
	DialTimeout  time.Duration `setting:"-"`             // time to connect, including TLS; a constant that tests vary
	WriteTimeout time.Duration `setting:"write_timeout"` // time limit for one insert, including its acknowledgement, or for one lookup

	BlockRows int `setting:"-"` // number of rows inserted together; more if they are from many months

	// time between updates of the derived tables and the detectors (see schemas/clickhouse); 0 if
	// another daemon updates them
	DeriveInterval time.Duration `setting:"derive_interval"`
	// minimum number of days to keep measurements, counted from timestamp_from; they are dropped at
	// the latest when their whole month is older. Without a TTL, they are kept forever
	RetentionDays int `setting:"retention_days"`
}

// DefaultConfig returns the settings for a server on this machine.
func DefaultConfig() Config {
	return Config{
		Addresses:    []string{"127.0.0.1:9000"},
		ClickHouse:   dial.ClickHouse{Database: "trafficd", Username: "default"},
		Table:        "measurements",
		Migrate:      true,
		Compression:  "auto",
		DialTimeout:  5 * time.Second,
		WriteTimeout: time.Minute,
		BlockRows:    100_000,

		DeriveInterval: 10 * time.Second,
	}
}

const maxMonths = 50 // maximum number of months in one INSERT: the server writes a part for each

var compressions = map[string]native.Compression{
	"lz4": native.CompressionLZ4, "zstd": native.CompressionZSTD, "none": native.CompressionDisabled,
}

// compression returns the compression of inserts into a server. With auto, there is none for a
// loopback address, for which lz4 would cost more CPU, here and on the server, than it saves.
func (c Config) compression(address string) native.Compression {
	if c.Compression != "auto" {
		return compressions[c.Compression]
	}
	name, _, _ := net.SplitHostPort(address)
	if ip := net.ParseIP(name); name == "localhost" || ip.IsLoopback() {
		return native.CompressionDisabled
	}
	return native.CompressionLZ4
}

// identifier matches names that need no quoting in SQL and in Keeper paths.
var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,63}$`)

// Validate returns all errors, joined; each names its key and the reason for the bound.
func (c Config) Validate() error {
	const name = "%s is %q, must be 1 to 64 letters, digits and underscores and not start with a digit: SQL statements contain it unquoted"
	errs := []error{
		settings.Check(identifier.MatchString(c.Database), name, "database", c.Database),
		settings.Check(identifier.MatchString(c.Table), name, "table", c.Table),
		settings.Check(identifier.MatchString(cmp.Or(c.Cluster, "none")), name, "cluster", c.Cluster),
		settings.Check(len(c.Addresses) > 0, "addresses must name at least one server"),
		settings.Check(len(c.Addresses) <= 1 || c.Cluster != "",
			"addresses lists %d servers, must list one unless cluster is set: separate servers do not share the deduplication of inserts",
			len(c.Addresses)),
		settings.Within("quorum", c.Quorum, 0, 16, "1 does not wait for other replicas"),
		settings.Check(c.Quorum <= 0 || c.Cluster != "", "quorum is %d, must be 0 unless cluster is set", c.Quorum),
		settings.Check(c.Username != "", "username must be set"),
		c.ClickHouse.Validate(""),
		settings.Within("write_timeout", c.WriteTimeout, time.Second, 10*time.Minute,
			"inserting a block takes up to a second, and a few seconds on a server that delays inserts"),
		settings.Within("retention_days", c.RetentionDays, 0, 36_500, "0 does not change the tables' TTL"),
		settings.Check(c.DeriveInterval == 0 || c.DeriveInterval >= time.Second && c.DeriveInterval <= time.Hour,
			"derive_interval is %s, must be 0 or 1s to 1h: a shorter one makes many small parts; "+
				"a longer one delays the derived tables", c.DeriveInterval),
	}
	for _, a := range c.Addresses {
		errs = append(errs, dial.ValidateAddress("addresses", a))
	}
	return errors.Join(errs...)
}

func (c Config) layout() schema.Layout {
	return schema.Layout{Database: c.Database, Table: c.Table, Cluster: c.Cluster}
}

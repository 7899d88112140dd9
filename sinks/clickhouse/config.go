package clickhouse

import (
	"errors"
	"fmt"
	"net"
	"regexp"
	"time"

	schema "trafficd/schemas/clickhouse"
)

// Config says where the archive is and how to write to it.
type Config struct {
	// Addresses are host:port of the native protocol, tried in this order.
	// Several are for replicas of one shard: the deduplication of inserts is
	// common to those and to nothing else.
	Addresses []string `koanf:"addresses"`
	Database  string   `koanf:"database"`
	Table     string   `koanf:"table"`
	Cluster   string   `koanf:"cluster"` // name on the servers; empty: one server, no replication
	Quorum    int      `koanf:"quorum"`  // insert_quorum in a cluster; 0: the replica's own durability
	Migrate   bool     `koanf:"migrate"` // make or update the tables when the store first answers

	Username string `koanf:"username"`
	Password string `koanf:"password"`
	Secure   bool   `koanf:"secure"` // TLS
	CAFile   string `koanf:"ca_file"`
	CertFile string `koanf:"cert_file"` // of the client; read again for every connection
	KeyFile  string `koanf:"key_file"`

	ServerName         string `koanf:"server_name"`
	InsecureSkipVerify bool   `koanf:"insecure_skip_verify"`

	Compression  string        `koanf:"compression"`
	DialTimeout  time.Duration `koanf:"dial_timeout"`
	WriteTimeout time.Duration `koanf:"write_timeout"` // of one attempt: insert, acknowledgement, look-up

	BlockRows     int `koanf:"block_rows"`
	MaxPartitions int `koanf:"max_partitions"`
}

// DefaultConfig is a server on this machine.
func DefaultConfig() Config {
	return Config{
		Addresses:     []string{"127.0.0.1:9000"},
		Database:      "trafficd",
		Table:         "measurements",
		Migrate:       true,
		Username:      "default",
		Compression:   "lz4",
		DialTimeout:   5 * time.Second,
		WriteTimeout:  time.Minute,
		BlockRows:     100_000,
		MaxPartitions: 50,
	}
}

// The bounds, each with its reason in Validate.
const (
	maxBlockRows  = 200_000
	maxPartitions = 50
	maxQuorum     = 16
)

// identifier keeps names out of need of quoting, in SQL and in Keeper's paths.
var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,63}$`)

// Validate tells all that is wrong, one line for each key.
func (c Config) Validate() error {
	return errors.Join(c.validateWhere(), c.validateTLS(), c.validateHow())
}

func (c Config) validateWhere() error {
	var errs []error
	for key, name := range map[string]string{"database": c.Database, "table": c.Table} {
		errs = append(errs, check(identifier.MatchString(name), "%s: %q has to be 1–64 letters, digits and underscores, no digit first: it stands in SQL as it is", key, name))
	}
	errs = append(errs,
		check(c.Cluster == "" || identifier.MatchString(c.Cluster), "cluster: %q has to be 1–64 letters, digits and underscores, no digit first, or empty", c.Cluster),
		check(len(c.Addresses) > 0, "addresses: at least one host:port is needed"),
		check(len(c.Addresses) <= 1 || c.Cluster != "", "addresses: %d servers without a cluster do not share what was inserted before, so a repeat could double rows; name one, or set cluster", len(c.Addresses)),
		check(c.Quorum >= 0 && c.Quorum <= maxQuorum, "quorum: %d has to be 0–%d, a number of replicas of one shard", c.Quorum, maxQuorum),
		check(c.Quorum == 0 || c.Cluster != "", "quorum: %d needs a cluster", c.Quorum),
		check(c.Username != "", "username: must not be empty"))
	for _, a := range c.Addresses {
		_, _, err := net.SplitHostPort(a)
		errs = append(errs, check(err == nil, "addresses: %q is no host:port", a))
	}
	return errors.Join(errs...)
}

func (c Config) validateTLS() error {
	extras := c.CAFile != "" || c.CertFile != "" || c.ServerName != "" || c.InsecureSkipVerify
	return errors.Join(
		check((c.CertFile == "") == (c.KeyFile == ""), "cert_file, key_file: one is of no use without the other"),
		check(c.Secure || !extras, "secure: is off, but settings of TLS are given, so the connection would not be as safe as it looks"))
}

func (c Config) validateHow() error {
	_, known := compressions[c.Compression]
	return errors.Join(
		check(known, "compression: %q is none of lz4, zstd, none", c.Compression),
		check(c.DialTimeout >= 100*time.Millisecond && c.DialTimeout <= time.Minute, "dial_timeout: %s has to be 100ms–1m: shorter fails on a busy machine, longer only delays the next address", c.DialTimeout),
		check(c.WriteTimeout >= time.Second && c.WriteTimeout <= 10*time.Minute, "write_timeout: %s has to be 1s–10m: a block takes up to a second by itself and a server that holds inserts back up to some seconds more", c.WriteTimeout),
		check(c.BlockRows >= 1 && c.BlockRows <= maxBlockRows, "block_rows: %d has to be 1–%d: larger blocks are inserted more slowly and take more memory, here and there", c.BlockRows, maxBlockRows),
		check(c.MaxPartitions >= 1 && c.MaxPartitions <= maxPartitions, "max_partitions: %d has to be 1–%d: each month of a block is a file set of its own on the server", c.MaxPartitions, maxPartitions))
}

func check(ok bool, format string, args ...any) error {
	if ok {
		return nil
	}
	return fmt.Errorf(format, args...)
}

func (c Config) layout() schema.Layout {
	return schema.Layout{Database: c.Database, Table: c.Table, Cluster: c.Cluster}
}

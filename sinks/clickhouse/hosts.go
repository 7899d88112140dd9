package clickhouse

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	native "github.com/ClickHouse/ch-go"
	ch "github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/rs/zerolog"

	schema "trafficd/schemas/clickhouse"
)

// hosts are the servers of the archive: one server, or all servers of a cluster. A server that does
// not respond is not used until it responds again.
type hosts struct {
	config Config
	log    zerolog.Logger
	all    []*host

	mu     sync.Mutex
	turn   int // number of calls to pick
	shards int // number of shards of the cluster, according to its servers

	polling periodic // polls the servers of a cluster
}

// host is one server. migrated and the fields after it are guarded by hosts.mu.
type host struct {
	address string
	conn    driver.Conn
	inserts chan *native.Client                           // idle connections for INSERTs
	connect func(context.Context) (*native.Client, error) // opens a connection for INSERTs

	migrated bool
	err      error // why it cannot take rows; nil if it can
	// In a cluster, as the server last reported:
	shard, replica string
	replicas       int // number of replicas of its shard, including dead ones
}

var errNotPolled = errors.New("not polled yet")

// migrateTimeout is the minimum time limit for the migrations of a polled server. After a timeout,
// the completed ones are kept.
const migrateTimeout = time.Minute

// refreshInterval is the interval at which the servers of a cluster are polled.
const refreshInterval = 5 * time.Second

// maxConns is the maximum number of connections to a server, not counting those for inserts: one
// each for delivering a block, updating the derived tables, polling, and migrating another server.
const maxConns = 4

func newHosts(c Config, log zerolog.Logger) (*hosts, error) {
	server := c.ClickHouse
	server.Database = "" // the handshake must not name a database that might not exist yet
	s := &hosts{config: c, log: log}
	for _, address := range c.Addresses {
		conn, err := server.Open(&ch.Options{
			Addr: []string{address}, DialTimeout: c.DialTimeout, ReadTimeout: c.WriteTimeout, MaxOpenConns: maxConns,
			Compression: &ch.Compression{Method: ch.CompressionLZ4},
		})
		if err != nil {
			_ = s.close() // the connections were not used
			return nil, fmt.Errorf("clickhouse.%w", err)
		}
		s.all = append(s.all, &host{
			address: address, conn: conn, migrated: !c.Migrate, err: errNotPolled, inserts: make(chan *native.Client, parallelInserts),
			connect: func(ctx context.Context) (*native.Client, error) {
				return c.Connect(ctx, address, c.DialTimeout, c.compression(address))
			},
		})
	}
	if c.Cluster == "" && len(s.all) > 0 { // an invalid configuration has none
		s.all[0].err = nil // a single server is not polled
	}
	return s, nil
}

func (s *hosts) close() error {
	s.polling.stop()
	hostsUnavailable.Set(0) // other sinks of this process set it again when they poll
	var errs []error
	for _, h := range s.all {
		errs = append(errs, h.conn.Close())
		for len(h.inserts) > 0 {
			if err := (<-h.inserts).Close(); !errors.Is(err, native.ErrClosed) { // a client closes itself after an error
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// ready returns an error if rows cannot be written now. The first call migrates a single server if
// the setting migrate is true, or starts polling a cluster.
func (s *hosts) ready(ctx context.Context) error {
	if s.config.Cluster == "" {
		if h := s.all[0]; !h.migrated {
			if err := s.migrate(ctx, h); err != nil {
				return err
			}
			h.migrated = true
		}
		return nil
	}
	s.polling.start(refreshInterval, s.refresh)
	if _, err := s.byShard(); err == nil {
		return nil
	}
	s.refresh(ctx)
	_, err := s.byShard()
	return err
}

// refresh polls all servers concurrently. It takes no longer than dial_timeout, unless a server
// needs migrations.
func (s *hosts) refresh(ctx context.Context) {
	var polls sync.WaitGroup
	for _, h := range s.all {
		polls.Go(func() {
			if err := s.poll(ctx, h); ctx.Err() == nil {
				s.set(h, err)
			}
		})
	}
	polls.Wait()
}

// set stores why a server cannot take rows, or nil if it can.
func (s *hosts) set(h *host, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := h.err
	h.err = err
	unavailable := 0
	for _, h := range s.all {
		if h.err != nil {
			unavailable++
		}
	}
	hostsUnavailable.Set(float64(unavailable))
	switch {
	case err != nil && (before == nil || errors.Is(before, errNotPolled)):
		s.log.Warn().Err(err).Str("address", h.address).Msg("archive: the server cannot take rows; using the others")
	case err == nil && before != nil:
		s.log.Info().Str("address", h.address).Str("shard", h.shard).Str("replica", h.replica).Msg("archive: the server can take rows")
	}
}

// poll returns an error if the server cannot take rows. If the setting migrate is true, it migrates
// a server that has no tables or has not been migrated yet.
func (s *hosts) poll(ctx context.Context, h *host) error {
	s.mu.Lock()
	migrated := h.migrated
	s.mu.Unlock()
	err := s.describe(ctx, h)
	switch missing := errors.Is(err, errNoTable); {
	case missing && !s.config.Migrate:
		return fmt.Errorf("%w, or set clickhouse.migrate to true", err)
	case !missing && (err != nil || migrated):
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, max(s.config.WriteTimeout, migrateTimeout))
	defer cancel()
	if err := s.migrate(ctx, h); err != nil {
		return err
	}
	s.mu.Lock()
	h.migrated = true
	s.mu.Unlock()
	return s.describe(ctx, h)
}

var errNoTable = errors.New("the tables do not exist: run trafficd migrate")

// describe stores what the server reports about itself and its cluster. It returns an error if the
// server cannot take rows: errNoTable if the tables do not exist.
func (s *hosts) describe(ctx context.Context, h *host) error {
	ctx, cancel := context.WithTimeout(ctx, s.config.DialTimeout)
	defer cancel()
	query := fmt.Sprintf("SELECT getMacro('shard'), getMacro('replica'), toInt64(total_replicas), is_readonly, zookeeper_exception,"+
		" (SELECT toInt64(uniqExact(shard_num)) FROM system.clusters WHERE cluster = '%s')"+
		" FROM system.replicas WHERE database = '%s' AND table = '%s'", s.config.Cluster, s.config.Database, s.config.layout().Local())
	var shard, replica, keeper string
	var replicas, shards int64
	var readOnly uint8
	err := h.conn.QueryRow(ctx, query).Scan(&shard, &replica, &replicas, &readOnly, &keeper, &shards)
	if errors.Is(err, sql.ErrNoRows) {
		return errNoTable
	} else if err != nil {
		return err
	}
	s.mu.Lock()
	h.shard, h.replica, h.replicas, s.shards = shard, replica, int(replicas), int(shards)
	s.mu.Unlock()
	switch {
	case shards == 0:
		return fmt.Errorf("no cluster %q in the server's remote_servers", s.config.Cluster)
	case readOnly != 0:
		return fmt.Errorf("the table is read-only, because the server cannot use Keeper %s", keeper)
	}
	return nil
}

// liveHosts returns the servers that can take rows, ordered by shard and replica name. The caller
// must hold mu.
func (s *hosts) liveHosts() []*host {
	live := slices.DeleteFunc(slices.Clone(s.all), func(h *host) bool { return h.err != nil })
	slices.SortStableFunc(live, func(a, b *host) int { return strings.Compare(a.shard+"\n"+a.replica, b.shard+"\n"+b.replica) })
	return live
}

// pick returns the next live server, in rotation, or an error if there is none.
func (s *hosts) pick() (*host, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	live := s.liveHosts()
	if len(live) == 0 {
		return nil, s.unavailableLocked()
	}
	s.turn++
	return live[s.turn%len(live)], nil
}

// byShard returns the live servers of each shard, or an error if a shard has none.
func (s *hosts) byShard() (map[string][]*host, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	shards := map[string][]*host{}
	for _, h := range s.liveHosts() {
		shards[h.shard] = append(shards[h.shard], h)
	}
	if known := max(s.shards, 1); len(shards) < known {
		return nil, fmt.Errorf("only %d of %d shards can take rows: %w", len(shards), known, s.unavailableLocked())
	}
	return shards, nil
}

// unavailable returns an error that names the servers that cannot take rows, or nil if all can.
func (s *hosts) unavailable() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.unavailableLocked()
}

func (s *hosts) unavailableLocked() error {
	var errs []error
	for _, h := range s.all {
		if h.err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", h.address, h.err))
		}
	}
	return errors.Join(errs...)
}

// requiredReplicas returns the number of replicas that must have a row before it is delivered: the
// quorum if it is set; without it, the majority of a shard's replicas, or all live ones if they are
// fewer. If the shards differ, it returns the smallest number.
func (s *hosts) requiredReplicas() int {
	if s.config.Cluster == "" || s.config.Quorum > 0 {
		return max(s.config.Quorum, 1)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	live, replicas := map[string]int{}, map[string]int{}
	for _, h := range s.all {
		if h.err == nil {
			live[h.shard]++
		}
		replicas[h.shard] = max(replicas[h.shard], h.replicas)
	}
	required := math.MaxInt
	for shard, n := range live {
		// The servers' last reports might not include a new replica yet.
		required = min(required, max(replicas[shard], n)/2+1, n)
	}
	return required
}

// quorumTimeout is how long a server waits for other replicas to confirm an insert. After that, the
// block is in doubt. Tests replace it.
var quorumTimeout = 10 * time.Second

// quorumSettings returns the settings that make a server acknowledge an INSERT once the given
// number of replicas have it.
func (s *hosts) quorumSettings(replicas int) ch.Settings {
	switch {
	case s.config.Cluster == "":
		return ch.Settings{}
	case replicas < 2:
		return ch.Settings{"insert_quorum": 0}
	}
	return ch.Settings{
		"insert_quorum": replicas, "insert_quorum_parallel": 1,
		"insert_quorum_timeout": min(s.config.WriteTimeout/2, quorumTimeout).Milliseconds(),
	}
}

// migrating serialises the migrations of all sinks of this process, so that servers do not contend
// for Keeper, and only one sink applies and logs a migration.
var migrating sync.Mutex

// migrate creates or updates the tables on one server, and sets their TTL if retention_days is not
// 0.
func (s *hosts) migrate(ctx context.Context, h *host) error {
	migrating.Lock()
	defer migrating.Unlock()
	var others []driver.Conn
	for _, other := range s.all {
		if other != h {
			others = append(others, other.conn)
		}
	}
	applied, err := schema.Migrate(ctx, h.conn, s.config.layout(), others...)
	for _, name := range applied {
		s.log.Info().Str("migration", name).Str("address", h.address).Str("database", s.config.Database).Str("table", s.config.Table).
			Msg("archive: migration applied")
	}
	if err != nil || s.config.RetentionDays == 0 {
		return err
	}
	return schema.Retain(ctx, h.conn, s.config.layout(), s.config.RetentionDays)
}

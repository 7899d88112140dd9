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

// hosts are the servers of the archive: one, or those of a cluster. A server that does not respond
// is not used until it responds again.
type hosts struct {
	config Config
	log    zerolog.Logger
	all    []*host

	migrating sync.Mutex

	mu     sync.Mutex
	turn   int // number of calls of pick
	shards int // number of shards of the cluster, according to its servers

	polling periodic // of a cluster
}

// host is one server. The fields below conn are guarded by hosts.mu.
type host struct {
	address string
	conn    driver.Conn
	inserts chan *native.Client                           // idle connections for inserts
	connect func(context.Context) (*native.Client, error) // opens one

	migrated bool
	trouble  error // why it cannot take rows; nil if it can
	// In a cluster, as the server last reported:
	shard, replica string
	replicas       int // of its shard, dead ones included
}

var errNotAsked = errors.New("not polled yet")

// migrateTimeout bounds the migrations of a server. Completed ones are kept after a timeout.
const migrateTimeout = time.Minute

// refreshInterval is the interval at which the servers of a cluster are polled.
const refreshInterval = 5 * time.Second

func newHosts(c Config, log zerolog.Logger) (*hosts, error) {
	server := c.ClickHouse
	server.Database = "" // it may not exist yet, so the handshake must not name it
	s := &hosts{config: c, log: log}
	for _, address := range c.Addresses {
		conn, err := server.Open(&ch.Options{
			Addr: []string{address}, DialTimeout: c.DialTimeout, ReadTimeout: c.WriteTimeout, MaxOpenConns: 2,
			Compression: &ch.Compression{Method: ch.CompressionLZ4},
		})
		if err != nil {
			_ = s.close() // the connections were not used
			return nil, fmt.Errorf("clickhouse.%w", err)
		}
		s.all = append(s.all, &host{
			address: address, conn: conn, migrated: !c.Migrate, trouble: errNotAsked, inserts: make(chan *native.Client, parallelInserts),
			connect: func(ctx context.Context) (*native.Client, error) {
				return c.Connect(ctx, address, c.DialTimeout, c.compression(address))
			},
		})
	}
	if c.Cluster == "" && len(s.all) > 0 { // an invalid configuration has none
		s.all[0].trouble = nil // use it without polling it
	}
	return s, nil
}

func (s *hosts) close() error {
	s.polling.stop()
	var errs []error
	for _, h := range s.all {
		errs = append(errs, h.conn.Close())
		for len(h.inserts) > 0 {
			errs = append(errs, (<-h.inserts).Close())
		}
	}
	return errors.Join(errs...)
}

// ready returns an error if rows cannot be written now. The first call connects and migrates.
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

// refresh polls all servers concurrently. It takes no longer than dial_timeout, unless one needs
// migrations.
func (s *hosts) refresh(ctx context.Context) {
	var asking sync.WaitGroup
	for _, h := range s.all {
		asking.Go(func() {
			if err := s.ask(ctx, h); ctx.Err() == nil {
				s.set(h, err)
			}
		})
	}
	asking.Wait()
}

// set stores why a server cannot take rows; nil if it can.
func (s *hosts) set(h *host, trouble error) {
	s.mu.Lock()
	before := h.trouble
	h.trouble = trouble
	away := 0
	for _, h := range s.all {
		if h.trouble != nil {
			away++
		}
	}
	s.mu.Unlock()
	hostsAway.Set(float64(away))
	switch {
	case trouble != nil && (before == nil || errors.Is(before, errNotAsked)):
		s.log.Warn().Err(trouble).Str("address", h.address).Msg("archive: the server cannot take rows; using the others")
	case trouble == nil && before != nil:
		s.log.Info().Str("address", h.address).Str("shard", h.shard).Str("replica", h.replica).Msg("archive: the server can take rows")
	}
}

// ask returns an error if the server cannot take rows. It migrates a server that has no tables or
// has not been migrated yet.
func (s *hosts) ask(ctx context.Context, h *host) error {
	s.mu.Lock()
	migrated := h.migrated
	s.mu.Unlock()
	err := s.describe(ctx, h)
	switch missing := errors.Is(err, errNoTable); {
	case missing && !s.config.Migrate:
		return fmt.Errorf("%w: run trafficd migrate, or set clickhouse.migrate to true", err)
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

var errNoTable = errors.New("the tables do not exist")

// describe stores what the server reports about itself.
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

// live returns the servers that can take rows, ordered by shard and replica name.
func (s *hosts) live() []*host {
	s.mu.Lock()
	defer s.mu.Unlock()
	live := slices.DeleteFunc(slices.Clone(s.all), func(h *host) bool { return h.trouble != nil })
	slices.SortStableFunc(live, func(a, b *host) int { return strings.Compare(a.shard+"\n"+a.replica, b.shard+"\n"+b.replica) })
	return live
}

// pick returns the next of the servers that can take rows, in turn.
func (s *hosts) pick() (*host, error) {
	live := s.live()
	if len(live) == 0 {
		return nil, s.away()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turn++
	return live[s.turn%len(live)], nil
}

// byShard returns the live servers of each shard, or an error if a shard has none.
func (s *hosts) byShard() (map[string][]*host, error) {
	shards := map[string][]*host{}
	for _, h := range s.live() {
		shards[h.shard] = append(shards[h.shard], h)
	}
	s.mu.Lock()
	known := s.shards
	s.mu.Unlock()
	if len(shards) < max(known, 1) {
		return nil, fmt.Errorf("only %d of %d shards can take rows: %w", len(shards), max(known, 1), s.away())
	}
	return shards, nil
}

// away returns an error that names the servers that cannot take rows; nil if all can.
func (s *hosts) away() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, h := range s.all {
		if h.trouble != nil {
			errs = append(errs, fmt.Errorf("%s: %w", h.address, h.trouble))
		}
	}
	return errors.Join(errs...)
}

// copies returns how many replicas must have a row before it counts as delivered: quorum, or the
// majority of a shard's replicas, or all that are live if these are fewer.
func (s *hosts) copies() int {
	if s.config.Cluster == "" || s.config.Quorum > 0 {
		return max(s.config.Quorum, 1)
	}
	live, replicas := map[string]int{}, map[string]int{}
	for _, h := range s.live() {
		live[h.shard]++
	}
	s.mu.Lock()
	for _, h := range s.all { // the last polls may be older than the newest replicas
		replicas[h.shard] = max(replicas[h.shard], h.replicas, live[h.shard])
	}
	s.mu.Unlock()
	need := math.MaxInt
	for shard, n := range live {
		need = min(need, replicas[shard]/2+1, n)
	}
	return need
}

// quorumTimeout is the time for which a server waits for other replicas to confirm an insert. After
// that, the block is in doubt and is looked up.
var quorumTimeout = 10 * time.Second // a variable for tests

// quorumSettings returns the settings that make a server acknowledge an INSERT when this many
// replicas have it.
func (s *hosts) quorumSettings(copies int) ch.Settings {
	switch {
	case s.config.Cluster == "":
		return ch.Settings{}
	case copies < 2:
		return ch.Settings{"insert_quorum": 0}
	}
	return ch.Settings{
		"insert_quorum": copies, "insert_quorum_parallel": 1,
		"insert_quorum_timeout": min(s.config.WriteTimeout/2, quorumTimeout).Milliseconds(),
	}
}

// migrate creates or updates the tables on one server. Concurrent calls run one after another, so
// that servers do not compete.
func (s *hosts) migrate(ctx context.Context, h *host) error {
	s.migrating.Lock()
	defer s.migrating.Unlock()
	var others []schema.Conn
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

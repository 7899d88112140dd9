package dial

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/ClickHouse/ch-go"
	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"trafficd/pipeline/lib/settings"
)

// ClickHouse configures connections to a ClickHouse server over its native protocol.
type ClickHouse struct {
	Database string `setting:"database"` // database name; created if missing and the user may create it
	Username string `setting:"username"` // user name
	Password string `setting:"password"` // secret; better set in the environment
	TLS      TLS    `setting:"tls"`      // encryption of the connections

	Dial Func `setting:"-"` // replaces the network in simulations, without TLS; nil for the network
}

// Validate reports every invalid key.
func (c ClickHouse) Validate(section string) error {
	return c.TLS.validate(section + "tls.")
}

// ValidateAddress returns an error if an address is not host:port. key is the key of the setting.
func ValidateAddress(key, address string) error {
	return settings.Check(settings.IsHostPort(address), "%s is %q, must be host:port of the native protocol", key, address)
}

// Open returns a pool of one connection, or of options.MaxOpenConns if that is set. It reads the
// TLS files, but does not connect. An error starts with the key of a setting. The caller sets the
// addresses, timeouts and compression in options; Open sets the rest.
func (c ClickHouse) Open(options *clickhouse.Options) (driver.Conn, error) {
	if _, err := c.TLS.Config("tls."); err != nil {
		return nil, err
	}
	connect := c.TLS.dialer(options.DialTimeout, c.Dial)
	options.DialStrategy = func(ctx context.Context, id int, o *clickhouse.Options, dial clickhouse.Dial) (clickhouse.DialResult, error) {
		var conn net.Conn
		once := *o
		// The client's default dial function ignores the context.
		once.DialContext = func(ctx context.Context, address string) (_ net.Conn, err error) {
			conn, err = connect(ctx, "tcp", address)
			return conn, err
		}
		r, err := clickhouse.DefaultDialStrategy(ctx, id, &once, dial)
		if err != nil && conn != nil {
			_ = conn.Close() // the client leaves it open if the handshake fails
		}
		return r, explain(err)
	}
	options.Auth = clickhouse.Auth{Database: c.Database, Username: c.Username, Password: c.Password}
	options.MaxOpenConns = max(options.MaxOpenConns, 1)
	options.ConnOpenStrategy, options.MaxIdleConns = clickhouse.ConnOpenInOrder, options.MaxOpenConns
	return clickhouse.Open(options)
}

// Connect opens a connection with ch-go, the low-level client of clickhouse-go, for callers that
// encode blocks themselves. An error from the server is a *ch.Exception.
func (c ClickHouse) Connect(ctx context.Context, address string, timeout time.Duration, compression ch.Compression) (*ch.Client, error) {
	conn, err := c.TLS.dialer(timeout, c.Dial)(ctx, "tcp", address)
	if err != nil {
		return nil, explain(err)
	}
	client, err := ch.Connect(ctx, conn, ch.Options{
		Database: c.Database, User: c.Username, Password: c.Password, Compression: compression, HandshakeTimeout: timeout,
	})
	if err != nil {
		_ = conn.Close() // err is more useful
	}
	return client, explain(err)
}

// ErrHandshake is wrapped by the error of a connection that was accepted, but got no valid response
// to its handshake, as from the port of another protocol.
var ErrHandshake = errors.New("invalid or no response to the handshake; check that this is the port of ClickHouse's native protocol" +
	" (9000 by default, 9440 with TLS), and that tls.enabled is correct")

// explain wraps an error of a new connection in ErrHandshake, unless it says itself what is wrong.
func explain(err error) error {
	var operation *net.OpError
	refused := errors.As(err, &operation) && operation.Op == "dial"
	if err == nil || refused || IsTLS(err) || ch.IsException(err) || errors.As(err, new(*clickhouse.Exception)) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrHandshake, err)
}

// ClickHouseQuery configures a query that is run repeatedly.
type ClickHouseQuery struct {
	Address    string `setting:"address"` // host:port of the native protocol
	ClickHouse `setting:",squash"`
	Query      string        `setting:"query"`    // SELECT statement; the enclosing section describes its columns
	Interval   time.Duration `setting:"interval"` // time between runs of the query
	Timeout    time.Duration `setting:"timeout"`  // maximum duration of a run
}

// Validate reports every invalid key with the reason for its bound.
func (q ClickHouseQuery) Validate(section string) error {
	return errors.Join(
		ValidateAddress(section+"address", q.Address),
		q.ClickHouse.Validate(section),
		settings.Check(strings.TrimSpace(q.Query) != "", "%squery must be set", section),
		settings.Within(section+"interval", q.Interval, time.Second, 24*time.Hour,
			"a shorter interval burdens the server; a longer one delays changes"),
		settings.Within(section+"timeout", q.Timeout, time.Second, 10*time.Minute,
			"a shorter timeout gives up on a busy server; a longer one stalls on a dead one"),
	)
}

// handshakeTimeout bounds how long Poll continues after its context is done: the client ignores the
// context while it waits for the response to its handshake.
const handshakeTimeout = 5 * time.Second

// Poller runs a query repeatedly on one connection. It is not safe for concurrent use.
type Poller struct {
	ClickHouseQuery
	conn driver.Conn // nil before the first Poll
}

// Poll runs the query once and passes the rows to read.
func (p *Poller) Poll(ctx context.Context, read func(driver.Rows) error) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("cannot query ClickHouse at %s: %w", p.Address, err)
		}
	}()
	if p.conn == nil {
		if p.conn, err = p.Open(&clickhouse.Options{
			Addr: []string{p.Address}, DialTimeout: min(p.Timeout, handshakeTimeout), ReadTimeout: p.Timeout,
			Compression: &clickhouse.Compression{Method: clickhouse.CompressionLZ4},
		}); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, p.Timeout)
	defer cancel()
	rows, err := p.conn.Query(ctx, p.Query)
	switch {
	case err == io.EOF: // not wrapped: the server has run the statement
		return errors.New("the statement in query returns no result: it must be a SELECT statement")
	case err != nil:
		return err
	}
	defer rows.Close()
	if err = errors.Join(read(rows), rows.Err()); err != nil {
		cancel() // otherwise Close would read the rest of the response, which may be endless
	}
	return err
}

// Close closes the connection.
func (p *Poller) Close() {
	if p.conn != nil {
		_ = p.conn.Close() // nothing is lost
	}
}

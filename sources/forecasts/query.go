package forecasts

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	pb "trafficd/schemas/proto/trafficd/v1"
	"trafficd/sources/internal/watch"
)

// queryFeed polls a query whose rows are forecast periods.
type queryFeed struct {
	ClickHouseConfig
	maxBytes int64
	layer    Layer
	faults   *faults
	conn     driver.Conn // nil before the first poll
}

func newQueryFeed(cfg ClickHouseConfig, maxBytes int64, layer Layer, faults *faults) *queryFeed {
	return &queryFeed{ClickHouseConfig: cfg, maxBytes: maxBytes, layer: layer, faults: faults}
}

func (q *queryFeed) changes() <-chan struct{} { return nil }

func (q *queryFeed) close() {
	if q.conn != nil {
		_ = q.conn.Close()
	}
}

// check takes each answer as a change: comparing is left to the layer.
func (q *queryFeed) check(ctx context.Context) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, q.Timeout)
	defer cancel()
	asked := time.Now()
	if err := q.query(ctx, asked); err != nil {
		return asked, fmt.Errorf("cannot use the answer of ClickHouse at %s: %w", q.Address, err)
	}
	return asked, nil
}

func (q *queryFeed) query(ctx context.Context, asked time.Time) error {
	if err := q.open(); err != nil {
		return err
	}
	ctx, end := context.WithCancel(ctx)
	defer end()
	rows, err := q.conn.Query(ctx, q.Query)
	if err != nil {
		return err
	}
	defer rows.Close()
	q.faults.restart()
	periods, err := q.read(rows)
	if err = errors.Join(err, rows.Err()); err != nil {
		end() // or else Close would read on to the end, which may be far
		return err
	}
	return periods.streets(q.faults).publish(q.layer, asked)
}

// open connects to nothing yet: the client does that for the first query.
func (q *queryFeed) open() error {
	if q.conn != nil {
		return nil
	}
	options := &clickhouse.Options{
		Addr:         []string{q.Address},
		Auth:         clickhouse.Auth{Database: q.Database, Username: q.Username, Password: q.Password},
		DialTimeout:  q.Timeout,
		ReadTimeout:  q.Timeout,
		MaxOpenConns: 1,
		MaxIdleConns: 1,
		Compression:  &clickhouse.Compression{Method: clickhouse.CompressionLZ4},
	}
	if q.Secure {
		options.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	conn, err := clickhouse.Open(options)
	q.conn = conn
	return err
}

// rowBytes is about what a period takes in memory besides its openLRcode.
const rowBytes = 160

func (q *queryFeed) read(rows driver.Rows) (*periods, error) {
	scan, err := newRowScan(rows.ColumnTypes())
	if err != nil {
		return nil, err
	}
	all := &periods{byStreet: make(map[identity]*grouped)}
	size := int64(0)
	for n := 1; rows.Next(); n++ {
		if err := rows.Scan(scan.into...); err != nil {
			return nil, err
		}
		id, code, period, err := scan.row()
		if err != nil {
			q.faults.skip(fmt.Sprintf("row %d", n), err)
			continue
		}
		if size += rowBytes + int64(len(code)); size > q.maxBytes {
			return nil, watch.ErrTooLong
		}
		all.add(id, code, period, n)
	}
	return all, nil
}

// periods gathers rows by street, in the order in which streets first appear.
type periods struct {
	byStreet map[identity]*grouped
	order    []*grouped
}

type grouped struct {
	forecast *pb.StreetForecast
	row      int // the street's first
}

func (p *periods) add(id identity, code string, period *pb.ForecastPeriod, row int) {
	g, ok := p.byStreet[id]
	if !ok {
		g = &grouped{&pb.StreetForecast{Street: id.street, Fromnode: id.fromnode}, row}
		p.byStreet[id], p.order = g, append(p.order, g)
	}
	if code != "" {
		g.forecast.OpenLRcode = code
	}
	g.forecast.Forecast = append(g.forecast.Forecast, period)
}

func (p *periods) streets(faults *faults) *streets {
	s := newStreets(faults)
	for _, g := range p.order {
		r := Record{Position: fmt.Sprintf("street %d:%d from row %d on", g.forecast.Street, g.forecast.Fromnode, g.row), Forecast: g.forecast}
		g.forecast.Forecast = slices.Clip(g.forecast.Forecast)
		r.Remarks, r.Err = Normalise(g.forecast)
		s.add(r)
	}
	return s
}

package forecasts

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"trafficd/pipeline/dial"
	"trafficd/schemas/contract"
	pb "trafficd/schemas/proto/trafficd/v1"
	"trafficd/sources/internal/watch"
)

// queryFeed polls a query that returns forecast periods.
type queryFeed struct {
	dial.Poller
	maxBytes int64
	maxSpeed float64
	guarded  guardedLayer
	faults   *faults
}

func newQueryFeed(cfg Config, layer Layer, faults *faults) *queryFeed {
	return &queryFeed{
		Poller: dial.Poller{ClickHouseQuery: cfg.ClickHouse}, maxBytes: cfg.MaxBytes, maxSpeed: cfg.MaxSpeed,
		guarded: guard(cfg, layer, "the query result"), faults: faults,
	}
}

func (q *queryFeed) changes() <-chan struct{} { return nil }

func (q *queryFeed) close() { q.Close() }

// check implements feed. It publishes every result, because the layer detects changes. It returns
// the newest value of the updated column, or the latest start of a period if there is none, but
// never a time in the future.
func (q *queryFeed) check(ctx context.Context) (time.Time, error) {
	start := time.Now()
	var all *periods
	err := q.Poll(ctx, func(rows driver.Rows) (err error) {
		q.faults.reset()
		all, err = q.read(rows)
		return err
	})
	if err != nil {
		return start, err
	}
	streets := all.streets(q.faults, q.guarded.layer, q.maxSpeed)
	newest := all.updated
	if newest.IsZero() {
		newest, _ = contract.ParseForecastTime(streets.newest) // valid, because it was normalised
	}
	if newest.After(start) {
		newest = start
	}
	return newest, streets.publish(&q.guarded, newest)
}

// rowBytes is the approximate size of a period in memory, without its openLRcode.
const rowBytes = 160

func (q *queryFeed) read(rows driver.Rows) (*periods, error) {
	scan, err := newRowScan(rows.ColumnTypes())
	if err != nil {
		return nil, err
	}
	all := &periods{byStreet: make(map[identity]*pb.StreetForecast)}
	size := int64(0)
	for n := 1; rows.Next(); n++ {
		if err := rows.Scan(scan.into...); err != nil {
			return nil, err
		}
		id, code, period, updated, err := scan.row()
		if err != nil {
			q.faults.skip(fmt.Sprintf("row %d", n), err)
			continue
		}
		if size += rowBytes + int64(len(code)); size > q.maxBytes {
			return nil, watch.ErrTooLong
		}
		all.add(id, code, period, n)
		if updated.After(all.updated) {
			all.updated = updated
		}
	}
	return all, nil
}

// periods groups rows by street, ordered by each street's first row.
type periods struct {
	byStreet map[identity]*pb.StreetForecast
	records  []Record  // one per street, in this order
	updated  time.Time // newest value of the updated column; zero if there is no such column
}

func (p *periods) add(id identity, code string, period *pb.ForecastPeriod, row int) {
	f, ok := p.byStreet[id]
	if !ok {
		f = &pb.StreetForecast{Street: id.street, Fromnode: id.fromnode}
		p.byStreet[id] = f
		p.records = append(p.records, Record{Position: fmt.Sprintf("street %s (first row %d)", Key(f), row), Forecast: f})
	}
	if code != "" {
		f.OpenLRcode = code
	}
	f.Forecast = append(f.Forecast, period)
}

func (p *periods) streets(faults *faults, layer Layer, maxSpeed float64) *streets {
	s := newStreets(faults, layer)
	for _, r := range p.records {
		r.Forecast.Forecast = slices.Clip(r.Forecast.Forecast)
		r.Remarks, r.Err = Normalise(r.Forecast, maxSpeed)
		s.add(r)
	}
	return s
}

package forecasts

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/cespare/xxhash/v2"
	"google.golang.org/protobuf/proto"

	"trafficd/pipeline/lib/dial"
	"trafficd/pipeline/lib/watch"
	"trafficd/schemas/contract"
	pb "trafficd/schemas/proto/trafficd/v1"
)

// queryFeed polls a query that returns forecast periods.
type queryFeed struct {
	dial.Poller
	maxBytes int64
	maxSpeed float64
	guarded  guardedLayer
	faults   *faults

	digest  uint64    // of the last result
	changed time.Time // time of the data of the last result without the updated column
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
// the newest value of the updated column. Without that column, it returns the time at which the
// result last changed, or the latest start of a period if that is earlier: a supplier that has
// stopped leaves periods that start in the future. The time is never in the future.
func (q *queryFeed) check(ctx context.Context) (time.Time, error) {
	start := time.Now()
	var records []Record
	var newest time.Time
	err := q.Poll(ctx, func(rows driver.Rows) (err error) {
		q.faults.reset()
		records, newest, err = q.read(rows)
		return err
	})
	if err != nil {
		return start, err
	}
	streets := newStreets(q.faults, q.guarded.layer)
	for _, r := range records {
		r.Forecast.Forecast = slices.Clip(r.Forecast.Forecast)
		r.Err = attempt(func() (err error) {
			r.Remarks, err = Normalise(r.Forecast, q.maxSpeed)
			return err
		})
		streets.add(r)
	}
	unknown := newest.IsZero()
	if unknown {
		newest, _ = contract.ParseForecastTime(streets.newest) // valid, because it was normalised
	}
	if newest.After(start) {
		newest = start
	}
	if unknown {
		if digest := digestOf(records); digest != q.digest || q.changed.IsZero() {
			q.digest, q.changed = digest, newest
		}
		newest = q.changed
	}
	return newest, streets.publish(&q.guarded, newest)
}

// digestOf returns a hash of the forecasts. It does not depend on the order of the streets.
func digestOf(records []Record) (sum uint64) {
	var text []byte
	for _, r := range records {
		text, _ = proto.MarshalOptions{Deterministic: true}.MarshalAppend(text[:0], r.Forecast) // a digest of what could be encoded
		sum += xxhash.Sum64(text)
	}
	return sum
}

// rowBytes is the approximate size of a period in memory, without its openLRcode.
const rowBytes = 160

// read returns a record for each street, in the order of their first rows, and the newest value of
// the updated column, which is zero if there is no such column.
func (q *queryFeed) read(rows driver.Rows) (records []Record, newest time.Time, err error) {
	scan, err := newRowScan(rows.ColumnTypes())
	if err != nil {
		return nil, newest, err
	}
	streets := map[identity]*pb.StreetForecast{}
	size := int64(0)
	for n := 1; rows.Next(); n++ {
		var row *pb.StreetForecast
		var updated time.Time
		err := attempt(func() (err error) {
			if err = rows.Scan(scan.into...); err == nil {
				row, updated, err = scan.row()
			}
			return err
		})
		if err != nil {
			q.faults.skip(fmt.Sprintf("row %d", n), err)
			continue
		}
		if size += rowBytes + int64(len(row.OpenLRcode)); size > q.maxBytes {
			return nil, newest, watch.ErrTooLong
		}
		if f := streets[identityOf(row)]; f != nil {
			f.OpenLRcode = cmp.Or(row.OpenLRcode, f.OpenLRcode)
			f.Length, f.FreeFlowSpeed = cmp.Or(row.Length, f.Length), cmp.Or(row.FreeFlowSpeed, f.FreeFlowSpeed)
			f.Forecast = append(f.Forecast, row.Forecast[0])
		} else {
			streets[identityOf(row)] = row
			records = append(records, Record{Position: fmt.Sprintf("street %s (first row %d)", Key(row), n), Forecast: row})
		}
		if updated.After(newest) {
			newest = updated
		}
	}
	return records, newest, nil
}

package registry

import (
	"context"
	"fmt"
	"reflect"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"trafficd/pipeline/dial"
	"trafficd/sources/internal/watch"
)

// clickHouseSource polls a query whose first column holds the codes.
type clickHouseSource struct {
	dial.Poller
	maxBytes int64
}

func (s *clickHouseSource) changes() <-chan struct{} { return nil }

func (s *clickHouseSource) keep() {}

func (s *clickHouseSource) close() { s.Close() }

func (s *clickHouseSource) read(ctx context.Context) (codes []string, err error) {
	err = s.Poll(ctx, func(rows driver.Rows) error {
		var code string
		into := []any{&code}
		for _, column := range rows.ColumnTypes()[1:] {
			into = append(into, reflect.New(column.ScanType()).Interface())
		}
		size := int64(0)
		for rows.Next() {
			if err := rows.Scan(into...); err != nil {
				return fmt.Errorf("the first column must hold strings: %w", err)
			}
			if size += int64(len(code)); size > s.maxBytes {
				return watch.ErrTooLong
			}
			codes = append(codes, code)
		}
		return nil
	})
	return codes, err
}

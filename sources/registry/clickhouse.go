package registry

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"reflect"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"trafficd/sources/internal/watch"
)

// clickHouseSource polls a query whose first column holds the codes.
type clickHouseSource struct {
	ClickHouseConfig
	maxBytes int64
	conn     driver.Conn // nil before the first read
}

func newClickHouseSource(cfg ClickHouseConfig, maxBytes int64) *clickHouseSource {
	return &clickHouseSource{ClickHouseConfig: cfg, maxBytes: maxBytes}
}

func (s *clickHouseSource) changes() <-chan struct{} { return nil }

func (s *clickHouseSource) keep() {}

func (s *clickHouseSource) close() {
	if s.conn != nil {
		_ = s.conn.Close()
	}
}

func (s *clickHouseSource) read(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	codes, err := s.query(ctx)
	if err != nil {
		return nil, fmt.Errorf("cannot query ClickHouse at %s: %w", s.Address, err)
	}
	return codes, nil
}

func (s *clickHouseSource) query(ctx context.Context) ([]string, error) {
	if err := s.open(); err != nil {
		return nil, err
	}
	rows, err := s.conn.Query(ctx, s.Query)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	codes, err := s.firstColumn(rows)
	return codes, errors.Join(err, rows.Err())
}

// open connects to nothing yet: the client does that for the first query.
func (s *clickHouseSource) open() error {
	if s.conn != nil {
		return nil
	}
	options := &clickhouse.Options{
		Addr:         []string{s.Address},
		Auth:         clickhouse.Auth{Database: s.Database, Username: s.Username, Password: s.Password},
		DialTimeout:  s.Timeout,
		ReadTimeout:  s.Timeout,
		MaxOpenConns: 1,
		MaxIdleConns: 1,
		Compression:  &clickhouse.Compression{Method: clickhouse.CompressionLZ4},
	}
	if s.Secure {
		options.TLS = &tls.Config{}
	}
	conn, err := clickhouse.Open(options)
	s.conn = conn
	return err
}

func (s *clickHouseSource) firstColumn(rows driver.Rows) ([]string, error) {
	var code string
	into := []any{&code}
	for _, column := range rows.ColumnTypes()[1:] {
		into = append(into, reflect.New(column.ScanType()).Interface())
	}
	var codes []string
	size := int64(0)
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			return nil, fmt.Errorf("the first column has to hold strings: %w", err)
		}
		if size += int64(len(code)); size > s.maxBytes {
			return nil, watch.ErrTooLong
		}
		codes = append(codes, code)
	}
	return codes, nil
}

package main

import (
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"trafficd/cmd/forecaster/config"
	"trafficd/cmd/forecaster/internal/archive"
)

// connect returns a connection to the archive that is dialled on first use.
func connect(c *config.Config) (driver.Conn, error) {
	t := c.ClickHouse
	t.ClickHouse.Database = "" // it may not exist yet; statements use qualified names
	return t.Open(&clickhouse.Options{
		Addr: []string{t.Address}, DialTimeout: 10 * time.Second, ReadTimeout: t.Timeout, MaxOpenConns: 3,
		Compression: &clickhouse.Compression{Method: clickhouse.CompressionLZ4},
	})
}

// newSource returns the product instance's archive. learned is the database of the learned tables.
func newSource(c *config.Config, conn driver.Conn, learned string) *archive.Source {
	m := c.Model
	zone, err := time.LoadLocation(m.TimeZone)
	if err != nil {
		zone = time.UTC // unreachable: the setting is validated
	}
	return &archive.Source{
		Conn: conn, Database: c.ClickHouse.Database, Table: c.ClickHouse.Table, Learned: learned, Instance: m.ProductInstance,
		Measure: m.Measure, Count: m.Count, Most: m.Most, Zero: m.Zero,
		Interval: m.Interval, Horizons: m.Horizons, Location: zone, Holidays: m.HolidayDates(),
	}
}

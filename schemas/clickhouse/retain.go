package clickhouse

import (
	"context"
	"fmt"
	"strings"
)

// Retain gives the tables of measurements a TTL that drops a month once all of it is older than
// days, unless they already have it.
func Retain(ctx context.Context, c Conn, l Layout, days int) error {
	for table, column := range map[string]string{
		l.Local(): "timestamp_from", l.Derived("by_time"): "timestamp_from",
		l.Derived("hours"): "hour",
	} {
		ttl := fmt.Sprintf("TTL toDateTime(%s) + toIntervalDay(%d)", column, days)
		current, err := engineOf(ctx, c, l.Database, table)
		if err == nil && !strings.Contains(current, ttl+" ") {
			at := fmt.Sprintf("ALTER TABLE `%s`.`%s` MODIFY ", l.Database, table)
			if err = c.Exec(ctx, at+"SETTING ttl_only_drop_parts = 1"); err == nil {
				err = c.Exec(ctx, at+ttl)
			}
		}
		if err != nil {
			return fmt.Errorf("cannot set the TTL of %s.%s: %w", l.Database, table, err)
		}
	}
	return nil
}

func engineOf(ctx context.Context, c Conn, database, table string) (engine string, err error) {
	rows, err := c.Query(ctx, fmt.Sprintf("SELECT engine_full FROM system.tables WHERE database = '%s' AND name = '%s'", database, table))
	if err != nil {
		return "", err
	}
	defer rows.Close()
	for rows.Next() {
		if err := rows.Scan(&engine); err != nil {
			return "", err
		}
	}
	return engine, rows.Err()
}

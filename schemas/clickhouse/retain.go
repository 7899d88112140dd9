package clickhouse

import (
	"context"
	"fmt"
	"math"
	"strings"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
)

// Retain sets a TTL on the tables with measurements and states of detectors, unless they already
// have it: a part is dropped when all of its rows are older than the given number of days. A part
// contains rows of one month.
func Retain(ctx context.Context, c driver.Conn, l Layout, days int) error {
	for table, second := range map[string]string{
		l.Local(): "toUnixTimestamp64Second(timestamp_from)", l.Derived("by_time"): "toUnixTimestamp64Second(timestamp_from)",
		l.Derived("hours"): "toUnixTimestamp64Second(hour)", l.Table + "_health": "toUnixTimestamp(last_at)",
	} {
		// A TTL must be a DateTime, which overflows in 2106: a later time would wrap to the past.
		ttl := fmt.Sprintf("TTL toDateTime(least(%s + %d, %d))", second, days*86400, uint32(math.MaxUint32))
		var current []struct {
			Engine string `ch:"engine_full"`
		}
		query := fmt.Sprintf("SELECT engine_full FROM system.tables WHERE database = '%s' AND name = '%s'", l.Database, table)
		err := c.Select(ctx, &current, query)
		if err == nil && (len(current) == 0 || !strings.Contains(current[0].Engine, ttl+" ")) {
			at := fmt.Sprintf("ALTER TABLE `%s`.`%s` MODIFY ", l.Database, table)
			if err = exec(ctx, c, l, at+"SETTING ttl_only_drop_parts = 1"); err == nil {
				err = exec(ctx, c, l, at+ttl)
			}
		}
		if err != nil {
			return fmt.Errorf("cannot set the TTL of %s.%s: %w", l.Database, table, err)
		}
	}
	return nil
}

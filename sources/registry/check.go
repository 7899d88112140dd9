package registry

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"trafficd/sources/internal/watch"
)

// Check reports feeds whose file cannot be read. If deep, it also reads each list once and reports
// lists that cannot be used. Each of the joined errors starts with the key of a setting.
func (c Config) Check(ctx context.Context, deep bool) error {
	deep = deep && c.Validate() == nil
	var errs []error
	for i, fc := range c.Feeds {
		if err := fc.check(ctx, c, deep); err != nil {
			errs = append(errs, fmt.Errorf("feeds[%d].%w", i, err))
		}
	}
	return errors.Join(errs...)
}

func (f FeedConfig) check(ctx context.Context, cfg Config, deep bool) error {
	f = f.withDefaults()
	kind := "http"
	switch {
	case f.File != nil:
		kind = "file"
		if err := unix.Access(f.File.Path, unix.R_OK); err != nil {
			return fmt.Errorf("file: cannot read %s: %w", f.File.Path, err)
		}
	case f.ClickHouse != nil:
		kind = "clickhouse"
		if err := f.ClickHouse.Check(ctx, deep); err != nil {
			return fmt.Errorf("clickhouse.%w", err)
		}
	}
	if !deep {
		return nil
	}
	cfg.CacheDir = "" // the cache belongs to a daemon that may be running
	feed := newFeed(cfg, f, zerolog.Nop())
	defer feed.source.close()
	lists, err := feed.read(ctx)
	if err != nil {
		clear(lists) // they are incomplete
	}
	for instance, codes := range lists {
		err = errors.Join(err, newList(cfg, instance, feed.kind, zerolog.Nop()).take(codes, time.Now()))
	}
	if err != nil && !errors.Is(err, watch.ErrUnsettled) {
		return fmt.Errorf("%s: %w", kind, err)
	}
	return nil
}

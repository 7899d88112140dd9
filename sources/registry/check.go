package registry

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/rs/zerolog"

	"trafficd/sources/internal/watch"
)

// Check reads each list in a file once and, if deep, all other lists too. It returns an error for
// each unusable one. Errors start with the key of a setting. If the configuration is invalid, no
// list is read.
func (c Config) Check(ctx context.Context, deep bool) error {
	valid := c.Validate() == nil
	c.Settle = 0 // read new files too
	var errs []error
	for i, f := range c.Feeds {
		errs = append(errs, f.check(ctx, fmt.Sprintf("feeds[%d].", i), c, valid && (deep || f.File != nil)))
	}
	return errors.Join(errs...)
}

// check checks one feed and, if read is true, its list. at is the prefix of its keys in errors.
func (f FeedConfig) check(ctx context.Context, at string, cfg Config, read bool) error {
	f = f.withDefaults()
	kind := "http"
	switch {
	case f.File != nil:
		kind = "file"
		if err := watch.CheckReadable(f.File.Path); err != nil {
			return fmt.Errorf("%sfile: %w", at, err)
		}
	case f.ClickHouse != nil:
		kind = "clickhouse"
		if err := f.ClickHouse.Check(ctx, read); err != nil {
			return fmt.Errorf("%sclickhouse.%w", at, err)
		}
	}
	if !read {
		return nil
	}
	cfg.CacheDir = "" // a running daemon may be using the cache
	feed := newFeed(cfg, f, zerolog.Nop())
	defer feed.source.close()
	lists, err := feed.read(ctx)
	if err != nil {
		return fmt.Errorf("%s%s: %w", at, kind, err)
	}
	var errs []error
	for _, instance := range slices.Sorted(maps.Keys(lists)) {
		if err := newList(cfg, instance, kind, zerolog.Nop()).take(lists[instance].Codes, time.Now()); err != nil {
			errs = append(errs, fmt.Errorf("%s%s: product instance %s: %w", at, kind, instance, err))
		}
	}
	return errors.Join(errs...)
}

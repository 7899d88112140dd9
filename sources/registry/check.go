package registry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"trafficd/pipeline/batch"
	"trafficd/pipeline/lib/watch"
)

// maxReported is the number of product instances of a list that Check describes.
const maxReported = 10

// Check reads each list in a file once and, if deep, all other lists too. It writes to w what the
// lists contain, and returns an error for each unusable one. Errors start with the key of a
// setting. If the configuration is invalid, no list is read.
func (c Config) Check(ctx context.Context, w io.Writer, deep bool) error {
	valid := c.Validate() == nil
	var errs []error
	for i, f := range c.Feeds {
		errs = append(errs, f.check(ctx, w, fmt.Sprintf("feeds[%d].", i), c, valid && (deep || f.File != nil)))
	}
	return errors.Join(errs...)
}

// check checks one feed and, if read is true, its list. at is the prefix of its keys in errors.
func (f FeedConfig) check(ctx context.Context, w io.Writer, at string, cfg Config, read bool) error {
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
	if f.File != nil {
		feed.source = newFileSource(*f.File, f.InstanceColumn, 0, cfg.MaxBytes) // reads new files too
	}
	defer feed.source.close()
	feed.onList = func(batch.DetectorList) {} // read attributes
	lists, err := feed.read(ctx)
	if err != nil {
		return fmt.Errorf("%s%s: %w", at, kind, err)
	}
	var errs []error
	instances := slices.Sorted(maps.Keys(lists))
	for i, instance := range instances {
		l := newList(cfg, instance, kind, zerolog.Nop())
		if err := l.replace(lists[instance].Codes, time.Now()); err != nil {
			errs = append(errs, fmt.Errorf("%s%s: product instance %s: %w", at, kind, instance, err))
		} else if i < maxReported {
			lists[instance].describe(w, l.current.Load())
		}
	}
	if more := len(instances) - maxReported; more > 0 {
		fmt.Fprintf(w, "registry.%s%s: %d more product instances\n", at, kind, more)
	}
	return errors.Join(errs...)
}

// describe writes the number of detectors, some of their codes, and what seems to be wrong.
func (l *examined) describe(w io.Writer, detectors *batch.Detectors) {
	n := detectors.Len()
	codes := make([]string, 0, 3)
	for i := range min(n, 2) {
		codes = append(codes, string(detectors.Code(i)))
	}
	if n > 2 {
		codes = append(codes, string(detectors.Code(n-1)))
	}
	if n > 3 {
		codes[2] = "… " + codes[2]
	}
	unlocated := 0
	for _, others := range l.Attributes {
		if !located(others) {
			unlocated++
		}
	}
	noun := "detectors"
	if n == 1 {
		noun = "detector"
	}
	fmt.Fprintf(w, "%s: %d %s (%s)", l.ProductInstance, n, noun, strings.Join(codes, ", "))
	if unlocated > 0 {
		fmt.Fprintf(w, ", %d without coordinates", unlocated)
	}
	fmt.Fprintln(w)
	for _, warning := range l.doubtful.warnings {
		fmt.Fprintf(w, "warning: %s: %s\n", l.ProductInstance, warning)
	}
	if more := l.doubtful.entries - len(l.doubtful.warnings); more > 0 {
		fmt.Fprintf(w, "warning: %s: %d more such entries\n", l.ProductInstance, more)
	}
}

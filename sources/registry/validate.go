package registry

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Validate reports every invalid key with the reason for its bound.
func (c Config) Validate() error {
	errs := []error{
		check(c.Recheck >= time.Second, "recheck is %s, must be 1s or more: every check costs a system call per feed", c.Recheck),
		check(c.Settle >= 10*time.Millisecond && c.Settle <= time.Minute, "settle is %s, must be 10ms to 1m: it delays every new list", c.Settle),
		check(c.MaxShrink >= 0 && c.MaxShrink <= 1, "max_shrink is %g, must be 0 to 1: it is a fraction of the detectors in use", c.MaxShrink),
		check(c.ShrinkConfirm >= 0, "shrink_confirm is %s, must be 0 (use every list at once) or more", c.ShrinkConfirm),
		check(c.MaxBytes >= 1<<10 && c.MaxBytes <= 1<<30, "max_bytes is %d, must be 1 KiB to 1 GiB: a list is read into memory whole", c.MaxBytes),
	}
	seen := make(map[string]bool)
	for i, f := range c.Feeds {
		at := fmt.Sprintf("feeds[%d].", i)
		errs = append(errs, f.validate(at),
			check(!seen[f.ProductInstance], "%sproduct_instance %q already has a feed", at, f.ProductInstance))
		seen[f.ProductInstance] = true
	}
	return errors.Join(errs...)
}

func (f FeedConfig) validate(at string) error {
	visible := f.ProductInstance != "" && len(f.ProductInstance) <= 128 && utf8.ValidString(f.ProductInstance) && !strings.ContainsFunc(f.ProductInstance, unprintable)
	errs := []error{check(visible, "%sproduct_instance is %q, must be 1 to 128 bytes of visible text: every record contains it", at, f.ProductInstance)}
	set := 0
	if c := f.File; c != nil {
		set++
		errs = append(errs,
			check(c.Path != "", "%sfile.path must be set", at),
			check(c.Format == "" || c.Format == FormatCSV || c.Format == FormatJSON, "%sfile.format is %q, must be csv, json or empty", at, c.Format),
			check(c.Separator == "" || c.comma() != 0, "%sfile.separator is %q, must be tab or one character, but not a quote or line break", at, c.Separator))
	}
	if c := f.HTTP; c != nil {
		set++
		u, err := url.Parse(c.URL)
		errs = append(errs,
			check(err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "", "%shttp.url must be http://… or https://… with a host", at),
			check(!strings.ContainsFunc(c.Authorization, unprintable), "%shttp.authorization must not contain control characters", at),
			validatePolling(at+"http.", c.Interval, c.Timeout))
	}
	if c := f.ClickHouse; c != nil {
		set++
		errs = append(errs, c.Validate(at+"clickhouse."), validatePolling(at+"clickhouse.", c.Interval, c.Timeout))
	}
	errs = append(errs, check(set == 1, "%sfile, http, clickhouse: %d of them are set, want exactly one", at, set))
	return errors.Join(errs...)
}

func validatePolling(at string, interval, timeout time.Duration) error {
	return errors.Join(
		check(interval == 0 || interval >= time.Second, "%sinterval is %s, must be 1s or more: shorter burdens the server", at, interval),
		check(timeout == 0 || timeout >= time.Second && timeout <= 10*time.Minute, "%stimeout is %s, must be 1s to 10m", at, timeout))
}

func check(ok bool, format string, args ...any) error {
	if ok {
		return nil
	}
	return fmt.Errorf(format, args...)
}

func unprintable(r rune) bool { return !unicode.IsPrint(r) }

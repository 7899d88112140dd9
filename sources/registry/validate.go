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

// Validate names every key that is wrong, and why it is.
func (c Config) Validate() error {
	v := &findings{}
	v.want(c.Recheck >= time.Second, "recheck is %s, want 1s or more: each look costs a system call for each feed", c.Recheck)
	v.want(c.Settle >= 10*time.Millisecond && c.Settle <= time.Minute, "settle is %s, want 10ms to 1m: a new list waits that long", c.Settle)
	v.want(c.MaxShrink >= 0 && c.MaxShrink <= 1, "max_shrink is %g, want 0 to 1: it is a share of the detectors in use", c.MaxShrink)
	v.want(c.ShrinkConfirm >= 0, "shrink_confirm is %s, want 0 (take every list at once) or more", c.ShrinkConfirm)
	v.want(c.MaxBytes >= 1<<10 && c.MaxBytes <= 1<<30, "max_bytes is %d, want 1 KiB to 1 GiB: a list is read into memory whole", c.MaxBytes)
	seen := make(map[string]bool)
	for i, f := range c.Feeds {
		at := fmt.Sprintf("feeds[%d].", i)
		f.validate(v, at)
		v.want(!seen[f.ProductInstance], "%sproduct_instance %q has a feed already: it can have one only", at, f.ProductInstance)
		seen[f.ProductInstance] = true
	}
	return errors.Join(v.errs...)
}

func (f FeedConfig) validate(v *findings, at string) {
	v.want(f.ProductInstance != "" && len(f.ProductInstance) <= 128 && utf8.ValidString(f.ProductInstance) && !strings.ContainsFunc(f.ProductInstance, unprintable),
		"%sproduct_instance is %q, want 1 to 128 bytes of visible text: it stands on every record", at, f.ProductInstance)
	set := 0
	if f.File != nil {
		set++
		f.File.validate(v, at+"file.")
	}
	if f.HTTP != nil {
		set++
		f.HTTP.validate(v, at+"http.")
	}
	if f.ClickHouse != nil {
		set++
		v.errs = append(v.errs, f.ClickHouse.Validate(at+"clickhouse."))
		validatePolling(v, at+"clickhouse.", f.ClickHouse.Interval, f.ClickHouse.Timeout)
	}
	v.want(set == 1, "%sfile, http, clickhouse: %d of them are given, want exactly one", at, set)
}

func (f FileConfig) validate(v *findings, at string) {
	v.want(f.Path != "", "%spath is empty: name the file with the detectors", at)
	v.want(f.Format == "" || f.Format == FormatCSV || f.Format == FormatJSON, "%sformat is %q, want csv, json or nothing", at, f.Format)
	v.want(f.Separator == "" || f.comma() != 0, "%sseparator is %q, want one character that is neither a quote nor a line's end, or tab", at, f.Separator)
}

func (h HTTPConfig) validate(v *findings, at string) {
	u, err := url.Parse(h.URL)
	v.want(err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "", "%surl has to be http://… or https://… with a host", at)
	validatePolling(v, at, h.Interval, h.Timeout)
	v.want(!strings.ContainsFunc(h.Authorization, unprintable), "%sauthorization holds a control character: a header cannot", at)
}

func validatePolling(v *findings, at string, interval, timeout time.Duration) {
	v.want(interval == 0 || interval >= time.Second, "%sinterval is %s, want 1s or more: the other side has work to do as well", at, interval)
	v.want(timeout == 0 || timeout >= time.Second && timeout <= 10*time.Minute, "%stimeout is %s, want 1s to 10m", at, timeout)
}

// findings collects what is wrong, so that all of it is told at once.
type findings struct{ errs []error }

func (v *findings) want(ok bool, format string, args ...any) {
	if !ok {
		v.errs = append(v.errs, fmt.Errorf(format, args...))
	}
}

func unprintable(r rune) bool { return !unicode.IsPrint(r) }

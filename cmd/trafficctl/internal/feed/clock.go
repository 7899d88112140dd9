package feed

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Layouts beside Go's own.
const (
	LayoutISO        = "iso"    // 2026-11-01T07:50:00, T or a space; seconds, fraction and zone optional
	LayoutUnix       = "unix"   // seconds since 1970, UTC
	LayoutUnixMillis = "unixms" // milliseconds since 1970, UTC
)

// Overlap says what a local time means that the clocks show twice, when
// daylight saving ends.
type Overlap string

// The choices. Rejecting is the default: each of the others puts the
// measurements of two hours into one, and the later would replace the earlier.
const (
	OverlapReject Overlap = "reject"
	OverlapFirst  Overlap = "first"  // daylight saving time
	OverlapSecond Overlap = "second" // standard time
)

// Clock says how timestamps are written. The contract wants UTC, so all are
// converted. A time with a zone of its own (Z, +02:00) needs no Zone. A local
// time that the clocks skip when daylight saving begins never was: its row is
// a bad row, whatever Overlap says.
type Clock struct {
	Layout  string
	Zone    *time.Location // of times that name none
	Overlap Overlap
}

// Validate gives the first setting that cannot be, by its flag's name.
func (c Clock) Validate() error {
	switch c.Overlap {
	case OverlapReject, OverlapFirst, OverlapSecond:
	default:
		return fmt.Errorf("--dst-overlap %q is none of reject, first, second", c.Overlap)
	}
	switch c.Layout {
	case LayoutISO, LayoutUnix, LayoutUnixMillis:
		return nil
	}
	if strings.Contains(c.Layout, "MST") {
		return errors.New("--time-layout: zone abbreviations (MST) are ambiguous; use a numeric offset or --zone")
	}
	if !strings.Contains(c.Layout, "06") || !strings.ContainsAny(c.Layout, "35") {
		return fmt.Errorf("--time-layout %q: write iso, unix, unixms or the reference time 2006-01-02 15:04:05 in your layout, as in 02.01.2006 15:04", c.Layout)
	}
	return nil
}

// clock turns cells into instants. It remembers the stretch of local time
// around the last one in which the offset cannot be in doubt, so that the
// zone's table is asked only twice a year.
type clock struct {
	Clock
	hasZone bool // the layout itself has an offset
	from    int64
	until   int64 // [from, until) of local seconds
	offset  int64
}

func newClock(c Clock) *clock {
	return &clock{Clock: c, hasZone: strings.Contains(c.Layout, "-07") || strings.Contains(c.Layout, "Z07")}
}

func (c *clock) parse(cell string) (time.Time, error) {
	switch c.Layout {
	case LayoutISO:
		wall, zoned, ok := parseISO(cell)
		if !ok {
			return time.Time{}, fmt.Errorf("%q is not a time as in 2026-11-01T07:50:00 (see --time-layout)", cut(cell))
		}
		return c.place(wall, zoned)
	case LayoutUnix:
		return parseUnix(cell, time.Second)
	case LayoutUnixMillis:
		return parseUnix(cell, time.Millisecond)
	}
	wall, err := time.Parse(c.Layout, cell)
	if err != nil {
		return time.Time{}, fmt.Errorf("%q does not follow the layout %q", cut(cell), c.Layout)
	}
	return c.place(wall, c.hasZone)
}

// place takes a reading of the clock, given as if it were UTC, to its instant.
func (c *clock) place(wall time.Time, zoned bool) (time.Time, error) {
	if zoned || c.Zone == time.UTC {
		return wall, nil
	}
	local := wall.Unix()
	if local < c.from || local >= c.until {
		if err := c.look(wall); err != nil {
			return time.Time{}, err
		}
	}
	return wall.Add(-time.Duration(c.offset) * time.Second), nil
}

// look finds the offset that holds at a local time. Candidates are the period
// of the zone's table that Go's reading falls into and its two neighbours:
// each counts if the local time, read with its offset, lies inside it.
func (c *clock) look(wall time.Time) error {
	guess := time.Date(wall.Year(), wall.Month(), wall.Day(), wall.Hour(), wall.Minute(), wall.Second(), 0, c.Zone)
	start, end := guess.ZoneBounds()
	periods := []time.Time{guess}
	if !start.IsZero() {
		periods = append(periods, start.Add(-time.Nanosecond))
	}
	if !end.IsZero() {
		periods = append(periods, end)
	}
	var found []int64
	for _, p := range periods {
		if offset, ok := offsetIn(p, wall); ok {
			found = append(found, offset)
		}
	}
	return c.choose(found, wall)
}

// offsetIn tells whether the local time exists in the period of the zone's
// table that p lies in, and the offset there.
func offsetIn(p, wall time.Time) (int64, bool) {
	_, seconds := p.Zone()
	instant := wall.Add(-time.Duration(seconds) * time.Second)
	start, end := p.ZoneBounds()
	inside := (start.IsZero() || !instant.Before(start)) && (end.IsZero() || instant.Before(end))
	return int64(seconds), inside
}

func (c *clock) choose(found []int64, wall time.Time) error {
	c.from, c.until = 0, 0
	switch {
	case len(found) == 0:
		return fmt.Errorf("%s does not exist in %s: the clocks skip it when daylight saving begins", wall.Format(time.DateTime), c.Zone)
	case len(found) == 1:
		c.offset = found[0]
		c.remember(wall)
		return nil
	case c.Overlap == OverlapReject:
		return fmt.Errorf("%s stands for two instants in %s, as daylight saving ends: choose with --dst-overlap first|second, or write an offset into the file", wall.Format(time.DateTime), c.Zone)
	}
	c.offset = found[0]
	for _, offset := range found[1:] {
		// The earlier reading is the one with the greater offset.
		if (offset > c.offset) == (c.Overlap == OverlapFirst) {
			c.offset = offset
		}
	}
	return nil
}

// remember keeps the local times of the same period of the table that are at
// least a day from both of its ends: no jump of a clock is longer.
func (c *clock) remember(wall time.Time) {
	const margin = 24 * 60 * 60
	start, end := wall.Add(-time.Duration(c.offset) * time.Second).In(c.Zone).ZoneBounds()
	c.from, c.until = 0, 1<<40
	if !start.IsZero() {
		c.from = start.Unix() + margin + c.offset
	}
	if !end.IsZero() {
		c.until = end.Unix() - margin + c.offset
	}
}

// parseUnix reads a count of units since 1970; seconds may have a fraction.
func parseUnix(cell string, unit time.Duration) (time.Time, error) {
	whole, fraction, _ := strings.Cut(cell, ".")
	n, err := strconv.ParseInt(whole, 10, 64)
	if err != nil || n > 1<<43 || n < -(1<<43) || len(fraction) > 9 || digits(fraction) != len(fraction) {
		return time.Time{}, fmt.Errorf("%q is not a number of seconds or milliseconds since 1970 (see --time-layout)", cut(cell))
	}
	if unit == time.Millisecond {
		return time.UnixMilli(n).UTC(), nil
	}
	return time.Unix(n, nanos(fraction)).UTC(), nil
}

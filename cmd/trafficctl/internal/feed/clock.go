package feed

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Layouts that are supported in addition to Go's.
const (
	LayoutISO        = "iso"    // 2026-11-01T07:50:00 with T or a space; optional seconds, fraction and UTC offset
	LayoutUnix       = "unix"   // seconds since the Unix epoch
	LayoutUnixMillis = "unixms" // milliseconds since the Unix epoch
)

// Overlap selects how to read a local time that occurs twice when daylight saving time ends.
type Overlap string

// The values of Overlap. By default, such times are rejected: first and second map both hours to
// the same hour, so measurements from the later hour replace those from the earlier hour.
const (
	OverlapReject Overlap = "reject"
	OverlapFirst  Overlap = "first"  // daylight saving time
	OverlapSecond Overlap = "second" // standard time
)

// Clock describes the format of timestamps and parses them. It resolves local times itself, because
// time.ParseInLocation does not report times that do not exist or occur twice.
type Clock struct {
	Layout  string
	Zone    *time.Location // time zone of times without a UTC offset; nil: they are taken as UTC
	Overlap Overlap
	Shift   time.Duration // added to each timestamp

	layouts []string // Go layouts for Layout, starting with the one that matched last
	asUTC   *int64   // if not nil, counts the times without a UTC offset while Zone is nil
}

// Validate returns an error for the first invalid field, with the name of its flag.
func (c Clock) Validate() error {
	switch {
	case !slices.Contains([]Overlap{OverlapReject, OverlapFirst, OverlapSecond}, c.Overlap):
		return fmt.Errorf("--dst-overlap %q must be reject, first or second", c.Overlap)
	case slices.Contains([]string{LayoutISO, LayoutUnix, LayoutUnixMillis}, c.Layout):
	case strings.Contains(c.Layout, "MST"):
		return errors.New("--time-layout: zone abbreviations (MST) are ambiguous; use a numeric offset or --zone")
	case !strings.Contains(goLayout(c.Layout), "06") || !strings.ContainsAny(goLayout(c.Layout), "35"):
		return fmt.Errorf("--time-layout %q must be iso, unix, unixms, or a layout such as 'DD.MM.YYYY hh:mm' or, as in Go, "+
			"'02.01.2006 15:04'", c.Layout)
	}
	return nil
}

// goLayout returns a layout as Go writes it: DD.MM.YYYY hh:mm becomes 02.01.2006 15:04. A layout
// with digits is Go's already.
func goLayout(layout string) string {
	if strings.ContainsAny(layout, "0123456789") {
		return layout
	}
	return fieldsOfLayouts.Replace(layout)
}

// fieldsOfLayouts has the letters of spreadsheets, German ones included.
var fieldsOfLayouts = strings.NewReplacer("YYYY", "2006", "yyyy", "2006", "JJJJ", "2006", "YY", "06", "yy", "06", "JJ", "06",
	"MM", "01", "DD", "02", "dd", "02", "TT", "02", "hh", "15", "HH", "15", "mm", "04", "ss", "05", "SS", "05")

// isoLayouts lists the layouts of LayoutISO. time.Parse also accepts a fraction of a second.
var isoLayouts = func() (layouts []string) {
	for _, clock := range []string{"2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02T15:04", "2006-01-02 15:04"} {
		for _, offset := range []string{"", "Z07:00", "Z0700", "Z07"} {
			layouts = append(layouts, clock+offset)
		}
	}
	return layouts
}()

// parse parses a timestamp and returns it in UTC, shifted by Shift.
func (c *Clock) parse(cell string) (time.Time, error) {
	at, err := c.unshifted(cell)
	return at.Add(c.Shift), err
}

func (c *Clock) unshifted(cell string) (time.Time, error) {
	switch c.Layout {
	case LayoutUnix:
		return parseUnix(cell, "s")
	case LayoutUnixMillis:
		return parseUnix(cell, "ms")
	}
	text := cell
	if c.Layout == LayoutISO {
		text = strings.ToUpper(cell) // accept t and z
	}
	if c.layouts == nil && c.Layout == LayoutISO {
		c.layouts = slices.Clone(isoLayouts)
	} else if c.layouts == nil {
		c.layouts = []string{goLayout(c.Layout)}
	}
	for i, layout := range c.layouts {
		wall, err := time.Parse(layout, text)
		if err != nil {
			continue
		}
		c.layouts[0], c.layouts[i] = layout, c.layouts[0]
		if strings.Contains(layout, "-07") || strings.Contains(layout, "Z07") {
			return wall.UTC(), nil
		}
		return c.resolve(wall)
	}
	if c.Layout == LayoutISO {
		return time.Time{}, fmt.Errorf("%.64q is not a time such as 2026-11-01T07:50:00; set --time-layout, "+
			"for example 'DD.MM.YYYY hh:mm'", cell)
	}
	return time.Time{}, fmt.Errorf("%.64q does not match the layout %q", cell, c.Layout)
}

// resolve returns the instant of a local time, which is passed as if it were UTC.
func (c *Clock) resolve(wall time.Time) (time.Time, error) {
	if c.Zone == nil && c.asUTC != nil {
		*c.asUTC++
	}
	if c.Zone == nil || c.Zone == time.UTC {
		return wall, nil
	}
	// The candidates are the instants with the UTC offsets in force a day earlier and a day later.
	first, second := c.withOffset(wall, -day), c.withOffset(wall, day)
	switch {
	case first.IsZero() && second.IsZero():
		return wall, fmt.Errorf("%s does not exist in %s: it is skipped when daylight saving time begins", wall.Format(time.DateTime), c.Zone)
	case second.IsZero(), first.Equal(second):
		return first, nil
	case first.IsZero():
		return second, nil
	case c.Overlap == OverlapReject:
		return wall, fmt.Errorf("%s is ambiguous in %s: it occurs twice when daylight saving time ends; set --dst-overlap first or second, or "+
			"add UTC offsets to the file", wall.Format(time.DateTime), c.Zone)
	case c.Overlap == OverlapFirst:
		return first, nil
	}
	return second, nil
}

const day = 24 * time.Hour

// withOffset returns the instant of the local time wall, assuming the UTC offset in force at
// wall+after. It returns the zero time if a different offset is in force at that instant.
func (c *Clock) withOffset(wall time.Time, after time.Duration) time.Time {
	_, offset := wall.Add(after).In(c.Zone).Zone()
	at := wall.Add(-time.Duration(offset) * time.Second)
	if _, actual := at.In(c.Zone).Zone(); actual != offset {
		return time.Time{}
	}
	return at
}

// parseUnix parses a number of seconds or milliseconds (unit s or ms) since the Unix epoch, which
// may have a fraction.
func parseUnix(cell, unit string) (time.Time, error) {
	since, err := time.ParseDuration(cell + unit)
	if err != nil || strings.Trim(cell, "0123456789.-") != "" {
		return time.Time{}, fmt.Errorf("%.64q is not a Unix time in seconds or milliseconds (see --time-layout)", cell)
	}
	return time.Unix(0, int64(since)).UTC(), nil
}

var swapSeparators = strings.NewReplacer(",", ".", ".", ",")

// appendNumber appends a cell as a JSON number. It keeps valid JSON numbers unchanged, and converts
// "+5", ".5", "5." and decimal commas. With decimal commas, a point is an error, because it
// separates thousands.
func appendNumber(dst []byte, cell string, decimal byte) ([]byte, error) {
	number := cell
	if decimal == ',' {
		number = swapSeparators.Replace(cell)
	}
	if strings.Trim(number, "0123456789+-.eE") == "" { // no NaN, 0x1p4, 1_000
		if json.Valid([]byte(number)) {
			return append(dst, number...), nil
		}
		if v, err := strconv.ParseFloat(number, 64); err == nil {
			return strconv.AppendFloat(dst, v, 'g', -1, 64), nil
		}
	}
	return dst, fmt.Errorf("%.64q is not a number", cell)
}

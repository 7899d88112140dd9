package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/pflag"

	"trafficd/cmd/trafficctl/internal/feed"
)

// reading holds the flags that say what a file looks like.
type reading struct {
	cfg         feed.Config
	mapping     feed.Mapping
	format      string
	compression string
	separator   string
	melt        []string
	decimal     string
	zone        string
	overlap     string
}

// mappingFlags are those that ask for items to be built anew.
var mappingFlags = []string{
	"detector", "type", "from", "to", "interval", "value", "quality", "melt",
	"zone", "dst-overlap", "time-layout", "decimal",
}

func newReading() *reading {
	return &reading{cfg: feed.DefaultConfig(), mapping: feed.DefaultMapping()}
}

func (r *reading) register(f *pflag.FlagSet) {
	m := &r.mapping
	f.StringVar(&r.format, "format", string(feed.Auto), "auto, csv, json or ndjson")
	f.StringVar(&r.compression, "compression", string(feed.Sniff), "auto, none, gzip, xz or zstd")
	f.StringVar(&r.separator, "separator", ",", "between CSV cells; 'tab' for tabulators")
	f.StringSliceVar(&r.cfg.Columns, "columns", nil, "names of the CSV columns, for a file without a header")
	f.Int64Var(&r.cfg.SkipRows, "skip-rows", 0, "leave out so many rows at the start: an earlier run has sent them")
	f.StringVar(&m.Detector, "detector", m.Detector, "column of the detector's code")
	f.StringVar(&m.Type, "type", m.Type, "column of the measure type, or =TYPE for all rows")
	f.StringVar(&m.From, "from", m.From, "column of the start of the interval")
	f.StringVar(&m.To, "to", m.To, "column of the end of the interval")
	f.DurationVar(&m.Interval, "interval", 0, "instead of --to: the end is so long after the start, as 5m")
	f.StringVar(&m.Value, "value", m.Value, "column of the value")
	f.StringVar(&m.Quality, "quality", m.Quality, "column of the quality; by default only if there is one")
	f.StringSliceVar(&r.melt, "melt", nil, "instead of --type and --value: COLUMN=TYPE,…, a measurement for each column")
	f.StringVar(&r.decimal, "decimal", ".", "decimal mark of numbers: . or ,")
	f.StringVar(&r.zone, "zone", "UTC", "zone of timestamps that name none, as Europe/Copenhagen")
	f.StringVar(&r.overlap, "dst-overlap", string(feed.OverlapReject), "a local time that the clocks show twice: reject, first or second")
	f.StringVar(&m.Clock.Layout, "time-layout", m.Clock.Layout, "iso, unix, unixms, or the moment 2006-01-02 15:04:05 written in your layout")
}

// config gives the reader's settings for the command line.
func (r *reading) config(flags *pflag.FlagSet, args []string) (feed.Config, error) {
	cfg := r.cfg
	if len(args) > 0 {
		cfg.Path = args[0]
	}
	cfg.Format, cfg.Compression = feed.Format(r.format), feed.Compression(r.compression)
	var err error
	if cfg.Separator, err = separator(r.separator); err != nil {
		return cfg, err
	}
	if slices.ContainsFunc(mappingFlags, flags.Changed) {
		cfg.Mapping, err = r.mapped(flags)
	}
	return cfg, err
}

func separator(s string) (rune, error) {
	if s == "tab" || s == `\t` {
		return '\t', nil
	}
	c, n := utf8.DecodeRuneInString(s)
	if n != len(s) || c == utf8.RuneError {
		return 0, fmt.Errorf("--separator %q: write one character, or tab", s)
	}
	return c, nil
}

// mapped completes the mapping from the flags that are not plain texts, and
// takes back the defaults that another flag replaces.
func (r *reading) mapped(flags *pflag.FlagSet) (*feed.Mapping, error) {
	m := r.mapping
	m.QualityOptional = !flags.Changed("quality")
	m.Clock.Overlap = feed.Overlap(r.overlap)
	if m.Interval != 0 && !flags.Changed("to") {
		m.To = ""
	}
	if len(r.decimal) != 1 {
		return nil, fmt.Errorf("--decimal %q is neither a point nor a comma", r.decimal)
	}
	m.Decimal = r.decimal[0]
	if len(r.melt) > 0 && (flags.Changed("type") || flags.Changed("value")) {
		return nil, errors.New("--melt excludes --type and --value: it says both for each column")
	}
	for _, text := range r.melt {
		melt, err := feed.ParseMelt(strings.TrimSpace(text))
		if err != nil {
			return nil, err
		}
		m.Melt = append(m.Melt, melt)
	}
	var err error
	if m.Clock.Zone, err = time.LoadLocation(r.zone); err != nil {
		return nil, fmt.Errorf("--zone %q is no IANA zone, as UTC or Europe/Copenhagen: %w", r.zone, err)
	}
	return &m, nil
}

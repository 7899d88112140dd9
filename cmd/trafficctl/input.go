package main

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/pflag"

	"trafficd/cmd/trafficctl/internal/feed"
)

type inputFlags struct {
	cfg     feed.Config
	mapping feed.Mapping
	melt    []string
	flags   *pflag.FlagSet // the mapping flags; setting any of them causes items to be built from columns
}

func (r *inputFlags) register(all *pflag.FlagSet) {
	all.StringVar((*string)(&r.cfg.Format), "format", string(feed.Auto), "auto, csv, json or ndjson")
	all.Func("separator", "separator of CSV cells: one `character`, or tab (default ,)", func(text string) error {
		text = strings.NewReplacer("tab", "\t", `\t`, "\t").Replace(text)
		var n int
		if r.cfg.Separator, n = utf8.DecodeRuneInString(text); n != len(text) || r.cfg.Separator == utf8.RuneError {
			return errors.New("must be one character, or tab")
		}
		return nil
	})
	all.StringSliceVar(&r.cfg.Columns, "columns", nil, "names of the CSV columns, for a file without a header")
	f, m := pflag.NewFlagSet("", pflag.ContinueOnError), &r.mapping
	f.StringVar(&m.Detector, "detector", m.Detector, "column of the detector code")
	f.StringVar(&m.Type, "type", m.Type, "column of the measure type, or =TYPE for all rows")
	f.StringVar(&m.From, "from", m.From, "column of the interval's start")
	f.StringVar(&m.To, "to", m.To, "column of the interval's end")
	f.DurationVar(&m.Interval, "interval", 0, "length of the interval, instead of --to, for example 5m")
	f.StringVar(&m.Value, "value", m.Value, "column of the value")
	f.StringVar(&m.Quality, "quality", m.Quality, "column of the quality; may be missing if this flag is not set")
	f.StringSliceVar(&r.melt, "melt", nil, "one measurement per column, as COLUMN=TYPE,…; replaces --type and --value")
	f.Func("decimal", "decimal `separator` of numbers: . or , (default .)", func(text string) error {
		if text != "." && text != "," {
			return errors.New("must be . or ,")
		}
		m.Decimal = text[0]
		return nil
	})
	f.Func("zone", "IANA time `zone` of timestamps without a UTC offset, for example Europe/Copenhagen (default UTC)",
		func(name string) (err error) {
			m.Clock.Zone, err = time.LoadLocation(name)
			return err
		})
	f.StringVar((*string)(&m.Clock.Overlap), "dst-overlap", string(feed.OverlapReject),
		"meaning of a local time that occurs twice: reject, first or second")
	f.DurationVar(&m.Clock.Shift, "shift", 0,
		"add this to all timestamps, to send recorded data as if it were current; rows that would end in the future are skipped")
	f.StringVar(&m.Clock.Layout, "time-layout", m.Clock.Layout, "iso, unix, unixms, or a Go layout such as '02.01.2006 15:04'")
	f.BoolVar(&m.Wide, "detectors-from-header", false, "the CSV header contains detector codes, with one column of values per detector; "+
		"requires --type =TYPE and --interval")
	r.flags = f
	all.AddFlagSet(f)
}

// config returns the input's settings, without the mapping's defaults that other flags replace.
func (r *inputFlags) config(args []string) (feed.Config, error) {
	cfg := r.cfg
	if len(args) > 0 {
		cfg.Path = args[0]
	}
	isMapped := false
	r.flags.VisitAll(func(f *pflag.Flag) { isMapped = isMapped || f.Changed })
	if !isMapped {
		return cfg, nil
	}
	m := r.mapping
	m.QualityOptional = !r.flags.Changed("quality")
	if m.Interval != 0 && !r.flags.Changed("to") {
		m.To = ""
	}
	if m.Wide && !r.flags.Changed("from") {
		m.From = ""
	}
	for _, name := range []string{"detector", "value", "quality", "melt", "to"} {
		if m.Wide && r.flags.Changed(name) {
			return cfg, fmt.Errorf("use either --detectors-from-header or --%s, not both", name)
		}
	}
	if len(r.melt) > 0 && (r.flags.Changed("type") || r.flags.Changed("value")) {
		return cfg, errors.New("use either --melt or --type and --value, not both")
	}
	for _, text := range r.melt {
		column, kind, _ := strings.Cut(strings.TrimSpace(text), "=")
		if column == "" || kind == "" {
			return cfg, fmt.Errorf("--melt %q must be COLUMN=TYPE, for example avg_speed_kmh=speed", text)
		}
		m.Melt = append(m.Melt, feed.Melt{Column: column, Type: kind})
	}
	cfg.Mapping = &m
	return cfg, nil
}

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/pflag"

	"trafficd/cmd/internal/authority"
	"trafficd/cmd/trafficctl/internal/feed"
	"trafficd/schemas/feeds"
)

type inputFlags struct {
	cfg         feed.Config
	mapping     feed.Mapping
	melt        []string
	units       []string
	flags       *pflag.FlagSet // the mapping flags; setting any of them causes items to be built from columns
	publication publication
	about       *pflag.FlagSet // the flags that describe a publication
}

func (r *inputFlags) register(all *pflag.FlagSet) {
	all.StringVar((*string)(&r.cfg.Format), "format", string(feed.Auto),
		"auto, csv, json, ndjson, or that of a publication: "+strings.Join(authority.Formats(), ", "))
	all.Func("separator", "separator of CSV cells: one `character`, or tab; by default, it is detected", func(text string) error {
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
	f.StringSliceVar(&r.units, "unit", nil,
		"convert values to km/h, vehicles per hour or %, as TYPE=UNIT,…; UNIT is mph, m/s, ratio (0 to 1) or vehicles (in the interval)")
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
			r.publication.Zone = name
			return err
		})
	f.StringVar((*string)(&m.Clock.Overlap), "dst-overlap", string(feed.OverlapReject),
		"meaning of a local time that occurs twice: reject, first or second")
	f.DurationVar(&m.Clock.Shift, "shift", 0,
		"add this to all timestamps, to send recorded data as if it were current; rows that would end in the future are skipped")
	f.StringVar(&m.Clock.Layout, "time-layout", m.Clock.Layout,
		"iso, unix, unixms, or a layout such as 'DD.MM.YYYY hh:mm' or '02.01.2006 15:04'")
	f.BoolVar(&m.Wide, "detectors-from-header", false, "the CSV header contains detector codes, with one column of values per detector; "+
		"requires --type =TYPE and --interval")
	r.flags, r.about = f, pflag.NewFlagSet("", pflag.ContinueOnError)
	r.publication.register(r.about)
	all.AddFlagSet(f)
	all.AddFlagSet(r.about)
}

// isPublication reports whether the format is that of a traffic authority.
func (r *inputFlags) isPublication() bool {
	return slices.Contains(authority.Formats(), string(r.cfg.Format))
}

// readPublication returns the input's settings for a publication. It reads the list of sites.
func (r *inputFlags) readPublication(ctx context.Context, std streams, cfg feed.Config) (feed.Config, error) {
	p := &r.publication
	p.Format = string(cfg.Format)
	table, err := p.table(ctx, std, feeds.Sink{})
	if err != nil {
		return cfg, err
	}
	d, err := p.options(table)
	if err == nil {
		cfg.Publication = &feed.Publication{Format: d.Format, Options: d.Options}
	}
	return cfg, err
}

// changed returns the name of a flag that was set, except those named, or "".
func changed(f *pflag.FlagSet, except ...string) (name string) {
	f.VisitAll(func(f *pflag.Flag) {
		if f.Changed && !slices.Contains(except, f.Name) {
			name = f.Name
		}
	})
	return name
}

// config returns the input's settings, without the mapping's defaults that other flags replace.
func (r *inputFlags) config(args []string) (feed.Config, error) {
	cfg := r.cfg
	if len(args) > 0 {
		cfg.Path = args[0]
	}
	mapped := changed(r.flags)
	switch {
	case r.isPublication():
		if name := changed(r.flags, "zone"); name != "" {
			return cfg, fmt.Errorf("--%s is for csv, json and ndjson, not for --format %s", name, cfg.Format)
		}
		return cfg, nil
	case changed(r.about) != "":
		return cfg, fmt.Errorf("--%s requires the --format of a publication, such as datex2", changed(r.about))
	case mapped == "":
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
	var err error
	if m.Units, err = parseUnits(r.units); err != nil {
		return cfg, err
	}
	cfg.Mapping = &m
	return cfg, nil
}

// parseUnits parses --unit.
func parseUnits(list []string) (map[string]string, error) {
	units := map[string]string{}
	for _, text := range list {
		kind, unit, _ := strings.Cut(strings.TrimSpace(text), "=")
		if _, known := feeds.UnitFactor(unit, 0); !known || kind == "" || unit == "" {
			return nil, fmt.Errorf("--unit %q must be TYPE=UNIT with the unit mph, m/s, ratio or vehicles, for example flow=vehicles", text)
		}
		units[kind] = unit
	}
	return units, nil
}

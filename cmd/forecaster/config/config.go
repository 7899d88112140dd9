// Package config holds the forecaster's settings.
package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rickar/cal/v2"
	"github.com/rickar/cal/v2/at"
	"github.com/rickar/cal/v2/be"
	"github.com/rickar/cal/v2/ch"
	"github.com/rickar/cal/v2/cz"
	"github.com/rickar/cal/v2/de"
	"github.com/rickar/cal/v2/dk"
	"github.com/rickar/cal/v2/es"
	"github.com/rickar/cal/v2/fr"
	"github.com/rickar/cal/v2/gb"
	"github.com/rickar/cal/v2/it"
	"github.com/rickar/cal/v2/nl"
	"github.com/rickar/cal/v2/no"
	"github.com/rickar/cal/v2/pl"
	"github.com/rickar/cal/v2/se"
	"github.com/rickar/cal/v2/us"

	"trafficd/cmd/internal/conf"
	"trafficd/cmd/internal/ops"
	"trafficd/cmd/internal/streets"
	"trafficd/pipeline/lib/dial"
	"trafficd/pipeline/lib/settings"
	"trafficd/schemas/contract"
	"trafficd/sources/forecasts"
)

// Config holds the forecaster's settings.
type Config struct {
	Log        conf.Log       `setting:"log"`        // level and format of the log
	Ops        ops.Config     `setting:"ops"`        // health, metrics and details of streets, for operators
	ClickHouse ClickHouse     `setting:"clickhouse"` // connection to the archive
	Detectors  streets.Config `setting:"detectors"`  // file that assigns detectors to streets
	Model      Model          `setting:"model"`      // what the forecaster learns
	Forecasts  Forecasts      `setting:"forecasts"`  // what is published, and when
	Output     Output         `setting:"output"`     // where forecasts are published
}

// ClickHouse is the clickhouse section: the connection to the archive.
type ClickHouse struct {
	Address         string `setting:"address"` // host:port of the native protocol
	dial.ClickHouse `setting:",squash"`
	Table           string        `setting:"table"`   // table of the archive; must equal the daemon's clickhouse.table
	Cluster         string        `setting:"cluster"` // name of the cluster on the servers; empty: one server, no replication
	Migrate         bool          `setting:"migrate"` // create or update the tables on startup
	Timeout         time.Duration `setting:"timeout"` // time limit for a statement
}

// Model is the model section: what the forecaster learns.
type Model struct {
	ProductInstance string `setting:"product_instance"` // product instance whose measurements are used
	// measure type to forecast; must be a speed if forecasts are published. speed.* is speed and all
	// types below it, such as speed.lane2: a detector's lanes are averaged
	Measure string  `setting:"measure"`
	Count   string  `setting:"count"` // measure type of the vehicle counts, or of those of lanes, such as flow.*; empty: none
	Most    float64 `setting:"most"`  // highest possible value; higher ones are discarded
	Zero    bool    `setting:"zero"`  // true: 0 is a valid value, as it is for flow
	// Length of the detectors' intervals. To change it later, stop the forecaster and truncate the
	// tables whose names start with forecaster_: the forecaster then learns the archive again. Until
	// they are truncated, it reports an error.
	Interval      time.Duration   `setting:"interval"`
	Horizons      []time.Duration `setting:"horizons"`       // horizons at which weights are learned; between these, weights are interpolated
	TimeZone      string          `setting:"time_zone"`      // time zone of profiles and days, as an IANA name
	Holidays      []string        `setting:"holidays"`       // dates that are treated as Sundays, such as 2026-12-25
	HolidayRegion string          `setting:"holiday_region"` // code of the country whose public holidays are added, such as dk; empty: none
	DetectorTests []string        `setting:"detector_tests"` // tests of detectors that are off by default: level, drift, swapped, clock
	LearnAfter    time.Duration   `setting:"learn_after"`    // time to wait after the end of a day before learning it
}

// MaxHorizon is the maximum time from an origin to the end of a forecast: a profile ends with the
// day after the origin.
const MaxHorizon = 24 * time.Hour

// Forecasts is the forecasts section: what is published, and when.
type Forecasts struct {
	Every     time.Duration `setting:"every"`     // time between publications; 0: model.interval
	Grace     time.Duration `setting:"grace"`     // time to wait for late measurements of an interval
	Step      time.Duration `setting:"step"`      // length of a period
	Periods   int           `setting:"periods"`   // number of periods; the first contains the end of the last measured interval
	Tolerance float64       `setting:"tolerance"` // unit that speeds are rounded to, so that small changes are not published
	// age of a detector's latest measurement above which the detector has no forecast, or an imputed
	// one if it has stopped alone; no more than 12 times model.interval, the time for which
	// measurements are read, has an effect
	MaxAge time.Duration `setting:"max_age"`
}

// Output is the output section: where forecasts are published.
type Output struct {
	Feed            string     `setting:"feed"`             // kafka or file
	Kafka           dial.Kafka `setting:"kafka"`            // topic that the daemon reads as forecasts.kafka
	TransactionalID string     `setting:"transactional_id"` // Kafka's transactional.id, the same for all instances
	File            OutputFile `setting:"file"`             // file that the daemon reads as forecasts.file
}

// OutputFile is the file that the daemon reads as forecasts.file.
type OutputFile struct {
	Path   string `setting:"path"`   // replaced with every publication; compressed if the name ends in .gz
	Format string `setting:"format"` // protobuf, json or ndjson; empty: derived from the file's name
}

// Default returns the default settings. Only detectors.path and model.product_instance must be set.
func Default() Config {
	c := Config{
		Log: conf.Log{Level: "info", Format: "auto"}, Ops: ops.Config{Listen: "127.0.0.1:8082"},
		ClickHouse: ClickHouse{
			Address: "127.0.0.1:9000", ClickHouse: dial.ClickHouse{Database: "trafficd", Username: "default"}, Table: "measurements",
			Migrate: true, Timeout: 5 * time.Minute,
		},
		Detectors: streets.DefaultConfig(),
		Model: Model{
			Measure: "speed", Count: "flow", Most: 250, Interval: 5 * time.Minute, TimeZone: "UTC", LearnAfter: time.Hour,
			Horizons: []time.Duration{15 * time.Minute, 30 * time.Minute, time.Hour, 2 * time.Hour},
		},
		Forecasts: Forecasts{Grace: 30 * time.Second, Step: 15 * time.Minute, Periods: 8, Tolerance: 0.5, MaxAge: time.Hour},
		Output:    Output{Feed: forecasts.FeedKafka, Kafka: forecasts.DefaultConfig().Kafka, TransactionalID: "forecaster"},
	}
	c.Output.Kafka.ClientID = "forecaster"
	return c
}

// Load returns the effective configuration, even if it also returns an error.
func Load(o conf.Options) (*Config, conf.Origins, error) {
	c := Default()
	origins, err := conf.Load(&c, o)
	errs := []error{err}
	section := func(name string, err error) { errs = append(errs, origins.Section(name, err)) }
	section("log", c.Log.Validate())
	section("ops", c.Ops.Validate())
	section("clickhouse", c.ClickHouse.validate())
	section("model", c.Model.validate())
	section("forecasts", c.Forecasts.validate(c.Model))
	return &c, origins, errors.Join(errs...)
}

// ValidateOutput validates the settings that only publishing needs.
func (c *Config) ValidateOutput(origins conf.Origins) error {
	var out error
	switch o := c.Output; o.Feed {
	case forecasts.FeedKafka:
		out = errors.Join(o.Kafka.Validate("kafka."), settings.Check(o.TransactionalID != "", "transactional_id must be set"))
	case forecasts.FeedFile:
		feed := forecasts.DefaultConfig()
		feed.Feed, feed.File.Path, feed.File.Format = o.Feed, o.File.Path, o.File.Format
		out = feed.Validate()
	default:
		out = fmt.Errorf("feed is %q, must be kafka or file", o.Feed)
	}
	return errors.Join(origins.Section("detectors", c.Detectors.Validate()), origins.Section("output", out))
}

func (c ClickHouse) validate() error {
	return errors.Join(dial.ValidateAddress("address", c.Address), c.Validate(""),
		settings.Within("timeout", c.Timeout, time.Second, time.Hour, "learning a day of a large network takes minutes"))
}

func (m Model) validate() error {
	_, zone := time.LoadLocation(m.TimeZone)
	errs := []error{
		settings.Check(m.ProductInstance != "", "product_instance must be set"),
		settings.Check(m.Measure != "" && m.Measure != m.Count, "measure must be set, and differ from count"),
		validPattern("measure", m.Measure), validPattern("count", m.Count),
		settings.Positive("most", m.Most, "otherwise all values are discarded"),
		settings.Check(m.Interval >= time.Minute && 15*time.Minute%max(m.Interval, 1) == 0,
			"interval is %s, must be 1m, 3m, 5m or 15m: slots of 15 minutes consist of whole intervals", m.Interval),
		settings.Check(zone == nil && m.TimeZone != "Local", // the zone of the machine, which may differ between instances
			"time_zone is %q, must be a name of the IANA database, such as Europe/Copenhagen", m.TimeZone),
		settings.Check(len(m.Horizons) > 0 && slices.IsSorted(m.Horizons) && len(slices.Compact(slices.Clone(m.Horizons))) == len(m.Horizons),
			"horizons must be sorted, distinct and not empty"),
		settings.Within("learn_after", m.LearnAfter, 0, 12*time.Hour, "later measurements of a day are not learned"),
	}
	_, known := regions[m.HolidayRegion]
	errs = append(errs, settings.Check(known || m.HolidayRegion == "", "holiday_region is %q, must be one of %v or empty", m.HolidayRegion,
		slices.Sorted(maps.Keys(regions))))
	for _, h := range m.Horizons {
		errs = append(errs, settings.Check(h >= m.Interval && h <= 8*time.Hour && h%max(m.Interval, 1) == 0,
			"horizons contains %s, must contain only multiples of interval up to 8h", h))
	}
	for _, h := range m.Holidays {
		_, err := time.Parse(time.DateOnly, h)
		errs = append(errs, settings.Check(err == nil, "holidays contains %q, must contain only dates such as 2026-12-25", h))
	}
	optional := contract.OptionalHealthStates()
	for _, name := range m.DetectorTests {
		errs = append(errs, settings.Check(slices.Contains(optional, name),
			"detector_tests contains %q, must contain only %s; other tests are always on", name, strings.Join(optional, ", ")))
	}
	return errors.Join(errs...)
}

func validPattern(key, pattern string) error {
	return settings.Check(!strings.Contains(strings.TrimSuffix(pattern, ".*"), "*"),
		"%s is %q, must be a measure type such as speed, or speed.* for speed and all types below it, such as speed.lane2", key, pattern)
}

func (f Forecasts) validate(m Model) error {
	return errors.Join(
		settings.Check(f.Every == 0 || f.Every >= time.Second && m.Interval%f.Every == 0,
			"every is %s, must be 0 or divide model.interval: all instances publish at the same times", f.Every),
		settings.Within("grace", f.Grace, 0, max(m.Interval, 0), "a longer wait delays forecasts by more than an interval"),
		settings.Check(f.Step >= m.Interval && f.Step <= MaxHorizon && f.Step%max(m.Interval, 1) == 0,
			"step is %s, must be a multiple of model.interval up to %s", f.Step, MaxHorizon),
		settings.Within("periods", f.Periods, 1, max(int(MaxHorizon/max(f.Step, 1)), 1), "profiles end with the next day"),
		settings.Positive("tolerance", f.Tolerance, "speeds are rounded to multiples of it"),
		settings.Within("max_age", f.MaxAge, m.Interval, time.Hour, "forecasts use the values of the last hour"),
	)
}

// regions maps each value of model.holiday_region to the region's public holidays.
var regions = map[string][]*cal.Holiday{
	"at": at.Holidays, "be": be.Holidays, "ch": ch.Holidays, "cz": cz.Holidays, "de": de.Holidays, "dk": dk.Holidays, "es": es.Holidays,
	"fr": fr.Holidays, "gb": gb.Holidays, "it": it.Holidays, "nl": nl.Holidays, "no": no.Holidays, "pl": pl.Holidays, "se": se.Holidays,
	"us": us.Holidays,
}

// HolidayDates returns the region's holidays from 2000 to 2049, the working days that substitute
// for them, and the dates in m.Holidays, sorted.
func (m Model) HolidayDates() []string {
	dates := make(map[string]bool)
	for _, d := range m.Holidays {
		dates[d] = true
	}
	for _, h := range regions[m.HolidayRegion] {
		for year := 2000; year < 2050; year++ {
			if actual, substitute := h.Calc(year); !actual.IsZero() {
				dates[actual.Format(time.DateOnly)], dates[substitute.Format(time.DateOnly)] = true, true
			}
		}
	}
	return slices.Sorted(maps.Keys(dates))
}

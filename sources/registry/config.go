package registry

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"trafficd/pipeline/lib/dial"
	"trafficd/pipeline/lib/settings"
	"trafficd/sources/internal/shrink"
)

// Config is the registry section of the configuration.
type Config struct {
	Feeds         []FeedConfig        `setting:"feeds"` // detector lists of product instances; batches of others get 403
	shrink.Limits `setting:",squash"` // for lists that lack some of the detectors in use
	MaxBytes      int64               `setting:"max_bytes"` // maximum uncompressed size of a list
	CacheDir      string              `setting:"cache_dir"` // directory of the last good lists; empty: in the journal's directory
	CacheMaxAge   time.Duration       `setting:"-"`         // after a restart, lists confirmed within this time are used; 0: none
}

// FeedConfig is the feed of one product instance, or of all product instances in a shared list.
// Exactly one of File, HTTP and ClickHouse must be set.
type FeedConfig struct {
	ProductInstance string `setting:"product_instance"` // the product instance whose detectors the list contains
	// column, or member of the JSON objects, that contains the product instance; for a list shared by
	// several product instances, instead of product_instance
	InstanceColumn string      `setting:"instance_column"`
	File           *FileConfig `setting:"file"` // a file; it may be gzip-compressed
	HTTP           *HTTPConfig `setting:"http"` // a service that responds to GET with the list as JSON
	// a query whose first column holds the codes; an interval of 0 means one minute, and a timeout
	// of 0 means 30 s
	ClickHouse *dial.ClickHouseQuery `setting:"clickhouse"`
}

// FileConfig is a file with the detector list; it may be gzip-compressed.
type FileConfig struct {
	Path      string `setting:"path"`      // path of the file
	Format    string `setting:"format"`    // csv or json; empty: json if the name ends with .json or .json.gz, otherwise csv
	Column    string `setting:"column"`    // CSV column, or member of the JSON objects, that contains the code; empty: detectorCode
	Separator string `setting:"separator"` // CSV separator: one character, or tab; empty: detected from the header
}

// HTTPConfig is a service that responds to GET with the list as JSON.
type HTTPConfig struct {
	URL           string        `setting:"url"`           // http://… or https://…
	Column        string        `setting:"column"`        // member of the JSON objects that contains the code; empty: detectorCode
	Interval      time.Duration `setting:"interval"`      // time between polls; 0: one minute
	Authorization string        `setting:"authorization"` // value of the Authorization header; secret, better set in the environment
	Timeout       time.Duration `setting:"timeout"`       // maximum duration of a poll; 0: 30 s
}

// The formats of a file, and the default column of codes.
const (
	FormatCSV     = "csv"
	FormatJSON    = "json"
	DefaultColumn = "detectorCode"

	defaultInterval = time.Minute
	defaultTimeout  = 30 * time.Second
)

// DefaultConfig returns the default settings, without feeds.
func DefaultConfig() Config {
	return Config{
		Limits: shrink.DefaultLimits(), MaxBytes: 64 << 20,
		CacheMaxAge: 24 * time.Hour,
	}
}

// withDefaults returns a copy of f with defaults for omitted keys. Package conf does not
// set defaults in the entries of a list.
func (f FeedConfig) withDefaults() FeedConfig {
	if f.File != nil {
		file := *f.File
		file.Column = cmp.Or(file.Column, DefaultColumn)
		f.File = &file
	}
	if f.HTTP != nil {
		h := *f.HTTP
		h.Column = cmp.Or(h.Column, DefaultColumn)
		h.Interval, h.Timeout = cmp.Or(h.Interval, defaultInterval), cmp.Or(h.Timeout, defaultTimeout)
		f.HTTP = &h
	}
	if f.ClickHouse != nil {
		c := *f.ClickHouse
		c.Interval, c.Timeout = cmp.Or(c.Interval, defaultInterval), cmp.Or(c.Timeout, defaultTimeout)
		f.ClickHouse = &c
	}
	return f
}

func (f FileConfig) format() string {
	if f.Format != "" {
		return f.Format
	}
	if filepath.Ext(strings.TrimSuffix(strings.ToLower(f.Path), ".gz")) == ".json" {
		return FormatJSON
	}
	return FormatCSV
}

// comma returns the separator as one character, or 0 if it is empty or invalid.
func (f FileConfig) comma() rune {
	if f.Separator == "tab" {
		return '\t'
	}
	c := []rune(f.Separator)
	if len(c) != 1 || strings.ContainsRune("\"\r\n\uFFFD", c[0]) {
		return 0
	}
	return c[0]
}

// Validate returns an error for each invalid setting, joined.
func (c Config) Validate() error {
	errs := []error{
		c.Limits.Validate(),
		settings.Within("max_bytes", c.MaxBytes, 1<<10, 1<<30, "a list is read into memory as a whole"),
	}
	seen, shared := make(map[string]bool), false
	for i, f := range c.Feeds {
		at := fmt.Sprintf("feeds[%d].", i)
		errs = append(errs, f.validate(at))
		if f.InstanceColumn != "" {
			errs = append(errs, settings.Check(!shared, "%sinstance_column is set in two feeds, which could contain the same product instance", at))
			shared = true
			continue
		}
		errs = append(errs, settings.Check(!seen[f.ProductInstance], "%sproduct_instance %q already has a feed", at, f.ProductInstance))
		seen[f.ProductInstance] = true
	}
	return errors.Join(errs...)
}

func (f FeedConfig) validate(at string) error {
	errs := []error{
		settings.Check(f.InstanceColumn != "" || validInstance(f.ProductInstance), "%sproduct_instance is %q, must be %s",
			at, f.ProductInstance, instanceRule),
		settings.Check(f.InstanceColumn == "" || f.ProductInstance == "", "%sproduct_instance and instance_column must not both be set", at),
	}
	set := 0
	if c := f.File; c != nil {
		set++
		errs = append(errs,
			settings.Check(c.Path != "", "%sfile.path must be set", at),
			settings.Check(c.Format == "" || c.Format == FormatCSV || c.Format == FormatJSON,
				"%sfile.format is %q, must be csv, json or empty", at, c.Format),
			settings.Check(c.Separator == "" || c.comma() != 0,
				"%sfile.separator is %q, must be tab or one character, but not a quote or line break", at, c.Separator))
	}
	if c := f.HTTP; c != nil {
		set++
		errs = append(errs,
			settings.Check(settings.IsURL(c.URL), "%shttp.url must be http://… or https://… with a host", at),
			settings.Check(!strings.ContainsFunc(c.Authorization, unprintable), "%shttp.authorization must not contain control characters", at),
			settings.Check(c.Interval == 0 || c.Interval >= time.Second,
				"%shttp.interval is %s, must be 1s or more: shorter intervals burden the server", at, c.Interval),
			settings.Check(c.Timeout == 0 || c.Timeout >= time.Second && c.Timeout <= 10*time.Minute,
				"%shttp.timeout is %s, must be 1s to 10m", at, c.Timeout))
	}
	if f.ClickHouse != nil {
		set++
		errs = append(errs, f.withDefaults().ClickHouse.Validate(at+"clickhouse."))
	}
	errs = append(errs, settings.Check(set == 1, "%sfile, http and clickhouse: %d of them are set, exactly one must be", at, set))
	return errors.Join(errs...)
}

const instanceRule = "1 to 128 bytes of visible text: every record contains it"

func validInstance(name string) bool {
	return name != "" && len(name) <= 128 && utf8.ValidString(name) && !strings.ContainsFunc(name, unprintable)
}

func unprintable(r rune) bool { return !unicode.IsPrint(r) }

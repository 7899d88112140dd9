package registry

import (
	"cmp"
	"path/filepath"
	"strings"
	"time"

	"trafficd/pipeline/dial"
	"trafficd/sources/internal/shrink"
)

// Config is section registry of the configuration: where the detector lists come from, and which
// changes of them to accept.
type Config struct {
	// Feeds, one for each product instance. Batches of an instance without a feed get 403.
	Feeds []FeedConfig `setting:"feeds"`
	// Recheck is how often a file is checked if the system reports no change: network file systems
	// report none.
	Recheck time.Duration `setting:"recheck"`
	// Settle is how long a file must be unmodified before it is read.
	Settle time.Duration `setting:"settle"`
	// Limits concern lists that lack many of the detectors in use.
	shrink.Limits `setting:",squash"`
	// MaxBytes bounds one list, uncompressed.
	MaxBytes int64 `setting:"max_bytes"`
}

// FeedConfig is the feed of one product instance: exactly one of File, HTTP and ClickHouse is set.
type FeedConfig struct {
	ProductInstance string      `setting:"product_instance"`
	File            *FileConfig `setting:"file"`
	HTTP            *HTTPConfig `setting:"http"`
	// ClickHouse is a query whose first column holds the codes. Interval 0 means one minute,
	// Timeout 0 30 s.
	ClickHouse *dial.ClickHouseQuery `setting:"clickhouse"`
}

// FileConfig is a file with the detector list; it may be gzip-compressed.
type FileConfig struct {
	Path string `setting:"path"`
	// Format is csv or json; empty: by the file name (…json, …json.gz), otherwise csv.
	Format string `setting:"format"`
	// Column is the CSV column, or the member of the JSON objects, with the code; empty:
	// detectorCode.
	Column string `setting:"column"`
	// Separator of CSV: one character, or tab; empty: the one that matches the header.
	Separator string `setting:"separator"`
}

// HTTPConfig is a service that answers GET with the list as JSON.
type HTTPConfig struct {
	URL           string        `setting:"url"`
	Column        string        `setting:"column"`        // member of the objects; empty: detectorCode
	Interval      time.Duration `setting:"interval"`      // between polls; 0: one minute
	Authorization string        `setting:"authorization"` // the whole header; secret
	Timeout       time.Duration `setting:"timeout"`       // of a poll; 0: 30 s
}

// The formats of a file, and the default column of codes.
const (
	FormatCSV     = "csv"
	FormatJSON    = "json"
	DefaultColumn = "detectorCode"

	defaultInterval = time.Minute
	defaultTimeout  = 30 * time.Second
)

// DefaultConfig has no feeds.
func DefaultConfig() Config {
	return Config{
		Recheck:  time.Minute,
		Settle:   500 * time.Millisecond,
		Limits:   shrink.DefaultLimits(),
		MaxBytes: 64 << 20,
	}
}

// withDefaults returns a copy with defaults in place of omitted keys: the configuration has no
// defaults for entries of a list.
func (f FeedConfig) withDefaults() FeedConfig {
	switch {
	case f.File != nil:
		file := *f.File
		file.Column = cmp.Or(file.Column, DefaultColumn)
		f.File = &file
	case f.HTTP != nil:
		h := *f.HTTP
		h.Column = cmp.Or(h.Column, DefaultColumn)
		h.Interval, h.Timeout = cmp.Or(h.Interval, defaultInterval), cmp.Or(h.Timeout, defaultTimeout)
		f.HTTP = &h
	case f.ClickHouse != nil:
		c := *f.ClickHouse
		c.Interval, c.Timeout = cmp.Or(c.Interval, defaultInterval), cmp.Or(c.Timeout, defaultTimeout)
		f.ClickHouse = &c
	}
	return f
}

// format returns the configured format, or the one that the file name suggests.
func (f FileConfig) format() string {
	if f.Format != "" {
		return f.Format
	}
	if filepath.Ext(strings.TrimSuffix(strings.ToLower(f.Path), ".gz")) == ".json" {
		return FormatJSON
	}
	return FormatCSV
}

// comma returns the separator as one character; 0 if it is empty or invalid.
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

package forecasts

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"trafficd/pipeline/lib/dial"
	"trafficd/pipeline/lib/settings"
	"trafficd/sources/internal/shrink"
)

// Config is the forecasts section of the configuration.
type Config struct {
	Feed string `setting:"feed"` // source of the forecasts: kafka, file or clickhouse; empty: no forecasts
	// A compacted topic, if feed is kafka: each key is street:fromnode, each value a StreetForecast
	// message.
	Kafka dial.Kafka `setting:"kafka"`
	File  FileConfig `setting:"file"` // A file that is replaced as a whole, if feed is file; it may be gzip-compressed.
	// A query that returns forecast periods in any order, if feed is clickhouse. Its columns,
	// matched by name, are street, fromnode, openLRcode, start, end, flow_valid, speed_valid, speed,
	// flow and updated.
	ClickHouse dial.ClickHouseQuery `setting:"clickhouse"`
	// Limits applies to new content that lacks some of the streets in use.
	shrink.Limits `setting:",squash"`
	// maximum uncompressed size of a file, of a query result, or of a topic's latest records; while
	// new content is read, or held back by max_shrink, it and the layer in use take about four times
	// its size in memory
	MaxBytes int64   `setting:"max_bytes"`
	MaxSpeed float64 `setting:"max_speed"` // highest plausible speed; periods with a higher valid speed are dropped
}

// FileConfig holds the settings of a watched file.
type FileConfig struct {
	Path   string `setting:"path"`   // path of the file
	Format string `setting:"format"` // protobuf, json or ndjson; empty: derived from the file's name
}

// Values of Config.Feed.
const (
	FeedKafka      = "kafka"
	FeedFile       = "file"
	FeedClickHouse = "clickhouse"
)

// Values of FileConfig.Format: a StreetForecastResponse as protobuf or in protobuf's JSON mapping,
// or a StreetForecast in JSON on each line.
const (
	FormatProtobuf = "protobuf"
	FormatJSON     = "json"
	FormatNDJSON   = "ndjson"
)

// DefaultConfig returns the default settings, without a feed.
func DefaultConfig() Config {
	return Config{
		Kafka:      dial.DefaultKafka("forecasts"),
		ClickHouse: dial.ClickHouseQuery{Interval: time.Minute, Timeout: 30 * time.Second},
		Limits:     shrink.DefaultLimits(),
		MaxBytes:   256 << 20,
		MaxSpeed:   MaxSpeed,
	}
}

// FormatOf returns the format that a file's name implies: .json, .ndjson or .jsonl, optionally
// followed by .gz; any other name implies protobuf.
func FormatOf(path string) string {
	switch filepath.Ext(strings.TrimSuffix(strings.ToLower(path), ".gz")) {
	case ".json":
		return FormatJSON
	case ".ndjson", ".jsonl":
		return FormatNDJSON
	}
	return FormatProtobuf
}

// Validate returns an error for each invalid setting, joined. It checks only the section of the
// feed in use.
func (c Config) Validate() error {
	general := errors.Join(
		c.Limits.Validate(),
		settings.Check(c.MaxSpeed > 0 && c.MaxSpeed <= HighestMaxSpeed,
			"max_speed is %g, must be more than 0 and at most %g", c.MaxSpeed, HighestMaxSpeed),
		settings.Within("max_bytes", c.MaxBytes, 1<<10, 4<<30, "files and results are read into memory as a whole"),
	)
	switch c.Feed {
	case "":
		return general
	case FeedKafka:
		return errors.Join(general, c.Kafka.Validate("kafka."))
	case FeedFile:
		return errors.Join(general, c.File.validate())
	case FeedClickHouse:
		return errors.Join(general, c.ClickHouse.Validate("clickhouse."))
	}
	return errors.Join(general, settings.Check(false, "feed is %q, must be kafka, file, clickhouse or empty (no forecasts)", c.Feed))
}

func (f FileConfig) validate() error {
	return errors.Join(
		settings.Check(f.Path != "", "file.path must be set to the file with the forecasts"),
		settings.Check(slices.Contains([]string{"", FormatProtobuf, FormatJSON, FormatNDJSON}, f.Format),
			"file.format is %q, must be protobuf, json, ndjson or empty (derived from the file's name)", f.Format),
	)
}

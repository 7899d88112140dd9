package forecasts

import (
	"path/filepath"
	"strings"
	"time"

	"trafficd/pipeline/dial"
	"trafficd/sources/internal/shrink"
)

// Config is the section forecasts of the configuration.
type Config struct {
	Feed  string      `setting:"feed"`  // kafka, file or clickhouse, the section to use; empty: no forecasts
	Kafka KafkaConfig `setting:"kafka"` // a compacted topic: key street:fromnode, value StreetForecast
	File  FileConfig  `setting:"file"`  // a file that is replaced whole; it may be gzip-compressed
	// A query that returns forecast periods in any order. Its columns, matched by name, are street,
	// fromnode, openLRcode, start, end, flow_valid, speed_valid, speed, flow and updated.
	ClickHouse dial.ClickHouseQuery `setting:"clickhouse"`
	// Limits applies to contents that lack many of the streets in use.
	shrink.Limits `setting:",squash"`
	MaxBytes      int64   `setting:"max_bytes"` // bounds a file, the result of a query, and the latest records of a topic, uncompressed
	MaxSpeed      float64 `setting:"max_speed"` // highest plausible speed; periods above it are dropped
}

// KafkaConfig is a compacted topic: key street:fromnode, value StreetForecast.
type KafkaConfig struct {
	dial.Kafka      `setting:",squash"`
	Interval        time.Duration `setting:"interval"`         // time between polls
	FetchBytes      int           `setting:"fetch_bytes"`      // maximum size of a response, compressed as the broker stores it
	Quiet           time.Duration `setting:"quiet"`            // time without new records before updates outside of transactions are shown
	QuietWait       time.Duration `setting:"quiet_wait"`       // longest wait for such a time, after which updates are shown in any case
	TransactionWait time.Duration `setting:"transaction_wait"` // how long updates wait for a transaction to be committed in all partitions
}

// FileConfig is a file that is replaced as a whole; it may be gzip-compressed.
type FileConfig struct {
	Path   string `setting:"path"`   // name of the file
	Format string `setting:"format"` // protobuf, json or ndjson; empty: derived from the file's name
	// time between checks for changes that the operating system does not report, as on network file
	// systems
	Recheck time.Duration `setting:"recheck"`
	Settle  time.Duration `setting:"settle"` // how long the file must be unmodified before it is read
}

// Values of Config.Feed.
const (
	FeedKafka      = "kafka"
	FeedFile       = "file"
	FeedClickHouse = "clickhouse"
)

// Formats of a file: a StreetForecastResponse as protobuf or in protobuf's JSON mapping, or a
// StreetForecast in JSON on each line.
const (
	FormatProtobuf = "protobuf"
	FormatJSON     = "json"
	FormatNDJSON   = "ndjson"
)

// DefaultConfig returns the default settings, without a feed. A topic is polled every second, so
// that maps do not lag visibly; a query less often, because it costs the server a scan.
func DefaultConfig() Config {
	return Config{
		Kafka: KafkaConfig{
			Kafka: dial.DefaultKafka("forecasts"), Interval: time.Second, FetchBytes: 4 << 20,
			Quiet: 100 * time.Millisecond, QuietWait: 2 * time.Second, TransactionWait: time.Minute,
		},
		File:       FileConfig{Recheck: time.Minute, Settle: 500 * time.Millisecond},
		ClickHouse: dial.ClickHouseQuery{Interval: time.Minute, Timeout: 30 * time.Second},
		Limits:     shrink.DefaultLimits(),
		MaxBytes:   256 << 20,
		MaxSpeed:   MaxSpeed,
	}
}

// FormatOf returns the format that a file's name implies: .json, .ndjson or .jsonl, optionally with
// .gz; every other name means protobuf.
func FormatOf(path string) string {
	switch filepath.Ext(strings.TrimSuffix(strings.ToLower(path), ".gz")) {
	case ".json":
		return FormatJSON
	case ".ndjson", ".jsonl":
		return FormatNDJSON
	}
	return FormatProtobuf
}

package forecasts

import (
	"path/filepath"
	"strings"
	"time"

	"trafficd/pipeline/dial"
)

// Config is section forecasts of the configuration: where the forecasts come from.
type Config struct {
	// Feed is kafka, file or clickhouse, whose section then counts; empty:
	// there are no forecasts.
	Feed  string      `koanf:"feed"`
	Kafka KafkaConfig `koanf:"kafka"`
	File  FileConfig  `koanf:"file"`
	// ClickHouse is a query whose rows, in any order, are forecast periods, with columns by name:
	// street, fromnode, openLRcode, start, end, flow_valid, speed_valid, speed, flow.
	ClickHouse dial.ClickHouseQuery `koanf:"clickhouse"`
	// MaxBytes bounds the content of a file, uncompressed, of a query's answer, and
	// of a topic without the records that later ones replace.
	MaxBytes int64 `koanf:"max_bytes"`
}

// KafkaConfig is a compacted topic: key street:fromnode, value StreetForecast.
type KafkaConfig struct {
	dial.Kafka `koanf:",squash"`
	Interval   time.Duration `koanf:"interval"`    // between polls
	FetchBytes int           `koanf:"fetch_bytes"` // of one answer, as the broker stores it
}

// FileConfig is a file that is swapped whole; it may be gzip-compressed.
type FileConfig struct {
	Path string `koanf:"path"`
	// Format is protobuf, json or ndjson; empty: by the file's name, see [FormatOf].
	Format string `koanf:"format"`
	// Recheck is how often the file is looked at even if the system reports no
	// change: network file systems report none.
	Recheck time.Duration `koanf:"recheck"`
	// Settle is how long the file has to lie untouched before it is read.
	Settle time.Duration `koanf:"settle"`
}

// The feeds, as Feed names them.
const (
	FeedKafka      = "kafka"
	FeedFile       = "file"
	FeedClickHouse = "clickhouse"
)

// The formats of a file: a StreetForecastResponse as protobuf or in protobuf's
// JSON mapping, or a StreetForecast in JSON on each line.
const (
	FormatProtobuf = "protobuf"
	FormatJSON     = "json"
	FormatNDJSON   = "ndjson"
)

// DefaultConfig has no feed: none is right everywhere. A topic is polled every
// second, so that a map is not behind by more than it can show; a query costs
// the other side a scan.
func DefaultConfig() Config {
	return Config{
		Kafka:      KafkaConfig{Kafka: dial.DefaultKafka("forecasts"), Interval: time.Second, FetchBytes: 4 << 20},
		File:       FileConfig{Recheck: time.Minute, Settle: 500 * time.Millisecond},
		ClickHouse: dial.ClickHouseQuery{Interval: time.Minute, Timeout: 30 * time.Second},
		MaxBytes:   256 << 20,
	}
}

// FormatOf tells a file's format by its name, which may end in .gz as well:
// .json, .ndjson or .jsonl; every other name means protobuf.
func FormatOf(path string) string {
	switch filepath.Ext(strings.TrimSuffix(strings.ToLower(path), ".gz")) {
	case ".json":
		return FormatJSON
	case ".ndjson", ".jsonl":
		return FormatNDJSON
	}
	return FormatProtobuf
}

package forecasts

import (
	"errors"
	"time"

	"trafficd/pipeline/settings"
)

// Validate returns all errors, joined; each names its key. It checks only the section of the feed
// in use.
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
		return errors.Join(general, c.Kafka.Validate())
	case FeedFile:
		return errors.Join(general, c.File.validate())
	case FeedClickHouse:
		return errors.Join(general,
			c.ClickHouse.Validate("clickhouse."),
			settings.Within("clickhouse.interval", c.ClickHouse.Interval, time.Second, 24*time.Hour,
				"a shorter interval burdens the server, a longer one delays the map"),
			settings.Within("clickhouse.timeout", c.ClickHouse.Timeout, time.Second, 10*time.Minute,
				"a shorter timeout gives up on a busy server, a longer one stalls on a dead one"),
		)
	}
	return errors.Join(general, settings.Check(false, "feed is %q, must be kafka, file, clickhouse or empty (no forecasts)", c.Feed))
}

// Validate reports every invalid key with the reason for its bound.
func (c KafkaConfig) Validate() error {
	return errors.Join(
		c.Kafka.Validate("kafka."),
		settings.Within("kafka.interval", c.Interval, 10*time.Millisecond, time.Hour,
			"every poll costs a request per partition; a longer interval delays the map"),
		settings.Within("kafka.fetch_bytes", c.FetchBytes, 16<<10, 256<<20,
			"smaller responses cost more in requests than in records, larger ones only take memory"),
		settings.Within("kafka.quiet", c.Quiet, 10*time.Millisecond, time.Minute,
			"a shorter time finds pauses within a publication, a longer one delays the map"),
		settings.Within("kafka.quiet_wait", c.QuietWait, 0, time.Hour, "a longer wait delays the map"),
		settings.Within("kafka.transaction_wait", c.TransactionWait, 0, time.Hour, "a longer wait delays the map"),
	)
}

func (f FileConfig) validate() error {
	known := f.Format == "" || f.Format == FormatProtobuf || f.Format == FormatJSON || f.Format == FormatNDJSON
	return errors.Join(
		settings.Check(f.Path != "", "file.path must be set to the file with the forecasts"),
		settings.Check(known, "file.format is %q, must be protobuf, json, ndjson or empty (by the file's name)", f.Format),
		settings.Within("file.recheck", f.Recheck, time.Second, time.Hour, "a longer interval delays changes on network file systems"),
		settings.Within("file.settle", f.Settle, 10*time.Millisecond, time.Minute,
			"a shorter time reads half-written files, a longer one delays new forecasts"),
	)
}
